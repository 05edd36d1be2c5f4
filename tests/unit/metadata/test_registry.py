"""Backends by URL."""

from __future__ import annotations

import pytest

from mx_artifacts.configuration import SettingValues
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.metadata.registry import backend_url, create_backend


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("memory", "memory"),
        ("memory:", "memory"),
        ("redis://localhost", "redis"),
        ("redis://user:secret@redis.example:6380/3", "redis"),
        ("rediss://localhost:6379/0", "redis"),
        ("redis://[::1]:6379", "redis"),
    ],
)
def test_known_urls(url: str, name: str) -> None:
    assert create_backend(url).properties.name == name


@pytest.mark.parametrize("name", ["redis", "REDIS", "Redis"])
def test_a_backends_name_may_be_in_capitals(name: str) -> None:
    def url(backend: str) -> str:
        env = {"REDIS_URL": "redis://host:6380/2", "MX_METADATA_BACKEND": backend}
        return backend_url(SettingValues(env))

    assert url(name) == "redis://host:6380/2"
    assert url("MEMORY") == url("Memory:") == "memory:"
    assert url("Redis://host:1/3") == "redis://host:1/3"
    assert url("memory://host") == "memory://host"  # which create_backend refuses


@pytest.mark.parametrize(
    "url",
    [
        "",
        "redi://user:secret@host",
        "http://host",
        "memory://host",
        "redis",
        "redis:",
        "redis://",
        "redis://:secret@:6379",
        "redis://user:secret@host:port",
        "redis://user:secret@host:70000",
        "redis://user:secret@host/three",
        "redis://user:secret@host/0?no_such_option=1",
        "redis://user:secret@host/0?socket_timeout=soon",
    ],
)
def test_a_bad_url_is_refused_with_what_it_should_be_and_no_password(url: str) -> None:
    with pytest.raises(ConfigurationError, match="should be") as caught:
        create_backend(url)
    assert "secret" not in str(caught.value)
    assert caught.value.hint()
