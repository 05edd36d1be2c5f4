"""The public face: complete, documented, and light to import."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_origin, get_type_hints

import pytest

import mx_artifacts
from mx_artifacts import errors, plugin
from tests.support.child import ended

ROOT = Path(__file__).parents[2]
FACES = (mx_artifacts, plugin)

# What the specification's transfer object hands from one of its own methods to the next: its users
# pass it on without looking inside.
INSIDE = {
    *("Buffer", "FileBuffer", "MemberIndex", "PackedTree", "Staging"),
    *("Agreement", "Receiver", "RootReceiver", "SourceAddress", "Advertisement"),
    # What members of a group tell the central server; ArtifactFetcher does it.
    *("GroupAnswer", "MemberReport"),
    # What a worker serves is added by the publisher and by seeds.
    "ChunkSource",
    # Where an entry is, by which packing makes an EntryView; a kind's judge is given one.
    "Directory",
}


@pytest.fixture(scope="module")
def api() -> Iterator[ModuleType]:
    """The program that writes docs/api/."""
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        spec = spec_from_file_location("generate_api", ROOT / "tools" / "generate_api.py")
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(ROOT / "tools"))
        sys.modules.pop("generate_api", None)


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_every_public_name_is_there_for_programs_and_for_type_checkers(face: ModuleType) -> None:
    assert face.__file__ is not None
    checked = {
        alias.asname
        for node in ast.walk(ast.parse(Path(face.__file__).read_text()))
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name)
        for statement in node.body
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
    }
    assert checked | {"__version__"} == {*face.__all__, "__version__"}
    assert [name for name in face.__all__ if getattr(face, name) is None] == []
    assert set(dir(face)) <= {*face.__all__, "__version__"}
    with pytest.raises(AttributeError, match="no_such_name"):
        face.no_such_name  # noqa: B018


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.__name__)
def test_every_public_name_has_a_docstring(api: ModuleType, face: ModuleType) -> None:
    assert api.undocumented(face.__name__) == []


@pytest.mark.parametrize("name", [face.__name__ for face in FACES])
def test_importing_it_loads_nothing_heavy(name: str) -> None:
    script = (
        f"import sys, {name}; heavy = {{'torch', 'nixl', 'nixl_cu12', 'nixl_cu13', 'grpc',"
        " 'numpy', 'click', 'google', 'redis', 'rich'} & set(sys.modules);"
        " sys.exit(', '.join(heavy) or 0)"
    )
    done = ended([sys.executable, "-c", script])
    assert (done.returncode, done.stderr) == (0, "")


def test_a_plugin_needs_no_other_module_of_ours_for_a_kind() -> None:
    """What our own kinds import is there for others' kinds too, but for formats of one compiler."""
    used = {
        alias.name
        for name in ("generic", "tilelang", "cute_dsl/kind")
        for node in ast.walk(ast.parse((ROOT / f"mx_artifacts/kinds/{name}.py").read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mx_artifacts.")
        for alias in node.names
    }
    assert used - {"CUTE_DSL_VALUES", "ConfigurationError"} <= set(plugin.__all__)


# --- what public signatures name -----------------------------------------------------------------


@functools.cache
def _names(module: str) -> dict[str, Any]:
    """Return what annotations in a module may name, what it imports for type checkers included."""
    found = importlib.import_module(module)
    names = dict(vars(found))
    for node in ast.walk(ast.parse(inspect.getsource(found))):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = alias.asname or alias.name
                if name not in names:
                    names[name] = getattr(importlib.import_module(node.module), alias.name, None)
    return names


def _annotations(public: object) -> Iterator[Any]:
    """Yield the annotations of a public function, or of a public class with what it inherits."""
    if inspect.isfunction(public):
        yield from get_type_hints(public, _names(public.__module__)).values()
    if not inspect.isclass(public) or issubclass(public, Exception):
        return
    for base in (each for each in public.__mro__ if each.__module__.startswith("mx_artifacts")):
        # A class of its own: what is inherited is read by the names of the module it is from.
        fields = {n: a for n, a in inspect.get_annotations(base).items() if not n.startswith("_")}
        holder = type("Holder", (), {"__annotations__": fields})
        yield from get_type_hints(holder, _names(base.__module__)).values()
        for name, member in vars(base).items():
            function = getattr(member, "__func__", getattr(member, "fget", member))
            if not inspect.isfunction(function) or function.__code__.co_filename == "<string>":
                continue  # a dataclass's, which takes the fields
            if name == "__init__" or not name.startswith("_"):
                yield from get_type_hints(function, _names(function.__module__)).values()


def _ours(annotation: Any) -> Iterator[type]:
    """Yield the classes of this package that an annotation names."""
    for each in (annotation, get_origin(annotation)):
        if isinstance(each, type) and each.__module__.startswith("mx_artifacts"):
            yield each
    for inner in get_args(annotation):
        for each in inner if isinstance(inner, list) else (inner,):
            yield from _ours(each)


def test_all_that_public_names_take_and_return_is_public() -> None:
    public = {name: getattr(face, name) for face in FACES for name in face.__all__}
    known = {*map(id, public.values()), *map(id, vars(errors).values())}
    missing = {
        f"{type_.__module__}.{type_.__qualname__} (named by {name})"
        for name, each in public.items()
        for annotation in _annotations(each)
        for type_ in _ours(annotation)
        if id(type_) not in known and type_.__name__ not in INSIDE
    }
    assert missing == set()


def test_no_public_name_is_internal_or_missing() -> None:
    named = {
        type_.__name__
        for face in FACES
        for name in face.__all__
        for annotation in _annotations(getattr(face, name))
        for type_ in _ours(annotation)
    }
    assert named >= INSIDE
    assert not INSIDE & {name for face in FACES for name in face.__all__}
