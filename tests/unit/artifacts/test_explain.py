"""Why a source is not used: the fields that differ, and what to do about each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import cast

import pytest

from mx_artifacts.artifacts.target import explain as explain_module
from mx_artifacts.artifacts.target import record_reader
from mx_artifacts.artifacts.target.explain import (
    MAX_EXPLAINED,
    Candidate,
    Explanation,
    explain_sources,
)
from mx_artifacts.artifacts.target.suitability import SourceWanted, Target
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.identity import SourceIdentity, SourceType, compute_mx_source_id
from mx_artifacts.core.sources import (
    ArtifactSummary,
    SourceQuery,
    SourceRef,
    SourceStatus,
    StoredWorker,
    WorkerRecord,
)
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.identity.values import advice_for
from mx_artifacts.kinds.inductor.vllm_factor_files import advice_for_factor, compare_factor_files
from mx_artifacts.kinds.registry import all_kinds, get_kind

HERE = SourceIdentity(
    mx_source_type=SourceType.TORCH_COMPILE_CACHE,
    model_name="m",
    gpu_arch="sm120",
    torch_version="2.14",
    extra_parameters={"max_num_batched_tokens": "1024"},
)


class Server:
    """A central server that knows one ready source an identity."""

    def __init__(self, *identities: SourceIdentity, **record: object) -> None:
        self.stored = {
            compute_mx_source_id(each): StoredWorker(
                compute_mx_source_id(each),
                "w",
                each,
                WorkerRecord(
                    status=SourceStatus.READY,
                    artifact=ArtifactSummary("a", 1, 1, 1),
                    **{"worker_grpc_endpoint": "w:1", **record},  # type: ignore[arg-type]
                ),
            )
            for each in identities
        }

    def list_sources(self, query: SourceQuery) -> list[SourceRef]:
        assert query.status is SourceStatus.READY
        assert query.limit is None  # or what it says of the kind would rest on a cut list
        return [
            SourceRef(s.mx_source_id, s.worker_id, s.identity.model_name, 0)
            for s in self.stored.values()
            if query.model_name in (None, s.identity.model_name)
        ]

    def get_metadata(self, mx_source_id: str, worker_id: str) -> StoredWorker | None:
        return self.stored.get(mx_source_id)


def explain(
    *identities: SourceIdentity,
    accelerator: str = "",
    refused: Mapping[str, str] = MappingProxyType({}),
    **record: object,
) -> tuple[Candidate, ...]:
    return explained(Server(*identities, **record), accelerator, refused).candidates


def explained(
    server: Server, accelerator: str = "", refused: Mapping[str, str] = MappingProxyType({})
) -> Explanation:
    target = Target(HERE, SourceWanted(accelerator=accelerator), refused)
    return explain_sources(cast(CentralClient, server), target)


def test_an_artifact_that_is_refused_here_does_not_fit() -> None:
    (found,) = explain(HERE, refused={"a": "a is quarantined"})
    assert (found.fits, found.verdict.refusal) == (False, "a is quarantined")


@pytest.mark.parametrize("endpoint", ["unix:/run/engine.sock", "dns://8.8.8.8/w:1", "\x1b" * 10**6])
def test_a_source_whose_endpoint_is_not_host_and_port_is_not_used(endpoint: str) -> None:
    (found,) = explain(HERE, worker_grpc_endpoint=endpoint)
    assert not found.fits
    assert "is not host:port" in found.verdict.obstacle
    assert len(found.verdict.obstacle) < 300
    assert found.verdict.obstacle.isprintable()


def test_a_source_that_fits_comes_first_and_differs_in_nothing() -> None:
    near = HERE.with_fields(gpu_arch="sm86")
    found = explain(near, HERE)
    assert [each.fits for each in found] == [True, False]
    assert found[1].differences == {"gpu_arch": ("sm120", "sm86")}


def test_the_nearest_comes_first() -> None:
    far = HERE.with_fields(gpu_arch="sm86", torch_version="2.13")
    near = HERE.with_fields(extra_parameters={"max_num_batched_tokens": "8192"})
    found = explain(far, near)
    assert [len(each.differences) for each in found] == [1, 2]
    assert found[0].differences == {"extra_parameters.max_num_batched_tokens": ("1024", "8192")}


def test_sources_of_other_models_are_shown_if_none_serves_this_model() -> None:
    other = HERE.with_fields(model_name="/models/m")
    (found,) = explain(other)
    assert found.differences == {"model_name": ("m", "/models/m")}
    assert len(explain(other, HERE)) == 1


def test_other_kinds_are_no_candidates() -> None:
    generic = HERE.with_fields(extra_parameters={"mx_kind": "generic"})
    assert explain(generic, HERE.with_fields(mx_source_type=SourceType.TRITON_CACHE)) == ()


def test_a_type_without_a_name_is_passed_over_with_a_reason() -> None:
    later = HERE.with_fields(mx_source_type=10)
    found = explained(Server(later, HERE.with_fields(backend_framework=7)))
    assert found.passed_over == {
        f"{compute_mx_source_id(later)}/w": "it serves type 10, which this version does not know"
    }
    (candidate,) = found.candidates
    assert candidate.differences == {"backend_framework": ("", "framework 7")}


def test_a_server_that_keeps_no_identities_is_said_so() -> None:
    server = Server(HERE.with_fields(gpu_arch="sm86"))
    (source_id,) = server.stored
    server.stored[source_id] = replace(server.stored[source_id], identity=SourceIdentity())
    found = explained(server)
    assert found.candidates == ()
    assert "does not tell its identity" in found.passed_over[f"{source_id}/w"]


def test_of_other_models_some_are_read_and_the_rest_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(explain_module, "MAX_OTHER_MODELS", 3)
    found = explained(Server(*(HERE.with_fields(model_name=f"m{n}") for n in range(5))))
    assert (len(found.candidates), found.not_looked_at) == (3, 2)


def test_records_are_read_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that lists sources without end holds nobody up."""
    monkeypatch.setattr(record_reader, "MAX_RECORDS", 4)
    server = Server(*(HERE.with_fields(torch_version=f"2.{n}") for n in range(10)))
    asked: list[str] = []
    read = server.get_metadata

    def get_metadata(mx_source_id: str, worker_id: str) -> StoredWorker | None:
        asked.append(mx_source_id)
        return read(mx_source_id, worker_id)

    monkeypatch.setattr(server, "get_metadata", get_metadata)
    found = explained(server)
    assert (len(asked), len(found.candidates), found.not_looked_at) == (4, 4, 6)


