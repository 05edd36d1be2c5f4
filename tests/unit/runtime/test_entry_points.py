"""What other packages declare: the same everywhere, and an error that names who is at fault."""

from __future__ import annotations

from importlib import metadata
from importlib.metadata import EntryPoint

import pytest

from mx_artifacts.errors import ConfigurationError
from mx_artifacts.runtime.entry_points import entry_points, load_entry_point

GROUP = "mx_artifacts.tests"


@pytest.fixture
def declared(monkeypatch: pytest.MonkeyPatch) -> list[EntryPoint]:
    """Entry points of the group; a test adds to them."""
    points: list[EntryPoint] = []
    monkeypatch.setattr(metadata, "entry_points", lambda group: points if group == GROUP else [])
    return points


def test_one_name_of_two_packages_means_the_same_on_every_node(
    declared: list[EntryPoint],
) -> None:
    later = EntryPoint("kind", "os.path:join", GROUP)
    earlier = EntryPoint("kind", "os.path:dirname", GROUP)
    other = EntryPoint("a", "os.path:sep", GROUP)
    for order in ([later, earlier, other], [other, earlier, later]):
        declared[:] = order
        assert entry_points(GROUP) == [other, earlier, later]
        assert load_entry_point(GROUP, "kind")("/a/b") == "/a"  # type: ignore[misc]


def test_an_undeclared_name_is_none(declared: list[EntryPoint]) -> None:
    declared.append(EntryPoint("kind", "os.path:join", "another.group"))
    assert load_entry_point("yet.another", "kind") is None
    assert load_entry_point(GROUP, "other") is None


@pytest.mark.parametrize("value", ["no_such_module:thing", "os.path:no_such_name"])
def test_one_that_cannot_be_loaded_names_itself_and_the_cause(
    declared: list[EntryPoint], value: str
) -> None:
    declared.append(EntryPoint("kind", value, GROUP))
    with pytest.raises(ConfigurationError, match=f"'kind'.*{GROUP}.*{value}.*no_such_") as caught:
        load_entry_point(GROUP, "kind")
    assert isinstance(caught.value.__cause__, (ImportError, AttributeError))
    assert "package" in caught.value.hint()
