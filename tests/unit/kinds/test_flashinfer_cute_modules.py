"""FlashInfer's CuTe kernels: which build of the stack they are of, and which may be together."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import pytest

from mx_artifacts.install.base import ArtifactOrigin, RootInstall, RootReport
from mx_artifacts.kinds.cute_dsl.stack import cute_dsl_flavor, cute_dsl_stack
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.node.installed import CannotProbe, ComponentAbsent
from mx_artifacts.probes import gpu
from mx_artifacts.probes.base import ProbeContext
from mx_artifacts.runtime.clock import FakeClock
from tests.support.install_cases import install_roots
from tests.support.packing import pack_to_file

KIND = get_kind("flashinfer")
MODULE = "0.7.4/90a/cached_ops/gemm_sm90a_cute_dsl"
META = {"arch": "sm90a", "cute_dsl_version": "4.8.1", "source_sha256": "0f"}


def write_module(root: Path, kernels: str, meta: dict[str, str] | None = META) -> Path:
    """Write a module with a kernel for each letter, its content naming the root."""
    (root / MODULE).mkdir(parents=True)
    for name in kernels:
        (root / MODULE / f"{name}.o").write_text(f"{name} of {root.name}")
    if meta is not None:
        (root / MODULE / "meta.json").write_text(json.dumps(meta))
    return root


def install(source: Path, root: Path, *, replace: bool = False) -> RootReport:
    bundle = source.with_name("artifact.tar")
    pack_to_file(source, bundle, KIND.pack, clock=FakeClock(time.time() + 3600))
    [report] = install_roots(
        [(RootInstall("", root, KIND.install_entry_of, KIND.fixups), bundle)],
        artifact=ArtifactOrigin("a" * 64, "s", "w", "h:1", KIND.name),
        replace=replace,
        lock_timeout_seconds=0,
    ).roots
    return report


def kernels_at(root: Path) -> dict[str, str]:
    return {path.stem: path.read_text() for path in (root / MODULE).glob("*.o")}


def test_kernels_of_the_same_compiler_add_up(tmp_path: Path) -> None:
    source, target = write_module(tmp_path / "s", "abc"), write_module(tmp_path / "t", "ax")
    report = install(source, target)
    assert kernels_at(target) == {"a": "a of t", "b": "b of s", "c": "c of s", "x": "x of t"}
    assert set(report.kept) == {f"{MODULE}/a.o", f"{MODULE}/meta.json"}
    assert install(source, target, replace=True).installed
    assert kernels_at(target) == {"a": "a of s", "b": "b of s", "c": "c of s", "x": "x of t"}


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(
    ("meta", "because"),
    [
        ({**META, "cute_dsl_version": "4.8.0"}, "was compiled with another cute_dsl_version;"),
        ({**META, "tvm_ffi": False}, "was compiled with another tvm_ffi;"),
        (None, "has no meta.json"),
    ],
)
def test_kernels_of_another_compiler_are_left_out_with_the_reason(
    tmp_path: Path, replace: bool, meta: dict[str, str] | None, because: str
) -> None:
    target = write_module(tmp_path / "t", "ax", meta)
    report = install(write_module(tmp_path / "s", "abc"), target, replace=replace)
    assert because in report.dropped[MODULE]
    assert kernels_at(target) == {"a": "a of t", "x": "x of t"}


# --- the stack's identity -------------------------------------------------------------------------


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a directory the only one that packages are installed in."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    return tmp_path


def add_wheel(packages: Path, name: str, record: str) -> None:
    directory = packages / f"{name.replace('-', '_')}-4.8.1.dist-info"
    directory.mkdir(exist_ok=True)
    (directory / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 4.8.1\n")
    (directory / "RECORD").write_text(record)


def stack() -> str:
    return cute_dsl_stack(ProbeContext({})).value


def test_the_stack_differs_with_a_wheels_record(packages: Path) -> None:
    with pytest.raises(ComponentAbsent, match="nvidia-cutlass-dsl is not installed"):
        stack()
    add_wheel(packages, "nvidia-cutlass-dsl", "cutlass/__init__.py,,\n")
    add_wheel(packages, "idle", "x,,\n")
    plain = stack()
    assert "nvidia-cutlass-dsl 4.8.1 " in plain
    assert "idle" not in plain
    add_wheel(packages, "nvidia-cutlass-dsl", "cutlass/__init__.py,,\ncutlass/__init__.pyc,,\n")
    byte_compiled = stack()
    add_wheel(packages, "nvidia-cutlass-dsl-libs-cu13", "x,,\n")
    assert len({plain, byte_compiled, stack()}) == 3


@pytest.mark.parametrize(
    ("installed", "driver", "flavor"),
    [
        ((12, 13), 13, "cu13"),
        ((12, 13), 14, "cu13"),
        ((12, 13), 12, "cu12"),
        ((12, 13), None, "cu13"),
        ((12,), 13, "cu12"),
    ],
)
def test_the_flavor_is_the_newest_that_the_driver_runs(
    packages: Path,
    monkeypatch: pytest.MonkeyPatch,
    installed: tuple[int, ...],
    driver: int | None,
    flavor: str,
) -> None:
    libraries = packages / "cutlass" / "_mlir" / "_mlir_libs"
    libraries.mkdir(parents=True)
    (packages / "cutlass" / "__init__.py").write_text("")
    for number in installed:
        (libraries / f"_cutlass_ir.cu{number}.cpython-311-x86_64-linux-gnu.so").touch()

    def ask(*_: object, **__: object) -> object:
        if driver is None:
            raise CannotProbe("no libcuda.so.1")
        return {"cuda_major": driver}

    monkeypatch.setattr(gpu, "run_for_json", ask)
    assert cute_dsl_flavor(ProbeContext({})).value == flavor


def test_no_flavor_that_the_driver_runs_is_an_error(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries = packages / "cutlass" / "_mlir" / "_mlir_libs"
    libraries.mkdir(parents=True)
    (packages / "cutlass" / "__init__.py").write_text("")
    with pytest.raises(ComponentAbsent, match="one compiler for all drivers"):
        cute_dsl_flavor(ProbeContext({}))
    (libraries / "_cutlass_ir.cu13.cpython-311-x86_64-linux-gnu.so").touch()
    monkeypatch.setattr(gpu, "run_for_json", lambda *_, **__: {"cuda_major": 12})
    with pytest.raises(CannotProbe, match="the driver is for CUDA 12"):
        cute_dsl_flavor(ProbeContext({}))
