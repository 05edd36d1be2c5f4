"""Values that make no sense: exit code 2, named, bounded, with the next step, before any work."""

from __future__ import annotations

import pytest

from mx_artifacts.errors import ConfigurationError
from mx_artifacts.transport.registry import open_transport
from tests.support.cli import RunCli, runner

SERVER = ("--server", "127.0.0.1:1")  # nobody listens: whoever asks it ends with 14
PUBLISH = ("publish", "--kind", "triton", *SERVER)
FETCH = ("fetch-and-install", "--kind", "triton", *SERVER)
WHY = ("why", "--kind", "triton", *SERVER)
LIST = ("sources", "list", *SERVER)
NOT_UTF8 = "\udcff\udcfe"


@pytest.fixture(name="run")
def _run(capsys: pytest.CaptureFixture[str]) -> RunCli:
    return runner(capsys)


@pytest.mark.parametrize("verb", [PUBLISH, FETCH, WHY, LIST], ids=lambda verb: verb[0])
@pytest.mark.parametrize("name", [NOT_UTF8, "a\x1b[2J", "a\nb", "x" * 1025, " "])
def test_a_model_name(verb: tuple[str, ...], name: str, run: RunCli) -> None:
    ended = run(*verb, "--model", name, "--format", "json")
    assert ended.code == 2
    assert ended.error["message"].startswith("--model is ")
    assert len(ended.error["message"]) < 500
    assert ended.error["hint"]


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ((*PUBLISH, "--model", "m", "--accelerator", "foo"), "--accelerator"),
        ((*FETCH, "--model", "m", "--accelerator", "foo"), "--accelerator"),
        ((*FETCH, "--model", "m", "--artifact-id", "abc"), "--artifact-id"),
        (("inspect", "--source-id", "s", *SERVER, "--artifact-id", "abc"), "--artifact-id"),
        (("inspect", "--source-id", NOT_UTF8, *SERVER), "--source-id"),
        (("inspect", "--source-id", "s", *SERVER, "--worker-id", NOT_UTF8), "--worker-id"),
        (("sources", "show", NOT_UTF8, *SERVER), "SOURCE_ID"),
        (("sources", "show", "s", NOT_UTF8, *SERVER), "WORKER_ID"),
        (("sources", "list", "--server", f"{NOT_UTF8}:1"), "--server"),
        (("serve", "--host", NOT_UTF8), "--host"),
        (("serve", "--backend", NOT_UTF8), "--backend"),
    ],
)
def test_other_values(args: tuple[str, ...], named: str, run: RunCli) -> None:
    ended = run(*args, "--format", "json")
    assert ended.code == 2
    assert named in ended.error["message"]
    assert ended.error["hint"]


@pytest.mark.parametrize("family", ["cuda", "CPU"])
def test_an_accelerator_family_is_taken_in_any_case(family: str, run: RunCli) -> None:
    assert run(*LIST).code == 14
    stated = ("--identity", "gpu_arch=sm90", "--identity", "cuda_version=12")
    stated += ("--identity", "triton_version=3", "--identity", "triton_key=k")
    assert run(*FETCH, "--model", "m", *stated, "--accelerator", family).code == 14


@pytest.mark.parametrize(
    ("name", "value"),
    [("MX_TRANSPORT", "foo"), ("MX_TRANSPORT", "inproc"), ("MX_NIXL_BACKEND", "GDS")],
)
def test_a_data_plane_that_does_not_reach_other_nodes(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=repr(value)) as caught:
        open_transport()
    assert name in caught.value.hint()
