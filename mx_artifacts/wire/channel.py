"""Opens channels; no other module does, so credentials will need only this one."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

from mx_artifacts.core.chunks import MIB
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.parsing import parse_address

MAX_MESSAGE_BYTES = 100 * MIB
"""Bound of one message, as deployed clients have it; a weights record may list many tensors."""

MESSAGE_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
)

_CLIENT_OPTIONS = (
    *MESSAGE_OPTIONS,
    # gRPC waits up to 120 s between attempts to connect; a heartbeat must find a server that was
    # restarted by its next beat.
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # Otherwise a new channel inherits the back-off of another one to the same address.
    ("grpc.use_local_subchannel_pool", 1),
)


def open_channel(address: str, options: Sequence[tuple[str, int]] = ()) -> grpc.Channel:
    """Return a channel to host:port that connects on first use; the caller closes it.

    `options` win over those that all channels have.

    Raises:
        ConfigurationError: `address` is not host:port. gRPC takes much else for an address (a Unix
            socket, a resolver of its own), which a peer's endpoint must not choose.
    """
    try:
        parse_address(address)
    except ValueError as error:
        raise ConfigurationError(
            f"'{shown(address)}' is not an address: it should be {error}"
        ) from None
    merged = dict(_CLIENT_OPTIONS) | dict(options)
    # With its scheme, since a host may be called "unix" or "xds".
    return grpc.insecure_channel(f"dns:///{address}", options=tuple(merged.items()))
