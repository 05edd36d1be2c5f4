"""Channels lead to a host and a port, and to nothing else that gRPC takes for an address."""

from __future__ import annotations

from contextlib import closing

import grpc
import pytest

from mx_artifacts.errors import ConfigurationError
from mx_artifacts.wire.channel import open_channel


@pytest.mark.parametrize(
    "address",
    [
        *("unix:/run/engine.sock", "unix-abstract:name", "unix:///run/engine.sock"),
        *(
            "dns://8.8.8.8/host:1",
            "ipv4:10.0.0.1:80,10.0.0.2:80",
            "xds:///cluster:80",
            "vsock:2:80",
        ),
        *("host", "host:0", "host:1/path", "a,b:80", "user@host:80", "ho st:80", "\x1b[2J:80"),
        "h" * 64 + ":80",
        ".".join(["label"] * 60) + ":80",
        "host:" + "1" * 10_000,
    ],
)
def test_addresses_that_are_not_host_and_port_are_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an address") as refused:
        open_channel(address)
    assert len(str(refused.value)) < 400
    assert str(refused.value).isprintable()


@pytest.mark.parametrize(
    "address", ["unix:80", "xds:443", "10.0.0.1:80", "[::1]:80", "a_b.c-d.:80"]
)
def test_a_host_is_never_taken_for_a_scheme(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    targets = []

    def record(target: str, options: object) -> grpc.Channel:
        targets.append(target)
        return insecure(target, options=options)

    insecure = grpc.insecure_channel
    monkeypatch.setattr(grpc, "insecure_channel", record)
    with closing(open_channel(address)):
        assert targets == [f"dns:///{address}"]
