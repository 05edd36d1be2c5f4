"""An artifact between its source's roots and a target's, without the network in between."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from mx_artifacts.artifacts import tarred
from mx_artifacts.artifacts.factories import transfer_of_kind
from mx_artifacts.artifacts.protocol import ArtifactCacheRoot
from mx_artifacts.artifacts.tarred import TarredP2PArtifactTransfer
from mx_artifacts.core.identity import SourceType
from mx_artifacts.errors import InstallVerificationError
from mx_artifacts.install.base import InstallReport
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.transfer.engine import TransferLimits
from tests.support.install_cases import contents, fill, leftovers
from tests.support.packing import SETTLED
from tests.support.staged import received

BASE_NS = 1_600_000_000_123_456_789


def move(kind_name: str, tmp_path: Path, *root_names: str) -> InstallReport:
    """Publish `warm<name>` of each root and install it as `cold<name>`."""
    kind = get_kind(kind_name)
    source, target = (
        transfer_of_kind(
            kind,
            bundle_root=tmp_path / "bundles",
            roots={name: tmp_path / f"{where}{name}" for name in root_names},
        )
        for where in ("warm", "cold")
    )
    return target.install(received(source, target))


def aged(root: Path) -> Path:
    """Give each file a time of its own, to the nanosecond, long before now."""
    for number, path in enumerate(sorted(root.rglob("*"))):
        os.utime(path, ns=(BASE_NS + number, BASE_NS + number))
    return root


def test_one_byte_that_changes_between_transfer_and_install(tmp_path: Path) -> None:
    """Pain 4.5: what was staged is written to. Nothing of it reaches the root."""
    fill(tmp_path / "warm", {"a/x.bin": os.urandom(5000), "a/y.bin": b"touched"})
    source, target = (
        transfer_of_kind(
            get_kind("generic"), bundle_root=tmp_path / "b", roots={"": tmp_path / where}
        )
        for where in ("warm", "cold")
    )
    staged = received(source, target)
    (staging,) = staged.stagings
    os.utime(staging.directory / "a" / "y.bin")  # which changes no byte
    with (staging.directory / "a" / "x.bin").open("r+b") as file:
        file.seek(2500)
        byte = file.read(1)
        file.seek(2500)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(InstallVerificationError, match=r"x\.bin is not what was received"):
        target.install(staged)
    assert not (tmp_path / "cold").exists()
    assert leftovers(tmp_path / "cold") == []


def test_every_mtime_arrives_to_the_nanosecond(tmp_path: Path) -> None:
    """Pain 3.1, for what no fix-up retimes."""
    warm = aged(fill(tmp_path / "warm", {f"d{n}/f": b"x" for n in range(20)}))
    move("generic", tmp_path, "")
    times = {p.relative_to(warm): p.stat().st_mtime_ns for p in warm.rglob("f")}
    cold = tmp_path / "cold"
    assert {p.relative_to(cold): p.stat().st_mtime_ns for p in cold.rglob("f")} == times
    assert len(set(times.values())) == 20


def test_autotune_files_of_each_rank_arrive_as_they_are(tmp_path: Path) -> None:
    """Pain 1.4 and 11.5: their contents differ by rank, and their names say which."""
    ranks = {f"0.7.4/90a/1f/autotune_configs_dp0_rank{r}.json": b'{"r": %d}' % r for r in range(8)}
    module = "0.7.4/90a/cached_ops/page_90a_cute_dsl"
    code = {f"{module}/page.o": b"o", f"{module}/meta.json": b"{}"}
    aged(fill(tmp_path / "warm", code))
    aged(fill(tmp_path / "warmautotune", ranks))
    report = move("flashinfer", tmp_path, "", "autotune")
    assert contents(tmp_path / "coldautotune") == ranks
    assert [root.installed for root in report.roots] == [tuple(sorted(code)), tuple(sorted(ranks))]


def test_the_kind_decides_which_files_are_left_out(tmp_path: Path) -> None:
    """Pain 5.1: the list is each kind's own, and a caller may give another."""
    generic = get_kind("generic")
    root = aged(fill(tmp_path / "warm", {"x.lock": b"", "block.cubin": b"code", "y.log": b"l"}))
    for exclude, expected in (
        (generic.pack.exclude, {"block.cubin", "y.log"}),
        (("*.log",), {"block.cubin", "x.lock"}),
    ):
        kind = replace(generic, pack=replace(generic.pack, exclude=exclude))
        transfer = transfer_of_kind(kind, bundle_root=tmp_path / "b", roots={"": root})
        bundle = replace(transfer, clock=SETTLED).prepare_source()
        (packed,) = bundle.roots
        assert set(packed.report.paths) == expected
        bundle.close()


def test_sealing_again_gives_the_same_as_sealing(tmp_path: Path) -> None:
    roots = {"": tmp_path / "warm"}
    fill(roots[""], {"a/x": b"1", "b": b"2"})
    source = transfer_of_kind(get_kind("generic"), bundle_root=tmp_path / "bundles", roots=roots)
    source = replace(source, clock=SETTLED)
    first = source.prepare_source()
    (roots[""] / "one-more").write_bytes(b"new")
    again, fresh = source.prepare_source(first), source.prepare_source()
    assert again.manifest == fresh.manifest != first.manifest
    for path, bundle in fresh.bundles.items():
        assert bytes(again.bundles[path].view) == bytes(bundle.view)
    for each in (first, again, fresh):
        each.close()


def test_values_that_the_caller_does_not_state_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it does for `ArtifactFetcher`: for `discover_and_transfer` and its siblings."""
    assert tarred._limits(None, None) == TransferLimits(300.0, 4)
    for name, value in {
        "MX_TRANSFER_TIMEOUT": "7",
        "MX_ARTIFACT_SLOTS": "8",
        "MX_ARTIFACT_MAX_RATE": "1MiB",
        "MX_ARTIFACT_COMPRESSION": "none",
    }.items():
        monkeypatch.setenv(name, value)
    common = {"max_bytes_per_second": 1 << 20, "compression": "none"}
    assert tarred._limits(None, None) == TransferLimits(7.0, 8, **common)  # type: ignore[arg-type]
    assert tarred._limits(1.0, 2) == TransferLimits(1.0, 2, **common)  # type: ignore[arg-type]
    monkeypatch.setenv("MX_ARTIFACT_TRANSFER_CHUNK_SIZE", "1KiB")
    fill(tmp_path / "warm", {"entry": os.urandom(5000)})
    root = ArtifactCacheRoot("triton", tmp_path / "warm", tmp_path / "cold")
    kind = get_kind("generic")
    transfer = TarredP2PArtifactTransfer(
        *("triton", SourceType.TRITON_CACHE, (root,), tmp_path / "bundles"),
        kind=kind,
        clock=SETTLED,
    )
    bundle = transfer.prepare_source()
    assert bundle.manifest.chunk_size == 1024
    bundle.close()
