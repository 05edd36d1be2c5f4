"""Settings: precedence, parsing, and errors that name the setting and what it should be."""

from __future__ import annotations

import logging

import pytest

from mx_artifacts import parsing, settings
from mx_artifacts.configuration import Setting
from mx_artifacts.errors import ConfigurationError


def test_flag_over_environment_over_default() -> None:
    env = {"MX_SERVER_ADDRESS": "env:1"}
    assert settings.SERVER_ADDRESS.read("flag:2", env) == "flag:2"
    assert settings.SERVER_ADDRESS.read(None, env) == "env:1"
    assert settings.SERVER_ADDRESS.read(None, {}) == "localhost:8001"


def test_deprecated_alias_wins_and_empty_counts_as_unset() -> None:
    both = {"MX_SERVER_ADDRESS": "new:1", "MODEL_EXPRESS_URL": "http://old:2/"}
    assert settings.SERVER_ADDRESS.read(env=both) == "old:2"
    assert settings.SERVER_ADDRESS.read(env=both | {"MODEL_EXPRESS_URL": ""}) == "new:1"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30", 30.0), ("30s", 30.0), ("1.5s", 1.5), ("250ms", 0.25), ("5m", 300.0), ("2H", 7200.0)],
)
def test_durations(text: str, seconds: float) -> None:
    assert parsing.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "-1", "abc", "1d", "inf", "nan", "999999999"])
def test_bad_durations_are_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigurationError, match="MX_TRANSFER_TIMEOUT") as caught:
        settings.TRANSFER_TIMEOUT.read(text)
    assert "30s" in caught.value.hint()


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("64MiB", 64 << 20), ("64m", 64 << 20), ("64 MB", 64 << 20), ("1g", 1 << 30)],
)
def test_sizes(text: str, size: int) -> None:
    assert parsing.parse_size(text) == size


@pytest.mark.parametrize("text", ["host", "host:", ":80", "host:0", "host:65536", "host:http"])
def test_bad_addresses(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parsing.parse_address(text)


def test_ipv6_addresses_are_accepted() -> None:
    assert parsing.parse_address("[::1]:8001") == "[::1]:8001"


@pytest.mark.parametrize("text", ["fd00:66::1:8001", "::1:80", "a:b:80"])
def test_an_ipv6_address_without_brackets_could_mean_two(text: str) -> None:
    with pytest.raises(ValueError, match=r"brackets, such as \[fd00::1\]:8001"):
        parsing.parse_address(text)


@pytest.mark.parametrize(
    ("text", "host"),
    [("a.b", "a.b"), (" 10.0.0.1 ", "10.0.0.1"), ("[FD00::1]", "fd00::1"), ("::", "::")],
)
def test_hosts(text: str, host: str) -> None:
    assert parsing.parse_host(text) == host


@pytest.mark.parametrize("text", ["", " ", "h:80", "http://h", "[h]", "a b", "10.0.0.1:80", "a,b"])
def test_bad_hosts(text: str) -> None:
    with pytest.raises(ValueError, match="without a port"):
        parsing.parse_host(text)


def test_an_invalid_chunk_size_warns_and_takes_the_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        value = settings.CHUNK_SIZE.read(env={"MX_ARTIFACT_TRANSFER_CHUNK_SIZE": "5GiB"})
    assert value == 64 << 20
    assert "MX_ARTIFACT_TRANSFER_CHUNK_SIZE" in caplog.text
    with pytest.raises(ConfigurationError):  # a flag is a person's, who can be told
        settings.CHUNK_SIZE.read("5GiB", {})


def test_redis_falls_back_to_the_unprefixed_names() -> None:
    env = {"REDIS_HOST": "r", "REDIS_PORT": "7000"}
    assert (settings.REDIS_HOST.read(env=env), settings.REDIS_PORT.read(env=env)) == ("r", 7000)
    env |= {"MX_REDIS_HOST": "m", "MX_REDIS_PORT": "7001"}
    assert (settings.REDIS_HOST.read(env=env), settings.REDIS_PORT.read(env=env)) == ("m", 7001)


@pytest.mark.parametrize("text", ["zone=a, rack=7", '{"zone": "a", "rack": "7"}'])
def test_where_a_node_is_as_pairs_or_as_the_reference_has_it(text: str) -> None:
    here = settings.TOPOLOGY.read(text)
    assert here == {"zone": "a", "rack": "7", "host": here["host"]}
    assert settings.TOPOLOGY.read(env={}) == {"host": here["host"]}
    assert settings.TOPOLOGY.read("host=n1") == {"host": "n1"}


@pytest.mark.parametrize("text", ["zone", "zone=", "=a", "{", '{"zone": 1}', "a b=c", "z=a\tb"])
def test_bad_labels_are_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="MX_P2P_TOPOLOGY"):
        settings.TOPOLOGY.read(env={"MX_P2P_TOPOLOGY": text})


def test_every_setting_has_a_name_of_its_own_and_a_meaning() -> None:
    names = [name for s in settings.SETTINGS for name in (s.name, *s.aliases)]
    assert len(set(names)) == len(names)
    assert all(s.meaning for s in settings.SETTINGS)
    for setting in settings.SETTINGS:
        setting.read(env={})  # the default is readable


@pytest.mark.parametrize(
    ("text", "seconds"), [("0", 0.0), ("0s", 0.0), ("0.0 s", 0.0), ("5", 5.0), ("1m", 60.0)]
)
def test_not_to_wait_is_a_wait(text: str, seconds: float) -> None:
    assert parsing.parse_wait(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "soon", "8d"])
def test_a_bad_wait_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="do not wait"):
        parsing.parse_wait(text)


@pytest.mark.parametrize("setting", settings.SETTINGS, ids=lambda setting: setting.name)
def test_no_setting_takes_what_the_wire_cannot_carry(setting: Setting[object]) -> None:
    if setting is settings.BUNDLE_ROOT or setting.name.endswith("_DIR"):
        return  # a path may be any bytes
    with pytest.raises(ConfigurationError, match=setting.name):
        setting.read("\udcff:1")
