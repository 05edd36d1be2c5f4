"""Ranks of vLLM's compile cache of which one lacks what the others have."""

from __future__ import annotations

import pytest

from mx_artifacts.kinds.base import RankSet
from mx_artifacts.kinds.inductor.vllm_hash_directories import rank_sets
from tests.support.kind_trees import SHA

MEGA = f"torch_aot_compile/{SHA}"


def models(*ranks: int, directory: str = MEGA) -> list[str]:
    return [f"{directory}/rank_{rank}_0/model" for rank in ranks]


def test_equal_ranks_lack_nothing() -> None:
    assert rank_sets(models(*range(8))) == (RankSet(MEGA, 8, {}),)


def test_a_rank_without_its_model_is_named() -> None:
    paths = [*models(0, 1, 2, 4, 5, 6, 7), f"{MEGA}/rank_3_0"]
    assert rank_sets(paths) == (RankSet(MEGA, 7, {"rank_3_0": ("model",)}),)


def test_a_rank_that_has_no_directory_is_named() -> None:
    (found,) = rank_sets(models(0, 1, 3))
    assert (found.complete, dict(found.lacking)) == (3, {"rank_2_0": ("model",)})


def test_a_nodes_own_ranks_need_not_begin_at_zero() -> None:
    assert rank_sets(models(8, 9)) == (RankSet(MEGA, 2, {}),)


def test_replicas_are_compared_too() -> None:
    paths = [f"{MEGA}/rank_{rank}_{replica}/model" for rank in (0, 1) for replica in (0, 1)]
    assert rank_sets(paths)[0].complete == 4
    assert rank_sets(paths[:-1])[0].lacking == {"rank_1_1": ("model",)}


@pytest.mark.parametrize("prefix", ["backbone", "eagle_head"])
def test_a_part_of_the_model_that_one_rank_did_not_save(prefix: str) -> None:
    index = f"{prefix}/vllm_compile_cache.py"
    paths = [f"0a1b2c3d4e/rank_{rank}_0/other/vllm_compile_cache.py" for rank in (0, 1)]
    (found,) = rank_sets([*paths, f"0a1b2c3d4e/rank_0_0/{index}"])
    assert (found.complete, dict(found.lacking)) == (1, {"rank_1_0": (index,)})


def test_ranks_may_differ_in_all_that_depends_on_their_stage() -> None:
    """Pipeline stages compile different graphs."""
    paths = models(0, 1)
    paths += [f"{MEGA}/rank_0_0/extra", f"{MEGA}/inductor_cache/fxgraph/x/y/z"]
    assert rank_sets(paths) == (RankSet(MEGA, 2, {}),)


def test_other_directories_than_those_of_vllm_have_no_ranks() -> None:
    assert rank_sets(["fxgraph/wf/x/y", "0a1b2c3d4e/rank_0_0/computation_graph.py"]) == ()
