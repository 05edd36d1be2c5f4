"""What goes over a stream connection, and the descriptor: encoded, decoded and refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mx_artifacts.errors import TransportError, TransportNotAllowedError
from mx_artifacts.transport.base import RemoteRange
from mx_artifacts.transport.stream import frames

U64 = st.integers(0, 2**64 - 1)
DESCRIPTORS = st.builds(
    frames.StreamDescriptor,
    port=st.integers(1, 65535),
    agent_id=U64,
    serial=st.integers(0, 2**32 - 1),
    token=st.binary(min_size=16, max_size=16),
)


@given(DESCRIPTORS)
def test_a_descriptor_says_what_it_was_made_of(descriptor: frames.StreamDescriptor) -> None:
    assert frames.StreamDescriptor.decode(descriptor.encode()) == descriptor
    assert frames.is_stream_descriptor(descriptor.encode())


@given(st.one_of(st.binary(max_size=200), st.binary(max_size=60).map(lambda b: frames.MAGIC + b)))
def test_no_bytes_do_more_than_be_refused(data: bytes) -> None:
    try:
        decoded = frames.StreamDescriptor.decode(data)
    except TransportError:
        return
    assert decoded.encode() == data


def test_nixls_descriptor_names_the_setting() -> None:
    with pytest.raises(TransportNotAllowedError, match="NIXL") as raised:
        frames.StreamDescriptor.decode(b"nixlSerDes|Agent...")
    assert "MX_TRANSPORT=nixl" in raised.value.hint()


@given(st.lists(st.tuples(U64, U64), min_size=1, max_size=50))
def test_a_request_has_its_ranges(ranges: list[tuple[int, int]]) -> None:
    encoded = frames.encode_request([RemoteRange(*each) for each in ranges])
    assert frames.request_length(encoded) == len(encoded)
    assert frames.request_length(encoded[:1]) is None
    assert frames.decode_request(encoded) == ranges


@pytest.mark.parametrize("count", [0, frames.MAX_RANGES + 1, 65535])
def test_a_request_for_no_range_or_too_many_is_invalid(count: int) -> None:
    with pytest.raises(frames.FrameError):
        frames.request_length(count.to_bytes(2, "big"))
    most = frames.encode_request([RemoteRange(1, 1)] * frames.MAX_RANGES)
    assert len(most) == frames.MAX_REQUEST_BYTES


def test_a_hello_proves_the_token_for_one_greeting() -> None:
    token, nonce = b"t" * 16, b"n" * 16
    assert frames.decode_greeting(frames.encode_greeting(nonce)) == nonce
    hello = frames.encode_hello(7, token, nonce)
    assert token not in hello
    serial, proof = frames.decode_hello(hello)
    assert (serial, proof) == (7, frames.proof_of(token, nonce))
    assert proof != frames.proof_of(token, b"m" * 16)
    assert proof != frames.proof_of(b"s" * 16, nonce)
    for wrong in (b"HTTP" + hello[4:], bytes(len(hello))):
        with pytest.raises(frames.FrameError):
            frames.decode_hello(wrong)
