"""What a source says of its roots, and what a target makes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from mx_artifacts.artifacts.labels import root_labels, root_objection
from mx_artifacts.artifacts.protocol import ArtifactCacheRoot
from mx_artifacts.core.identity import BackendFramework
from mx_artifacts.kinds.registry import get_kind

KIND = get_kind("flashinfer")
ROOTS = (
    ArtifactCacheRoot("flashinfer", Path("/warm"), Path("/cold")),
    ArtifactCacheRoot("autotune", Path("/warm/tune"), Path("/cold/tune"), optional=True),
)
LABELS = {"mx_artifacts.root": "/warm", "mx_artifacts.root.autotune": "/warm/tune"}
NO_ENGINE = BackendFramework.UNKNOWN
ENV = {"HOME": "/root", "FLASHINFER_WORKSPACE_BASE": "/base"}
STUCK = replace(
    KIND, roots=(replace(KIND.roots[0], relocation_obstacle=lambda: "no tool"), KIND.roots[1])
)


def test_labels_have_roots_without_links(tmp_path: Path) -> None:
    assert root_labels(ROOTS) == LABELS
    (tmp_path / "link").symlink_to(tmp_path / "real")
    linked = ArtifactCacheRoot("flashinfer", tmp_path / "link", Path("/cold"))
    assert root_labels([linked]) == {"mx_artifacts.root": str(tmp_path / "real")}


def test_only_a_root_that_differs_and_cannot_be_adapted_is_objected_to() -> None:
    objection = root_objection(STUCK, ROOTS, LABELS, ENV, NO_ENGINE)
    assert "its cache root is /warm, here it is /cold (stated)" in objection
    assert objection.endswith("no tool")
    assert root_objection(KIND, ROOTS[1:], LABELS, ENV, NO_ENGINE) == ""  # no ninja there
    assert root_objection(STUCK, ROOTS, {"mx_artifacts.root": "/cold"}, ENV, NO_ENGINE) == ""
    assert (
        root_objection(STUCK, ROOTS, {}, ENV, NO_ENGINE) == ""
    )  # the reference's sources do not say


def test_the_variable_that_decided_is_named() -> None:
    here = ArtifactCacheRoot("flashinfer", Path(), Path("/base/.cache/flashinfer"))
    assert "(FLASHINFER_WORKSPACE_BASE)" in root_objection(STUCK, [here], LABELS, ENV, NO_ENGINE)
