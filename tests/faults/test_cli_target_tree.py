"""Links that are in a target's root already."""

from __future__ import annotations

from pathlib import Path

from tests.support.install_cases import contents, leftovers, picture
from tests.support.nodes import FIRST, SECOND, Cluster

ENTRIES = "1.0/sm90/autotuner"


def test_a_link_on_the_way_to_an_entry_is_not_followed(
    cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (outside / "sm90/autotuner").mkdir(parents=True)
    with cluster.source(cache):
        for number, link in enumerate(("1.0", ENTRIES)):
            root = tmp_path / f"cold{number}"
            (root / link).parent.mkdir(parents=True)
            (root / link).symlink_to(outside)
            before = picture(root), picture(outside)
            for options in ((), ("--replace",)):
                code, error = cluster.fetch(root, *options)
                assert (code, error["type"]) == (12, "UnsafePathError")
                assert Path(link).name in error["message"]
                assert (picture(root), picture(outside)) == before
                assert leftovers(root) == []
    assert cluster.staged() == []


def test_a_link_in_an_entrys_place_is_kept_or_replaced_itself(
    cluster: Cluster, cache: Path, tmp_path: Path
) -> None:
    """The root is a link as well: the user named it, so it is followed."""
    root, outside = tmp_path / "cold", tmp_path / "outside"
    outside.mkdir()
    root.symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / ENTRIES).mkdir(parents=True)
    (root / ENTRIES / FIRST).symlink_to(outside)
    with cluster.source(cache):
        code, done = cluster.fetch(root)
        assert code == 0, done
        assert (root / ENTRIES / FIRST).is_symlink()
        assert contents(root / ENTRIES / SECOND) == contents(cache / ENTRIES / SECOND)
        code, done = cluster.fetch(root, "--replace")
        assert code == 0, done
    assert not (root / ENTRIES / FIRST).is_symlink()
    assert root.is_symlink()
    assert contents(tmp_path / "elsewhere") == contents(cache)
    assert list(outside.iterdir()) == []
