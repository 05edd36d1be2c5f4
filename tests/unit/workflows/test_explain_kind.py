"""What is said of sources that a fetch of a kind would use or leave."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from mx_artifacts.artifacts.labels import ROOT_LABEL
from mx_artifacts.artifacts.target.explain import Candidate
from mx_artifacts.artifacts.target.suitability import SourceWanted, Verdict
from mx_artifacts.artifacts.transport_labels import transport_labels
from mx_artifacts.client.central import CentralClient
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.workflows.explain_kind import (
    RootHere,
    explain_kind,
    field_differences,
    needs_nixl,
    roots_here,
    unlike_roots,
)
from mx_artifacts.workflows.selected_kind import SelectedKind
from tests.support.workflow_fakes import FakeCentral, probed, stored

TRITON = get_kind("triton")


@pytest.fixture(autouse=True)
def _no_quarantine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MX_STATE_DIR", str(tmp_path / "state"))


def explained(
    selected: SelectedKind,
    *accelerators: str,
    wanted: str = "",
    labels: dict[str, str] | None = None,
) -> dict[str, bool]:
    """Map the worker of each source, named by its accelerator, to whether it would be used."""
    ours = probed(selected, accelerator="cuda")
    server = FakeCentral(
        [stored(ours.identity, each, accelerator=each, topology=labels) for each in accelerators]
    )
    found = explain_kind(
        cast(CentralClient, server), selected, ours, SourceWanted(accelerator=wanted)
    )
    return {each.stored.worker_id: each.fits for each in found.candidates}


def test_the_accelerator_of_the_identity_counts_if_none_is_stated() -> None:
    selected = SelectedKind(TRITON, {"": Path("/root")})
    assert explained(selected, "cuda", "rocm") == {"cuda": True, "rocm": False}
    assert explained(selected, "cuda", "rocm", wanted="rocm") == {"cuda": False, "rocm": True}


def test_a_cache_of_another_root_that_cannot_be_adapted_is_not_used(tmp_path: Path) -> None:
    stuck = replace(TRITON.roots[0], relocation_obstacle=lambda: "no tool")
    selected = SelectedKind(replace(TRITON, roots=(stuck,)), {"": tmp_path})
    assert explained(selected, "cuda", labels={ROOT_LABEL: "/elsewhere"}) == {"cuda": False}
    assert explained(selected, "cuda", labels={ROOT_LABEL: str(tmp_path)}) == {"cuda": True}
    assert explained(SelectedKind(TRITON, {"": tmp_path}), "cuda", labels={ROOT_LABEL: "/x"}) == {
        "cuda": True
    }


def test_a_root_with_an_unknown_path_excludes_no_source() -> None:
    generic = SelectedKind(get_kind("generic"))
    assert explained(generic, "cuda", labels={ROOT_LABEL: "/elsewhere"}) == {"cuda": True}
    (root,) = roots_here(generic)
    assert (root.label, root.path) == ("generic", None)
    assert root.error is not None


def candidate(differences: dict[str, tuple[str, str]], **labels: str) -> Candidate:
    of_record = stored(probed(SelectedKind(TRITON)).identity, "w", topology=labels)
    return Candidate(of_record, Verdict(differences))


def test_a_value_that_only_this_nodes_profile_has_is_explained_by_the_profile() -> None:
    strict = TRITON.strict_parameters[0]
    found = field_differences(
        TRITON,
        candidate({f"extra_parameters.{strict}": ("1", ""), "gpu_arch": ("sm90", "sm80")}),
    )
    assert [(each.field, each.here, each.there) for each in found] == [
        (strict, "1", ""),
        ("gpu_arch", "sm90", "sm80"),
    ]
    assert ["--profile reference" in each.advice for each in found] == [True, False]
    (stated,) = field_differences(TRITON, candidate({f"extra_parameters.{strict}": ("1", "2")}))
    assert "--profile" not in stated.advice


@pytest.mark.parametrize(
    ("theirs", "policy", "needs"),
    [
        (("nixl",), "stream", True),
        (("nixl",), "nixl", False),
        (("nixl", "stream"), "stream", False),
        (None, "stream", True),  # the reference, which does not say
    ],
)
def test_sources_that_are_read_by_nixl_only(
    theirs: tuple[str, ...] | None, policy: str, needs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MX_TRANSPORT", policy)
    labels = transport_labels(theirs) if theirs else {}
    assert needs_nixl(candidate({}, **labels)) is needs


def test_roots_that_are_elsewhere_at_the_source() -> None:
    here = roots_here(SelectedKind(TRITON, {"": Path("/here")}))
    assert here == [RootHere("triton", Path("/here"), "--root")]
    assert unlike_roots(TRITON, candidate({}, **{ROOT_LABEL: "/there"}), here) == [
        (here[0], "/there")
    ]
    assert unlike_roots(TRITON, candidate({}, **{ROOT_LABEL: "/here"}), here) == []
    nowhere = [replace(here[0], path=None)]
    assert unlike_roots(TRITON, candidate({}, **{ROOT_LABEL: "/there"}), nowhere) == []
