"""What a case of the kinds matrix comes to, and when docs/kinds.md is written."""

from __future__ import annotations

import json
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from tests.kinds import rows
from tests.kinds.caches import CACHES
from tests.kinds.cases import CASES, Outcome
from tests.kinds.environments import chosen
from tests.support.child import REPOSITORY

CACHE, CASE = CACHES[0], CASES[0]
COLD = {"jobs": 4, "hits": 0, "recompiled": 4, "errors": [], "seconds": 9.0}


def found(hits: int, **named: int) -> rows.Row:
    probe = {**COLD, "hits": hits, "recompiled": 4 - hits, "seconds": 1.0}
    return rows.judge(CACHE, CASE, COLD, Outcome(probe, Counter(named)))


def test_a_job_hits_or_is_named_or_was_recompiled_silently() -> None:
    assert found(4).silent == 0
    assert found(3).silent == 1
    refused = found(2, stale=2)
    assert (refused.silent, refused.refused, refused.reason) == (0, 2, "2 × stale")
    assert found(1, stale=2).silent == 1


def test_entries_that_were_unverified_but_hit_are_not_counted_as_refused() -> None:
    hit = found(4, unverified=4)
    assert (hit.refused, hit.reason) == (0, "")


def test_a_cache_that_was_not_installed_is_refused_whole() -> None:
    row = rows.judge(CACHE, CASE, COLD, Outcome(None, Counter({"not installed: why": 4})))
    assert (row.silent, row.hits, row.refused, row.seconds) == (0, 0, 4, 0.0)


def test_names_choose_caches_and_unknown_ones_are_refused() -> None:
    assert chosen("all") == list(CACHES)
    assert [cache.name for cache in chosen("triton,inductor")] == ["triton", "inductor"]
    assert [cache.name for cache in chosen("tvm_ffi")] == ["tvm_ffi"]
    assert {cache.kind for cache in chosen("deep_gemm")} == {"deep_gemm"}
    with pytest.raises(ValueError, match="there are triton"):
        chosen("no-such-cache")


@pytest.fixture(name="tool")
def _tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    spec = spec_from_file_location("kinds_page", REPOSITORY / "tools" / "kinds_page.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "FOUND", tmp_path / "kinds.json")
    monkeypatch.setattr(module, "PAGE", tmp_path / "kinds.md")
    return module


@pytest.mark.process
def test_only_a_run_of_all_caches_writes_the_page(
    tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rows, "package_versions", lambda name, packages: {"triton": "3.8.0"})
    rows.write([found(4)], tool.FOUND)
    assert json.loads(tool.FOUND.read_text())["rows"][0]["hits"] == 4
    tool.main()
    assert not tool.PAGE.exists()

    monkeypatch.setattr(rows, "CACHES", (CACHE,))
    other = rows.skipped(CACHE, CASES[2], "only root can")
    rows.write([found(2, stale=2), other], tool.FOUND)
    tool.main()
    page = tool.PAGE.read_text()
    assert "| triton | 2 + 2/4 | – |" in page
    assert "- triton, other user: only root can" in page
