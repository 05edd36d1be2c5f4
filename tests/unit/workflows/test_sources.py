"""What the central server knows of sources."""

from __future__ import annotations

from typing import cast

import pytest

from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.sources import SourceQuery, SourceStatus, StoredWorker
from mx_artifacts.errors import RecordNotFoundError
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.workflows.selected_kind import SelectedKind
from mx_artifacts.workflows.sources import announced_artifact, listed_workers, workers_of_source
from tests.support.workflow_fakes import FakeCentral, probed, stored

TRITON, TILELANG = (get_kind(name) for name in ("triton", "tilelang"))
OURS, OTHERS = (probed(SelectedKind(kind)).identity for kind in (TRITON, TILELANG))


def central(*records: StoredWorker) -> CentralClient:
    return cast(CentralClient, FakeCentral([*records]))


def test_a_listing_is_cut_after_the_kind_was_looked_at() -> None:
    client = central(stored(OTHERS, "1"), stored(OURS, "2"), stored(OURS, "3"), stored(OURS, "4"))
    query = SourceQuery(limit=2)
    assert [each.worker_id for each in listed_workers(client, query, TRITON)] == ["2", "3"]
    assert [each.worker_id for each in listed_workers(client, query)] == ["1", "2"]
    assert len(list(listed_workers(client, SourceQuery(), TRITON))) == 3


def test_a_record_that_was_removed_meanwhile_is_left_out() -> None:
    server = FakeCentral([stored(OURS, "1"), stored(OURS, "2")])
    server.gone.add("1")
    client = cast(CentralClient, server)
    assert [each.worker_id for each in listed_workers(client, SourceQuery())] == ["2"]


def test_the_workers_of_a_source_or_one_of_them() -> None:
    client = central(stored(OURS, "1"), stored(OTHERS, "2"), stored(OURS, "3"))
    source_id = stored(OURS, "1").mx_source_id
    assert [w.worker_id for w in workers_of_source(client, source_id)] == ["1", "3"]
    assert [w.worker_id for w in workers_of_source(client, source_id, "3")] == ["3"]
    with pytest.raises(RecordNotFoundError, match="no source"):
        workers_of_source(client, "unknown")
    with pytest.raises(RecordNotFoundError, match="worker 9"):
        workers_of_source(client, source_id, "9")


def test_a_ready_worker_is_asked_first_for_what_it_announces() -> None:
    stale = stored(OURS, "stale", status=SourceStatus.STALE, artifact_id="a")
    ready = stored(OURS, "ready", artifact_id="b")
    client, source_id = central(stale, ready), ready.mx_source_id
    assert announced_artifact(client, source_id) == ("ready:1", "b")
    assert announced_artifact(client, source_id, "stale") == ("stale:1", "a")
    assert announced_artifact(client, source_id, artifact_id="a") == ("stale:1", "a")
    with pytest.raises(RecordNotFoundError, match="no such artifact"):
        announced_artifact(client, source_id, artifact_id="c")
    with pytest.raises(RecordNotFoundError, match="announces no artifact"):
        announced_artifact(central(stored(OURS, "w", artifact_id="")), source_id)