def test_another_accelerator_is_a_reason() -> None:
    (found,) = explain(HERE, accelerator="cuda")
    assert found.fits
    (found,) = explained(Server(HERE, accelerator="rocm"), accelerator="cuda").candidates
    assert found.differences == {"accelerator": ("cuda", "rocm")}


def test_the_answer_is_bounded() -> None:
    many = [HERE.with_fields(torch_version=f"2.{n}") for n in range(MAX_EXPLAINED + 5)]
    assert len(explain(*many)) == MAX_EXPLAINED


def test_roots_that_a_source_states() -> None:
    labels = {"mx_artifacts.root": "/a", "mx_artifacts.root.autotune": "/b", "rack": "r1"}
    (found,) = explain(HERE, topology=labels)
    assert isinstance(found, Candidate)
    assert found.roots == {"": "/a", "autotune": "/b"}


def test_every_field_has_advice_of_its_own() -> None:
    for kind in all_kinds():
        for name in (
            *kind.identity_fields,
            *kind.engine_fields,
            *(f"extra_parameters.{n}" for n in (*kind.extra_parameters, *kind.strict_parameters)),
        ):
            assert "state the same --identity" not in advice_for(kind, name)
    triton = get_kind("triton")
    general = advice_for(triton, "extra_parameters.spec_tokens")
    assert general.startswith("state the same --identity spec_")
    assert "--model" in advice_for(triton, "model_name")


# --- vLLM's factors -------------------------------------------------------------------------------

FACTORS = {
    "env": {"VLLM_HOST_IP": "10.0.0.1", "VLLM_USE_V1": True},
    "config_hash": "a1",
    "code_hash": "c1",
    "compiler_hash": "d1",
}


def write(path: Path, factors: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(factors))
    return path


def test_factors_that_differ(tmp_path: Path) -> None:
    here = write(tmp_path / "here.json", FACTORS)
    changed = {**FACTORS, "env": {"VLLM_HOST_IP": "10.0.0.2"}, "config_hash": "a2"}
    there = write(tmp_path / "there/0a1b2c3d4e/rank_0_0/x/cache_key_factors.json", changed)
    assert compare_factor_files(here, there.parents[3]) == {
        "config_hash": ("a1", "a2"),
        "env.VLLM_HOST_IP": ("10.0.0.1", "10.0.0.2"),
        "env.VLLM_USE_V1": ("true", "not there"),
    }
    assert compare_factor_files(here, here) == {}
    assert "environment variable" in advice_for_factor("env.VLLM_HOST_IP")


def test_the_files_of_one_caches_ranks_are_one(tmp_path: Path) -> None:
    for rank in range(8):
        write(tmp_path / f"0a1b2c3d4e/rank_{rank}_0/backbone/cache_key_factors.json", FACTORS)
    other = write(tmp_path / "other.json", {**FACTORS, "code_hash": "c2"})
    assert compare_factor_files(tmp_path, other) == {"code_hash": ("c1", "c2")}


def test_factors_that_cannot_be_compared(tmp_path: Path) -> None:
    file = write(tmp_path / "f.json", FACTORS)
    for name in ("a", "b"):
        write(tmp_path / "two" / name / "cache_key_factors.json", {**FACTORS, "code_hash": name})
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ConfigurationError, match=r"has 2 different files .*a/cache_key_factors"):
        compare_factor_files(file, tmp_path / "two")
    with pytest.raises(ConfigurationError, match="has no file"):
        compare_factor_files(file, empty)
    with pytest.raises(ConfigurationError, match="no JSON object"):
        compare_factor_files(file, write(tmp_path / "list.json", [1]))
    (tmp_path / "cut.json").write_text('{"env": {')
    with pytest.raises(ConfigurationError, match="cannot be read"):
        compare_factor_files(file, tmp_path / "cut.json")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        compare_factor_files(file, tmp_path / "absent.json")
