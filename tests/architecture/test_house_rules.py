"""Rules of the house that import contracts cannot express."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

from mx_artifacts import settings
from mx_artifacts.configuration import Setting

ROOT = Path(__file__).parents[2]
SOURCES = [
    path
    for folder in ("mx_artifacts", "cli")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "gen" not in path.parts
]
SETTINGS_FILE = ROOT / "mx_artifacts" / "settings.py"
ENVIRONMENT_FILE = ROOT / "mx_artifacts" / "node" / "environment.py"
DEMO = ROOT / "cli" / "mx_artifact_cli" / "demo"


@functools.cache
def _nodes(path: Path) -> list[ast.AST]:
    """Return all that a file's syntax tree consists of."""
    return list(ast.walk(ast.parse(path.read_text())))


def _attributes(path: Path) -> set[str]:
    """Return `module.name` of every attribute taken of a plain name in a file."""
    return {
        f"{node.value.id}.{node.attr}"
        for node in _nodes(path)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }


def test_only_one_module_reads_the_environment() -> None:
    readers = [
        path
        for path in SOURCES
        if path != ENVIRONMENT_FILE
        # the demo's jobs stand in for an engine, which has its own rules
        and DEMO not in path.parents
        and _attributes(path) & {"os.environ", "os.getenv", "os.putenv", "os.environb"}
    ]
    assert readers == []


def test_every_setting_is_read_somewhere() -> None:
    names = {
        name
        for name, value in vars(settings).items()
        if isinstance(value, Setting) and name.isupper()
    }
    used = {
        attribute.removeprefix("settings.").removesuffix(".read")
        for path in SOURCES
        if path != SETTINGS_FILE
        for attribute in _attributes(path)
    }
    assert len(names) == len(settings.SETTINGS)
    assert names - used == set()


def test_every_package_says_in_a_docstring_what_it_is_and_has_nothing_else() -> None:
    wrong = [
        path
        for path in SOURCES
        if path.name == "__init__.py"
        and path.parent != ROOT / "mx_artifacts"
        and not _is_docstring_only(path)
    ]
    assert wrong == []


def _is_docstring_only(path: Path) -> bool:
    tree = ast.parse(path.read_text())
    return len(tree.body) == 1 and bool(ast.get_docstring(tree))


def test_only_nixl_modules_name_nixl() -> None:
    """NIXL is loaded by name, which an import contract does not see."""
    users = [
        path.name
        for path in SOURCES
        if any(
            isinstance(node, ast.Constant) and node.value in ("nixl_cu13", "nixl_cu12")
            for node in _nodes(path)
        )
    ]
    assert users == ["nixl.py"]


def _calls(path: Path) -> set[str]:
    """Return the last name of everything that a file calls: `open_channel`, `insecure_channel`."""
    functions = (n.func for n in _nodes(path) if isinstance(n, ast.Call))
    return {getattr(each, "attr", getattr(each, "id", "")) for each in functions}


def test_one_module_opens_channels_and_one_binds_listeners() -> None:
    """So that credentials, when they come, have one door each."""
    channels = {"insecure_channel", "secure_channel"}
    listeners = {"add_insecure_port", "add_secure_port"}
    found = {path.name for path in SOURCES if _calls(path) & channels}
    assert found == {"channel.py"}
    assert {path.name for path in SOURCES if _calls(path) & listeners} == {"listen.py"}
