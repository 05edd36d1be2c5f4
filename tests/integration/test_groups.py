"""GroupService of real central servers: several over one backend, many members, none at all."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent import futures
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from mx_artifacts.artifacts.target.fetch_values import FetcherSettings
from mx_artifacts.artifacts.target.group_member import GroupWanted
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.groups import MemberReport, Phase, Progress
from mx_artifacts.core.identity import SourceIdentity, SourceType
from mx_artifacts.errors import (
    BackendUnavailableError,
    ConfigurationError,
    ConflictError,
    RecordNotFoundError,
    RemoteError,
)
from mx_artifacts.fetcher import ArtifactFetcher
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.server.app import ServerConfig
from mx_artifacts.transport.base import Transport
from tests.support.central import running_central
from tests.support.valkey import RedisProcess, running, valkey_binary

A = MemberReport("g:triton", 2, "a", "a1")
B = MemberReport("g:triton", 2, "b", "b1")


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisProcess]:
    with running(valkey_binary(), tmp_path_factory.mktemp("valkey")) as process:
        yield process


@pytest.fixture
def valkey(process: RedisProcess) -> RedisProcess:
    process.reset()
    return process


@pytest.fixture
def client() -> Iterator[CentralClient]:
    with (
        running_central(ServerConfig(port=0, group_presence_seconds=3)) as address,
        closing(CentralClient(address)) as client,
    ):
        yield client


def test_members_of_two_servers_on_one_backend_agree(valkey: RedisProcess) -> None:
    with ExitStack() as stack:
        config = ServerConfig(port=0, backend_url=valkey.url)
        servers = [stack.enter_context(running_central(config)) for _ in range(2)]
        a, b = (stack.enter_context(closing(CentralClient(server))) for server in servers)
        round_id = a.report_to_group(A).round.round_id
        assert b.report_to_group(B).round.round_id == round_id
        a.report_to_group(replace(A, round_id=round_id, progress=Progress.STAGED))
        told = b.report_to_group(replace(B, round_id=round_id, progress=Progress.STAGED)).round
        assert told.phase is Phase.COMMIT
        for client, report in ((a, A), (b, B)):
            moved = replace(report, round_id=round_id, progress=Progress.MOVED, roots=("triton",))
            told = client.report_to_group(moved).round
        assert told.phase is Phase.DONE
        assert a.report_to_group(replace(A, round_id=round_id)).round == told
        assert 0 < valkey.client.pttl("mx:group:g:triton") <= 600_000
        valkey.client.set("mx:group:g:triton", "garbage")
        with pytest.raises(RecordNotFoundError):
            a.report_to_group(replace(A, round_id=round_id))
        assert a.report_to_group(A).round.phase is Phase.OPEN
        valkey.kill()
        with pytest.raises(BackendUnavailableError):
            a.report_to_group(A)


def test_many_members_at_once(client: CentralClient) -> None:
    size = 32
    reports = [MemberReport("many:triton", size, f"m{n}", f"i{n}") for n in range(size)]
    with ThreadPoolExecutor(size) as threads:
        joined = list(threads.map(client.report_to_group, reports))
        (round_id,) = {answer.round.round_id for answer in joined}
        for progress, phase in ((Progress.STAGED, Phase.COMMIT), (Progress.MOVED, Phase.DONE)):
            said = [replace(each, round_id=round_id, progress=progress) for each in reports]
            answers = list(threads.map(client.report_to_group, said))
            assert max(answer.round.phase for answer in answers) is phase
    assert {answer.presence_seconds for answer in joined} == {3.0}


def test_refusals_keep_their_kind_on_the_wire(client: CentralClient) -> None:
    round_ = client.report_to_group(A).round
    with pytest.raises(ConflictError, match="running member a"):
        client.report_to_group(replace(A, instance_id="a2"))
    with pytest.raises(ConfigurationError, match="size 2"):
        client.report_to_group(replace(B, size=3))
    with pytest.raises(ConfigurationError, match="name is 'x y'"):
        client.report_to_group(replace(A, group="x y:triton"))
    with pytest.raises(RecordNotFoundError, match="no round"):
        client.report_to_group(replace(B, round_id=round_.round_id))
    failed = replace(A, round_id=round_.round_id, progress=Progress.FAILED, reason="no space")
    told = client.report_to_group(failed).round
    assert (told.phase, told.reason) == (Phase.ABORTED, "member a failed: no space")


def test_a_central_server_without_groups_is_named_before_anything_is_asked_for(
    tmp_path: Path,
) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    identity = SourceIdentity(mx_source_type=SourceType.TRITON_CACHE, model_name="m")
    try:
        with (
            closing(CentralClient(f"127.0.0.1:{port}")) as client,
            ArtifactFetcher(
                client=client,
                settings=FetcherSettings.from_environment(env={}, bundle_root=tmp_path),
                transport_factory=no_transport,
            ) as fetcher,
            pytest.raises(RemoteError, match="does not support groups") as caught,
        ):
            fetcher.fetch_and_install(
                get_kind("triton"), identity, {"": tmp_path / "r"}, group=GroupWanted("g", 2, "a")
            )
        assert caught.value.exit_code == 14
        assert "--group" in caught.value.hint()
        assert not (tmp_path / "r").exists()
    finally:
        server.stop(0).wait()


def no_transport() -> Transport:
    raise AssertionError("it went on")
