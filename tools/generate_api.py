"""Generate docs/api/ from the docstrings of the public names.

usage: python tools/generate_api.py [--check]
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import generated

API = Path(__file__).resolve().parent.parent / "docs" / "api"
REMAKE = "make docs"
NOTICE = f"<!-- Written by tools/generate_api.py; change docstrings and run `{REMAKE}`. -->\n"
PAGES = {"mx_artifacts": "mx_artifacts.md", "mx_artifacts.plugin": "plugin.md"}
ERRORS = "mx_artifacts.errors"
_SECTION = re.compile(r"(Args|Attributes|Raises|Returns|Yields):")
_SHOWN_SPECIAL = ("__init__", "__call__")

Definition = ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Module:
    """A module's source, and what it defines at the top, in order."""

    lines: list[str]
    definitions: dict[str, Definition]
    documented: dict[str, str]
    """Docstrings that follow an assignment, by the name assigned to."""


@cache
def module_of(name: str) -> Module:
    """Read the source of a module."""
    source = inspect.getsource(importlib.import_module(name))
    body = ast.parse(source).body
    return Module(source.splitlines(), dict(_defined(body)), dict(_documented(body)))


def _defined(body: list[ast.stmt]) -> Iterator[tuple[str, Definition]]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            yield node.name, node
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node


def _documented(body: list[ast.stmt]) -> Iterator[tuple[str, str]]:
    for node, after in pairwise(body):
        for name, _ in _defined([node]):
            if (
                isinstance(after, ast.Expr)
                and isinstance(after.value, ast.Constant)
                and isinstance(after.value.value, str)
                and isinstance(node, ast.Assign | ast.AnnAssign)
            ):
                yield name, inspect.cleandoc(after.value.value)


# --- what is public ------------------------------------------------------------------------------


def exports(face: str) -> dict[str, str]:
    """Map each name that a public module exports to the module that defines it."""
    table = importlib.import_module(face)._EXPORTS
    defined = {name: where for name, where in table.items() if not where.endswith(":")}
    return {name: f"mx_artifacts.{where}" for name, where in defined.items()}


def docstring(module: str, name: str) -> str:
    """Return the docstring of a name that `module` defines, "" where it has none."""
    source = module_of(module)
    node = source.definitions[name]
    if isinstance(node, ast.ClassDef | ast.FunctionDef):
        return ast.get_docstring(node) or ""
    value = getattr(importlib.import_module(module), name)
    made = inspect.getdoc(value) if inspect.isfunction(value) else None  # by another function
    return source.documented.get(name) or made or ""


def public_members(node: ast.ClassDef) -> list[ast.FunctionDef]:
    """Return the methods and properties of a class that its users call, in order."""
    return [
        each
        for each in node.body
        if isinstance(each, ast.FunctionDef)
        and (not each.name.startswith("_") or each.name in _SHOWN_SPECIAL)
    ]


def undocumented(face: str) -> list[str]:
    """Return the exported names, and the methods of exported classes, that have no docstring."""
    missing = []
    for name, module in exports(face).items():
        node = module_of(module).definitions[name]
        if not docstring(module, name):
            missing.append(f"{module}.{name}")
        if isinstance(node, ast.ClassDef):
            missing += [
                f"{module}.{name}.{each.name}"
                for each in public_members(node)
                if each.name != "__init__" and not ast.get_docstring(each)
            ]
    return missing


# --- Markdown ------------------------------------------------------------------------------------


def prose(text: str) -> str:
    """Return a docstring as Markdown: its sections of names become lists."""
    done: list[str] = []
    in_section = False
    for line in text.splitlines():
        if _SECTION.fullmatch(line):
            in_section = True
            done += [f"*{line[:-1]}*", ""]
        elif in_section and line and not line.startswith(" "):
            in_section = False
            done.append(line)
        elif in_section and line.startswith("    ") and line[4] != " ":
            done.append(f"- {line[4:]}")
        else:
            done.append(f"  {line.strip()}" if in_section and line else line)
    return "\n".join(done).strip() + "\n"


def _block(lines: list[str]) -> str:
    return "```python\n" + inspect.cleandoc("\n" + "\n".join(lines)) + "\n```\n"


def _head(source: list[str], node: ast.FunctionDef) -> list[str]:
    """Return a function without its body, as it is written."""
    first = min([each.lineno for each in node.decorator_list] or [node.lineno])
    body = node.body[0]
    lines = source[first - 1 : max(body.lineno - 1, node.lineno)]
    if body.lineno == node.lineno:
        lines[-1] = lines[-1][: body.col_offset].rstrip()
    lines[-1] = lines[-1].rstrip().removesuffix(":")
    return lines


def _text(source: list[str], node: ast.stmt) -> list[str]:
    return source[node.lineno - 1 : node.end_lineno]


def _class(module: Module, node: ast.ClassDef) -> Iterator[str]:
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    lines = [f"class {node.name}({bases}):" if bases else f"class {node.name}:"]
    for name, each in _defined(node.body):
        if isinstance(each, ast.Assign | ast.AnnAssign) and not name.startswith("_"):
            lines += _text(module.lines, each)
    yield _block(lines)
    yield prose(ast.get_docstring(node) or "")
    attributes = dict(_documented(node.body))
    if attributes:
        yield (
            "\n".join(f"- `{name}`: {' '.join(text.split())}" for name, text in attributes.items())
            + "\n"
        )
    for method in public_members(node):
        yield f"### {node.name}.{method.name}\n"
        yield _block(_head(module.lines, method))
        if text := ast.get_docstring(method):
            yield prose(text)


def entry(module: str, name: str) -> str:
    """Return what the reference says of one name."""
    source = module_of(module)
    node = source.definitions[name]
    parts = [f"## {name}\n"]
    if isinstance(node, ast.ClassDef):
        parts += _class(source, node)
    elif isinstance(node, ast.FunctionDef):
        parts += [_block(_head(source.lines, node)), prose(docstring(module, name))]
    else:
        parts += [_block(_text(source.lines, node)), prose(docstring(module, name))]
    return "\n".join(parts)


def page(face: str, names: dict[str, str]) -> str:
    """Return the page of a public module; `names` maps each of its names to where it is defined."""
    about = inspect.cleandoc(importlib.import_module(face).__doc__ or "")
    listed = " · ".join(f"[{name}](#{name.lower()})" for name in names)
    body = "\n".join(entry(module, name) for name, module in names.items())
    return f"{NOTICE}# {face}\n\n{about}\n\n{listed}\n\n{body}"


def generate(out: Path) -> None:
    """Write all pages below `out`."""
    out.mkdir(parents=True, exist_ok=True)
    for face, file in PAGES.items():
        names = dict(sorted(exports(face).items(), key=lambda item: item[0].lower()))
        (out / file).write_text(page(face, names), encoding="utf-8")
    errors = module_of(ERRORS).definitions
    names = {name: ERRORS for name, node in errors.items() if isinstance(node, ast.ClassDef)}
    (out / "errors.md").write_text(page(ERRORS, names), encoding="utf-8")


if __name__ == "__main__":
    raise SystemExit(generated.main(generate, API, owned="*.md", remake=REMAKE, usage=__doc__))
