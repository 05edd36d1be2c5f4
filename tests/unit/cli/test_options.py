"""Options: precedence over the environment, parsing, help."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from mx_artifact_cli import options
from mx_artifact_cli.commands import fetch_and_install, inspect, publish, serve, sources
from mx_artifact_cli.option_groups import IdentityOptions
from mx_artifact_cli.options import SettingOption
from mx_artifact_cli.selection import identify, select_kinds
from mx_artifacts import settings
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.workflows.selected_kind import SelectedKind
from tests.support.cli import RunCli, runner

VERBS: list[click.Command] = [
    fetch_and_install.command,
    inspect.command,
    publish.command,
    serve.command,
    sources.list_command,
    sources.show_command,
]
OPTIONS = [
    pytest.param(option, id=f"{verb.name}{option.opts[0]}")
    for verb in VERBS
    for option in verb.params
    if isinstance(option, SettingOption)
]

# Two values that each setting with an option understands, and one that makes no sense.
VALUES: dict[str, tuple[str, str, str]] = {
    "MX_SERVER_ADDRESS": ("flag:1", "env:2", "no-port"),
    "MX_METADATA_BACKEND": ("memory:", "redis://r:1/0", " "),
    "MX_HEARTBEAT_TIMEOUT_SECS": ("1m", "30", "soon"),
    "MX_REAPER_SCAN_INTERVAL_SECS": ("1m", "45s", "0"),
    "MX_GC_TIMEOUT_SECS": ("2h", "10m", "-1"),
    "MX_WORKER_HOST": ("flag", "env", " "),
    "MX_WORKER_LISTEN": ("0.0.0.0", "[::1]", "host:80"),
    "MX_PUBLISH_TIMEOUT_SECS": ("0", "1m", "soon"),
    "MX_WORKER_GRPC_PORT": ("1", "2", "65536"),
    "MX_ARTIFACT_TRANSFER_CHUNK_SIZE": ("1MiB", "2MiB", "5GiB"),
    "MX_ARTIFACT_SLOTS": ("1", "2", "0"),
    "MX_ARTIFACT_BUNDLE_ROOT": ("/flag", "/env", " "),
    "MX_ARTIFACT_READY_URL": ("http://flag/", "http://env/", " "),
    "MX_ARTIFACT_READY_TIMEOUT_SECS": ("1h", "60", "soon"),
    "MX_ARTIFACT_FOLLOW_INTERVAL_SECS": ("1m", "5s", "0"),
    "MX_ARTIFACT_HEAD_ADDRESS": ("flag", "env", " "),
    "MX_ARTIFACT_MAX_RATE": ("1MiB", "0", "fast"),
    "MX_ARTIFACT_COMPRESSION": ("zstd", "none", "gzip"),
    "MX_TRANSFER_TIMEOUT": ("1m", "2m", "8days"),
}


@pytest.fixture(name="run")
def _run(capsys: pytest.CaptureFixture[str]) -> RunCli:
    return runner(capsys)


@pytest.fixture(autouse=True)
def _no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for setting in settings.SETTINGS:
        for name in setting.names:
            monkeypatch.delenv(name, raising=False)


def value_of(option: SettingOption, *args: str) -> Any:
    """Return what a command with `option` alone gets."""
    got: list[Any] = []
    command = click.Command("one", params=[option], callback=lambda **given: got.append(given))
    CliRunner().invoke(command, args, standalone_mode=False, catch_exceptions=False)
    return got[0][option.name]


@pytest.mark.parametrize("option", OPTIONS)
def test_a_flag_overrides_the_environment_which_overrides_the_default(
    option: SettingOption, monkeypatch: pytest.MonkeyPatch
) -> None:
    setting = option.setting
    flag, variable, _ = VALUES[setting.name]
    assert value_of(option) == setting.read(env={})
    monkeypatch.setenv(setting.name, variable)
    assert value_of(option) == setting.parse(variable)
    assert value_of(option, option.opts[0], flag) == setting.parse(flag)


@pytest.mark.parametrize("option", OPTIONS)
def test_nonsense_is_refused_with_the_name_of_flag_or_variable(
    option: SettingOption, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    setting, flag = option.setting, option.opts[0]
    nonsense = VALUES[setting.name][2]
    with pytest.raises(ConfigurationError, match=f"^{flag} is ") as caught:
        value_of(option, flag, nonsense)
    assert caught.value.hint().startswith(f"set {flag} to ")
    monkeypatch.setenv(setting.name, nonsense)
    if setting.lenient:
        with caplog.at_level(logging.WARNING):
            assert value_of(option) == setting.read(env={})
        assert setting.name in caplog.text
    else:
        with pytest.raises(ConfigurationError, match=f"^{setting.name} is "):
            value_of(option)


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb.name)
def test_help_shows_variables_defaults_and_the_shared_options(verb: click.Command) -> None:
    shown = CliRunner().invoke(verb, ["--help"], terminal_width=500).output
    assert "--format" in shown
    assert "--debug" in shown
    for option in verb.params:
        if isinstance(option, SettingOption):
            names = ", ".join(option.setting.names)
            assert f"[env: {names}; default: {option.setting.default_text}]" in shown


def parsed(decorator: Any, *args: str) -> Any:
    got: list[Any] = []
    command = click.command("one")(decorator(lambda **given: got.extend(given.values())))
    CliRunner().invoke(command, args, standalone_mode=False, catch_exceptions=False)
    return got[0]


def test_identity_takes_pairs() -> None:
    args = ("--identity", "gpu_arch=sm90", "--identity", "triton_key= a=b ")
    assert parsed(options.identity_option, *args) == {"gpu_arch": "sm90", "triton_key": "a=b"}
    assert parsed(options.identity_option, "--identity", "dtype=") == {"dtype": ""}


@pytest.mark.parametrize("text", ["gpu_arch", "=sm90", ""])
def test_malformed_identities_are_named(text: str) -> None:
    with pytest.raises(ConfigurationError, match="--identity") as caught:
        parsed(options.identity_option, "--identity", text)
    assert "gpu_arch=sm90" in caught.value.hint()


def test_a_value_for_one_kind_overrides_one_for_all_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = {}

    def probe(kind: CacheKind, **given: Any) -> None:
        taken[kind.name] = given["overrides"]

    monkeypatch.setattr("mx_artifacts.identity.identify.probe_identity", probe)
    stated = {"GPU_ARCH": "sm90", "dtype": "bf16", "triton.gpu_arch": "sm80", "tilelang.x": "1"}
    stated_options = IdentityOptions(stated, None, None, 0)
    for name in ("triton", "tilelang"):
        identify(SelectedKind(get_kind(name)), "m", stated_options)
    assert taken == {
        "triton": {"dtype": "bf16", "gpu_arch": "sm80"},
        "tilelang": {"GPU_ARCH": "sm90", "dtype": "bf16", "x": "1"},
    }
    with pytest.raises(ConfigurationError, match="contradict each other"):
        identify(SelectedKind(get_kind("triton")), "m", replace(stated_options, arch="sm90"))


def test_an_identity_field_stated_twice_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="two different values for 'a'"):
        parsed(options.identity_option, "--identity", "a=1", "--identity", "a=2")


@pytest.mark.parametrize(
    ("text", "name", "path"),
    [
        ("/a=b/c", "", "/a=b/c"),
        ("triton=/x", "triton", "/x"),
        ("flashinfer/autotune=y=z", "flashinfer/autotune", "y=z"),
        ("./t", "", "t"),
        ("relative", "", "relative"),
    ],
)
def test_roots(text: str, name: str, path: str) -> None:
    assert parsed(options.root_option, "--root", text) == ((name, Path(path)),)


def test_a_root_without_a_path_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="--root"):
        parsed(options.root_option, "--root", "triton=")


@pytest.mark.parametrize(
    "args",
    [
        ("fetch-and-install", "--kind", "triton", "--model", "m", "--wait", "soon"),
        ("fetch-and-install", "--kind", "triton", "--model", "m", "--lock-timeout", "-1"),
        ("fetch-and-install", "--kind", "triton", "--model", "m", "--worker-rank", "-1"),
        ("publish", "--kind", "triton", "--model", "m", "--node-rank", str(2**32)),
        ("publish", "--kind", "triton", "--model", "m", "--chunk-size", "5GiB"),
        ("serve", "--port", "65536"),
        ("serve", "--host", " "),
        ("sources", "list", "--limit", "0"),
        ("inspect", "--source", "nowhere"),
    ],
    ids=lambda args: f"{args[0]}{args[-2]}",
)
def test_bad_durations_sizes_ports_and_ranks_are_named(args: tuple[str, ...], run: RunCli) -> None:
    ended = run(*args, "--format", "json")
    assert ended.code == 2
    assert ended.error["message"].startswith(f"{args[-2]} is {args[-1]!r}, but should be ")


def _unknown_names() -> Iterator[tuple[str, ...]]:
    for verb in ("publish", "fetch-and-install"):
        yield verb, "--model", "m", "--kind", "nosuchkind"
        yield verb, "--model", "m", "--kind", "all", "--kind", "triton"
        yield verb, "--model", "m", "--kind", "triton", "--root", "inductor=/x"
        yield verb, "--model", "m", "--kind", "triton", "--kind", "inductor", "--root", "/x"
        yield verb, "--model", "m", "--kind", "triton", "--root", "/x", "--root", "triton=/y"
        yield verb, "--model", "m", "--kind", "triton", "--identity", "inductor.gpu_arch=none"
        yield verb, "--model", "m", "--kind", "triton", "--identity", "nosuchkind.gpu_arch=none"
    yield "why", "--model", "m", "--kind", "triton", "--identity", "inductor.gpu_arch=none"
    yield "sources", "list", "--kind", "nosuchkind"
    yield ("inspect",)
    yield "inspect", __file__, "--source-id", "0123456789abcdef"


@pytest.mark.parametrize("args", list(_unknown_names()), ids=" ".join)
def test_kinds_and_roots_that_do_not_fit_are_configuration_errors(
    args: tuple[str, ...], run: RunCli
) -> None:
    ended = run(*args, "--format", "json")
    assert (ended.code, ended.error["type"]) == (2, "ConfigurationError")


def test_the_engine_of_a_kind_is_the_one_that_is_named() -> None:
    def engine(stated: dict[str, str], framework: str | None = None) -> list[str]:
        kinds = select_kinds(["triton", "inductor"], (), stated, framework)
        return [each.engine.name if each.engine is not None else "" for each in kinds]

    assert engine({}) == ["", ""]
    assert engine({}, "sglang") == ["SGLANG", "SGLANG"]
    assert engine({"backend_framework": "none"}) == ["UNKNOWN", "UNKNOWN"]
    assert engine({"inductor.Backend_Framework": "TRT-LLM"}) == ["", "TRT_LLM"]
    with pytest.raises(ConfigurationError, match="should be one of none, vllm"):
        engine({"backend_framework": "tgi"})
