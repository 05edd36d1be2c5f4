"""Settings objects: filled from flags, environment and defaults."""

from __future__ import annotations

import pytest

from mx_artifacts.artifacts.source.publisher_settings import PublisherSettings
from mx_artifacts.configuration import SettingFlags
from mx_artifacts.core.sources import PodIdentity
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.worker.serving_settings import ServingSettings

ENV = {"MX_ARTIFACT_SLOTS": "7", "MX_WORKER_GRPC_PORT": "7000"}


def test_a_flag_wins_over_the_environment_and_an_override_over_both() -> None:
    flags = SettingFlags({"MX_ARTIFACT_SLOTS": 8}, frozenset({"MX_ARTIFACT_SLOTS"}))
    assert ServingSettings.from_environment(env=ENV).slots == 7
    assert ServingSettings.from_environment(env=ENV, flags=flags).slots == 8
    assert ServingSettings.from_environment(env=ENV, flags=flags, slots=9).slots == 9


def test_no_variable_is_read_for_what_is_overridden() -> None:
    env = {"MX_ARTIFACT_SLOTS": "nonsense"}
    with pytest.raises(ConfigurationError, match="MX_ARTIFACT_SLOTS"):
        ServingSettings.from_environment(env=env)
    assert ServingSettings.from_environment(env=env, slots=9).slots == 9


def test_overrides_reach_nested_settings() -> None:
    made = PublisherSettings.from_environment(env=ENV, worker_rank=3, device_index=1)
    assert (made.worker_rank, made.serving.device_index, made.serving.slots) == (3, 1, 7)


def test_a_field_that_does_not_exist_is_refused() -> None:
    with pytest.raises(TypeError, match="no field slot"):
        PublisherSettings.from_environment(env={}, slot=1)


def test_a_stated_port_is_required_and_the_default_is_a_wish() -> None:
    assert ServingSettings.from_environment(env=ENV).is_port_required
    assert not ServingSettings.from_environment(env={}).is_port_required
    given = SettingFlags({"MX_WORKER_GRPC_PORT": 1}, frozenset({"MX_WORKER_GRPC_PORT"}))
    assert ServingSettings.from_environment(env={}, flags=given).is_port_required
    assert not ServingSettings.from_environment(
        env={}, flags=SettingFlags(given.values)
    ).is_port_required


def test_each_port_is_required_where_its_own_setting_is_stated() -> None:
    stream = ServingSettings.from_environment(env={"MX_WORKER_STREAM_PORT": "1"})
    assert (stream.is_port_required, stream.is_stream_port_required) == (False, True)
    worker = ServingSettings.from_environment(env={"MX_WORKER_GRPC_PORT": "1"})
    assert (worker.is_port_required, worker.is_stream_port_required) == (True, False)


@pytest.mark.parametrize(
    ("port", "device", "expected"), [("6555", 0, 6555), ("6555", 7, 6562), ("0", 7, 0)]
)
def test_the_device_index_is_added_to_both_ports(port: str, device: int, expected: int) -> None:
    env = {"MX_WORKER_GRPC_PORT": port, "MX_WORKER_STREAM_PORT": port}
    made = ServingSettings.from_environment(env=env, device_index=device)
    assert (made.device_port, made.device_stream_port) == (expected, expected)


def test_a_port_that_does_not_exist_is_named() -> None:
    settings = ServingSettings(port=65535, device_index=1)
    with pytest.raises(ConfigurationError, match=r"65535 \+ device index 1") as caught:
        settings.check("127.0.0.1:8001")
    assert "MX_WORKER_GRPC_PORT" in caught.value.hint()


def test_the_pod_comes_from_the_downward_api() -> None:
    env = {"POD_NAME": "p", "POD_UID": "u", "POD_NAMESPACE": "n"}
    assert ServingSettings.from_environment(env=env).pod == PodIdentity("p", "u", "n")
