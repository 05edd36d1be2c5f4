"""How NIXL is found and started, with a stand-in for its bindings."""

from __future__ import annotations

import importlib
import logging
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from mx_artifacts.errors import ConfigurationError, TransportUnavailableError
from mx_artifacts.transport import nixl


class FakeAgent:
    config: Any = None

    def __init__(self, name: str, config: Any) -> None:
        FakeAgent.config = config

    def getAvailPlugins(self) -> list[str]:
        return ["UCX", "POSIX"]

    def createBackend(self, name: str, parameters: dict[str, str]) -> int:
        if name == "POSIX":
            raise RuntimeError("NIXL_ERR_BACKEND")
        return 7


@pytest.fixture
def imported(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Replace the import of NIXL; returns the names that are asked for, of which cu12 exists."""
    names: list[str] = []

    def import_submodule(package: str, submodule: str) -> ModuleType:
        name = f"{package}.{submodule}"
        names.append(name)
        if name != "nixl_cu12._bindings":
            raise ModuleNotFoundError(f"No module named {name!r}")
        module = ModuleType(name)
        module.nixlAgentConfig = SimpleNamespace  # type: ignore[attr-defined]
        module.nixlAgent = FakeAgent  # type: ignore[attr-defined]
        module.NIXL_THREAD_SYNC_NONE = 0  # type: ignore[attr-defined]
        logging.getLogger("nixl").addHandler(logging.StreamHandler(sys.stdout))
        logging.raiseExceptions = False
        return module

    monkeypatch.setattr(nixl, "_import_submodule", import_submodule)
    monkeypatch.setattr(nixl, "_cuda_major", lambda: None)
    return names


def test_takes_the_build_that_is_installed(imported: list[str]) -> None:
    assert nixl.start_agent("a", "UCX", 10.0).backend == 7
    assert imported == ["nixl_cu13._bindings", "nixl_cu12._bindings"]


def test_devices_that_are_stated_are_all_that_ucx_may_use(
    imported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("UCX_NET_DEVICES", raising=False)
    assert "device_list" not in nixl._parameters("UCX", [])
    devices = ["mlx5_0:1", "mlx5_1:1"]
    assert nixl._parameters("UCX", devices)["device_list"] == "mlx5_0, mlx5_1"
    one = nixl._parameters("UCX", ["mlx5_1:2"])
    assert one["engine_config"].endswith(",NET_DEVICES=mlx5_1:2")
    assert "device_list" not in one
    with pytest.raises(ConfigurationError, match="mlx5_1:2"):
        nixl._parameters("UCX", ["mlx5_0:1", "mlx5_1:2"])
    assert nixl._parameters("LIBFABRIC", devices) == {}
    monkeypatch.setenv("UCX_NET_DEVICES", "mlx5_2:1")  # the user's own word
    assert "device_list" not in nixl._parameters("UCX", devices)


def test_prefers_the_build_for_the_drivers_cuda(
    imported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nixl, "_cuda_major", lambda: 12)
    nixl.start_agent("a", "UCX", 10.0)
    assert imported == ["nixl_cu12._bindings"]


def test_a_loaded_torch_decides_the_cuda_version(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = SimpleNamespace(version=SimpleNamespace(cuda="12.8"))
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert nixl._cuda_major() == 12


def test_idle_agents_do_not_spin(imported: list[str]) -> None:
    nixl.start_agent("a", "UCX", 10.0)
    assert FakeAgent.config.useProgThread
    assert FakeAgent.config.pthrDelay >= 1000  # below 1 ms NIXL polls without sleeping


def test_logging_is_left_as_it_was(imported: list[str]) -> None:
    nixl.start_agent("a", "UCX", 10.0)
    assert logging.getLogger("nixl").handlers == []
    assert logging.raiseExceptions


def test_without_nixl_each_cause_is_named(
    imported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(package: str, submodule: str) -> ModuleType:
        raise ImportError(f"libcuda for {package}")

    monkeypatch.setattr(nixl, "_import_submodule", fail)
    with pytest.raises(TransportUnavailableError, match=r"cu13: libcuda.*cu12: .*nixl: ") as raised:
        nixl.start_agent("a", "UCX", 10.0)
    assert "pip install nixl" in raised.value.hint()


def test_a_missing_backend_is_an_error(imported: list[str]) -> None:
    with pytest.raises(TransportUnavailableError, match=r"'LIBFABRIC'; .* are UCX$"):
        nixl.start_agent("a", "LIBFABRIC", 10.0)


def test_a_backend_that_fails_says_where_to_look(imported: list[str]) -> None:
    with pytest.raises(TransportUnavailableError, match="NIXL_ERR_BACKEND") as raised:
        nixl.start_agent("a", "POSIX", 10.0)
    assert "UCX_NET_DEVICES" in raised.value.hint()


def test_a_start_that_hangs_is_given_up(
    imported: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = threading.Event()
    monkeypatch.setattr(nixl, "_start", lambda *_: let_go.wait())
    with pytest.raises(TransportUnavailableError, match="'a' did not start within"):
        nixl.start_agent("a", "UCX", 0.05)
    let_go.set()


def test_a_submodule_is_imported_without_its_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_package").mkdir()
    (tmp_path / "a_package" / "__init__.py").write_text("from . import part; loaded = part")
    (tmp_path / "a_package" / "part.py").write_text("import sys; name = __name__")
    (tmp_path / "a_package" / "broken.py").write_text("raise ImportError('no library')")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("a_package", "a_package.part"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    part = nixl._import_submodule("a_package", "part")
    assert part.name == "a_package.part"
    assert "a_package" not in sys.modules
    for _ in range(2):
        with pytest.raises(ImportError, match="no library"):
            nixl._import_submodule("a_package", "broken")
    for missing in (("a_package", "none"), ("no_such_package", "part")):
        with pytest.raises(ModuleNotFoundError, match=missing[0]):
            nixl._import_submodule(*missing)
    package = importlib.import_module("a_package")
    assert package.loaded is part
    assert nixl._import_submodule("a_package", "part") is part
