"""Which transports a source says that it can be read by."""

from __future__ import annotations

import pytest

from mx_artifacts.artifacts.transport_labels import (
    TRANSPORTS_LABEL,
    transport_labels,
    transports_of,
)


@pytest.mark.parametrize("names", [("stream",), ("nixl", "stream"), ("mine", "nixl")])
def test_what_a_source_announces_is_understood(names: tuple[str, ...]) -> None:
    assert transports_of(transport_labels(names)) == names


def test_one_that_says_nothing_is_of_the_reference_and_read_by_nixl() -> None:
    assert transports_of({}) == ("nixl",)
    assert transports_of({"zone": "a"}) == ("nixl",)


def test_an_empty_label_names_no_transport() -> None:
    assert transports_of({TRANSPORTS_LABEL: ""}) == ()
    assert transports_of({TRANSPORTS_LABEL: ",stream,"}) == ("stream",)
