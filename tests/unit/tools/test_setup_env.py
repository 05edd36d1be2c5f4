"""The set-up script's decisions; that it installs is seen by everyone who runs the tests."""

from __future__ import annotations

import shutil
import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[3] / "tools" / "setup_env.py"


@pytest.fixture(name="script")
def _script() -> ModuleType:
    spec = spec_from_file_location("setup_env", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(name="installed")
def _installed(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Record what would be installed; the environment is this test's own Python."""
    installed: list[tuple[str, ...]] = []
    monkeypatch.setattr(script, "make_environment", lambda directory: Path(sys.executable))
    monkeypatch.setattr(script, "pip_install", lambda python, *what: installed.append(what))
    monkeypatch.setattr(script, "has_gpu", lambda: False)
    monkeypatch.setattr(script, "has", lambda python, module: False)
    return installed


def test_a_python_that_is_too_old_is_named(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "OLDEST_PYTHON", (9, 9))
    with pytest.raises(script.SetupError, match=r"9\.9 or newer is needed(.|\n)*make PYTHON="):
        script.main(["project", "somewhere"])


def test_a_python_without_venv_is_named(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(script.SetupError, match=r"apt install python3\.\d+-venv"):
        script.make_environment(tmp_path / "venv")
    assert not (tmp_path / "venv").exists()


@pytest.mark.process
def test_without_a_gpu_a_fixed_torch_comes_first(
    script: ModuleType, installed: list[tuple[str, ...]]
) -> None:
    script.main(["project", "somewhere", "demo", "dev"])
    assert installed == [("torch==2.13.0",), ("--editable", f"{script.ROOT}[demo,dev]")]


@pytest.mark.process
def test_an_installation_without_its_compiled_part_is_reported(
    script: ModuleType, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    place = tmp_path / "mx_artifacts" / "bulk"
    shutil.copytree(
        script.ROOT / "mx_artifacts" / "bulk", place, ignore=shutil.ignore_patterns("*.so.1")
    )
    (tmp_path / "mx_artifacts" / "__init__.py").touch()
    script.ROOT = tmp_path  # type: ignore[attr-defined]
    script.tell_of_compiled_part(Path(sys.executable))
    told = capfd.readouterr().out
    assert told.startswith("note: the compiled part is not used: it was not built. All works")
    assert told.endswith("install again with a C compiler\n")


@pytest.mark.process
def test_a_gpus_torch_is_left_alone_and_found(
    script: ModuleType,
    installed: list[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    linked = []
    spec = ModuleSpec("torch", None, origin=str(tmp_path / "site" / "torch" / "__init__.py"))
    monkeypatch.setattr(script, "has_gpu", lambda: True)
    monkeypatch.setattr(script.importlib.util, "find_spec", lambda name: spec)
    monkeypatch.setattr(script, "link_site", lambda python, site: linked.append(site))
    script.main(["project", "somewhere", "demo"])
    assert linked == [tmp_path / "site"]
    assert installed == [("--editable", f"{script.ROOT}[demo]")]


@pytest.mark.process
def test_a_triton_that_torch_brought_is_left_alone(
    script: ModuleType, installed: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "has", lambda python, module: module == "triton")
    script.main(["project", "somewhere", "demo", "dev"])
    assert installed[-1] == ("--editable", f"{script.ROOT}[dev]")


def test_the_reference_comes_without_its_pins(
    script: ModuleType, installed: list[tuple[str, ...]]
) -> None:
    script.main(["interop", "somewhere"])
    assert installed[-1] == ("--no-deps", "modelexpress==0.7.0")
    assert "grpcio==1.80.*" in installed[-2]


def test_compilers_of_real_caches_come_before_the_project(
    script: ModuleType, installed: list[tuple[str, ...]]
) -> None:
    script.main(["kinds", "tilelang", "somewhere"])
    assert installed == [*script.KINDS["tilelang"], ("--editable", str(script.ROOT))]
    with pytest.raises(script.SetupError, match="usage:"):
        script.main(["kinds", "unknown", "somewhere"])
