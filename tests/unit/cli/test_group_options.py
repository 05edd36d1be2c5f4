"""The options of groups: what is refused, what a member is called, who is warned."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from mx_artifact_cli.fetch.group_options import GroupOptions
from mx_artifact_cli.output import Output
from mx_artifact_cli.progress import progress
from mx_artifacts.artifacts.target.group_member import GroupWanted
from mx_artifacts.observability.catalogue import GroupWaiting
from tests.support.cli import RunCli, runner
from tests.support.made_up_node import Node, made_up_node

FETCH = ("fetch-and-install", "--model", "m", "--server", "127.0.0.1:1", "--format", "json")
SIZES = [
    word
    for name in ("tensor_parallel_size", "pipeline_parallel_size", "expert_parallel_size")
    for word in ("--identity", f"{name}=2")
]
OPTIONS = GroupOptions("g", 2, None, 600.0)


def wanted(
    options: GroupOptions, node_rank: int | None = None, worker_rank: int | None = None
) -> GroupWanted | None:
    return options.wanted(node_rank=node_rank, worker_rank=worker_rank)


@pytest.fixture(name="run")
def _run(capsys: pytest.CaptureFixture[str]) -> RunCli:
    return runner(capsys)


@pytest.fixture(autouse=True)
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.delenv("POD_NAME", raising=False)
    yield from made_up_node(monkeypatch)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--group", "g"), "must be used together"),
        (("--group-size", "2"), "must be used together"),
        (("--group", "g h", "--group-size", "2"), "--group is 'g h'"),
        (("--group", "g", "--group-size", "0"), "--group-size is '0'"),
        (("--group", "g", "--group-size", "257"), "--group-size is '257'"),
        (("--group", "g", "--group-size", "2", "--group-member", "a b"), "--group-member is"),
        (("--group", "g", "--group-size", "2", "--group-timeout", "0"), "--group-timeout is"),
        (("--group", "g", "--group-size", "2", "--kind", "all"), "cannot agree"),
    ],
)
def test_invalid_options_of_a_group_are_refused(
    args: tuple[str, ...], message: str, run: RunCli
) -> None:
    kind = () if "--kind" in args else ("--kind", "triton")
    ended = run(*FETCH, *kind, *args)
    assert ended.code == 2
    assert message in ended.error["message"]
    assert ended.error["hint"]


def test_the_member_id_of_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    host = socket.gethostname()
    assert wanted(OPTIONS) == GroupWanted("g", 2, host, 600.0)
    assert wanted(OPTIONS, 0, 3) == GroupWanted("g", 2, f"{host}.node0.worker3", 600.0)
    monkeypatch.setenv("POD_NAME", "engine-1")
    assert wanted(OPTIONS) == GroupWanted("g", 2, "engine-1", 600.0)
    named = wanted(replace(OPTIONS, group_member="me"), 0, 3)
    assert named is not None
    assert named.member_id == "me"


@pytest.mark.parametrize("name", ["g", None])
def test_a_group_of_one_has_no_others(name: str | None) -> None:
    options = replace(OPTIONS, group=name, group_size=1)
    options.check()
    alone = wanted(options)
    assert alone is not None
    assert alone.size == 1
    assert wanted(replace(OPTIONS, group=None, group_size=None)) is None


@pytest.mark.parametrize(
    ("args", "warned"),
    [
        ((), True),
        (("--dry-run",), True),
        (("--group-size", "1"), False),
        (("--group", "g", "--group-size", "2"), False),
    ],
)
def test_autotune_on_one_node_is_warned_of(
    args: tuple[str, ...], warned: bool, run: RunCli, tmp_path: Path
) -> None:
    roots = ("--root", f"flashinfer/autotune={tmp_path}", "--root", f"flashinfer={tmp_path / 'f'}")
    ended = run(*FETCH, "--kind", "flashinfer", "--framework", "vllm", *SIZES, *roots, *args)
    assert ended.code == 14  # nobody listens there
    said = [line for line in ended.err.splitlines() if '"warning"' in line]
    assert len(said) == (1 if warned else 0)
    assert all("30 minutes" in line and "--group NAME" in line for line in said)
    without = run(*FETCH, "--kind", "flashinfer", "--framework", "vllm", *roots[2:])
    assert '"warning"' not in without.err


def test_each_reason_for_waiting_is_printed_once(capsys: pytest.CaptureFixture[str]) -> None:
    event = GroupWaiting("g", "group g: 1 of 2 members came: a (staged)")
    with progress(Output()) as sink:
        sink(event)
        sink(event)
    assert capsys.readouterr().err == "waiting: group g: 1 of 2 members came: a (staged)\n"
