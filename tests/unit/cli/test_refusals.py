"""Values that make no sense: exit code 2, named, bounded, with the next step, before any work."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from mx_artifact_cli.describe import identity_object, shortened
from mx_artifacts.core.identity import SourceIdentity
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.transport.registry import open_transport
from tests.support import install_process
from tests.support.cli import RunCli, runner
from tests.support.install_cases import NEW, contents, fill, install, make_bundle, workspace_of

SERVER = ("--server", "127.0.0.1:1")  # nobody listens: whoever asks it ends with 14
PUBLISH = ("publish", "--kind", "triton", *SERVER)
FETCH = ("fetch-and-install", "--kind", "triton", *SERVER)
WHY = ("why", "--kind", "triton", *SERVER)
LIST = ("sources", "list", *SERVER)
NOT_UTF8 = "\udcff\udcfe"


@pytest.fixture(name="run")
def _run(capsys: pytest.CaptureFixture[str]) -> RunCli:
    return runner(capsys)


@pytest.mark.parametrize(
    "options", [("--host", "h"), ("--listen", "h"), ("--port", "7"), ("--port", "0", "--host=h")]
)
def test_addresses_are_refused_without_seed(options: tuple[str, ...], run: RunCli) -> None:
    ended = run(*FETCH, "--model", "m", *options, "--format", "json")
    assert ended.code == 2
    assert "without --seed" in ended.error["message"]
    assert all(each.partition("=")[0] in ended.error["message"] for each in options[::2])


@pytest.mark.parametrize("verb", [PUBLISH, FETCH, WHY, LIST], ids=lambda verb: verb[0])
@pytest.mark.parametrize("name", [NOT_UTF8, "a\x1b[2J", "a\nb", "x" * 1025, " "])
def test_invalid_model_names_are_refused(verb: tuple[str, ...], name: str, run: RunCli) -> None:
    ended = run(*verb, "--model", name, "--format", "json")
    assert ended.code == 2
    assert ended.error["message"].startswith("--model is ")
    assert len(ended.error["message"]) < 500
    assert ended.error["hint"]


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ((*PUBLISH, "--model", "m", "--accelerator", "foo"), "--accelerator"),
        ((*FETCH, "--model", "m", "--accelerator", "foo"), "--accelerator"),
        ((*FETCH, "--model", "m", "--artifact-id", "abc"), "--artifact-id"),
        (("inspect", "--source-id", "s", *SERVER, "--artifact-id", "abc"), "--artifact-id"),
        (("inspect", "--source-id", NOT_UTF8, *SERVER), "--source-id"),
        (("inspect", "--source-id", "s", *SERVER, "--worker-id", NOT_UTF8), "--worker-id"),
        (("sources", "show", NOT_UTF8, *SERVER), "SOURCE_ID"),
        (("sources", "show", "s", NOT_UTF8, *SERVER), "WORKER_ID"),
        (("sources", "list", "--server", f"{NOT_UTF8}:1"), "--server"),
        (("serve", "--host", NOT_UTF8), "--host"),
        (("serve", "--backend", NOT_UTF8), "--backend"),
    ],
)
def test_other_invalid_values_are_refused(args: tuple[str, ...], named: str, run: RunCli) -> None:
    ended = run(*args, "--format", "json")
    assert ended.code == 2
    assert named in ended.error["message"]
    assert ended.error["hint"]


@pytest.mark.parametrize(
    "beside",
    [("--dry-run",), ("--group", "g", "--group-size", "2"), ("--artifact-id", "a" * 64)],
    ids=lambda words: words[0],
)
def test_follow_refuses_options_that_leave_nothing_to_follow(
    beside: tuple[str, ...], run: RunCli
) -> None:
    ended = run(*FETCH, "--model", "m", "--follow", *beside, "--format", "json")
    assert (ended.code, ended.error["type"]) == (2, "ConfigurationError")
    assert ended.error["message"].startswith(f"--follow cannot be used with {beside[0]}, ")
    assert ended.error["hint"]


@pytest.mark.parametrize("family", ["cuda", "CPU"])
def test_an_accelerator_family_is_taken_in_any_case(family: str, run: RunCli) -> None:
    assert run(*LIST).code == 14
    stated = ("gpu_arch=sm90", "cuda_version=12", "triton_version=3", "triton_key=k")
    identity = [word for each in stated for word in ("--identity", each)]
    assert run(*FETCH, "--model", "m", *identity, "--accelerator", family).code == 14


@pytest.mark.parametrize(
    ("name", "value"),
    [("MX_TRANSPORT", "foo"), ("MX_TRANSPORT", "inproc"), ("MX_NIXL_BACKEND", "GDS")],
)
def test_transports_that_cannot_reach_other_nodes_are_refused(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MX_TRANSPORT", "nixl")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigurationError, match=repr(value)) as caught:
        open_transport()
    assert name in caught.value.hint()


def test_inspect_refuses_files_that_are_no_bundle(run: RunCli, tmp_path: Path) -> None:
    fifo, text = tmp_path / "fifo", tmp_path / "text"
    os.mkfifo(fifo)
    text.write_text("root:x:0:0\n" * 100)
    for path, code in (("/dev/zero", 2), (fifo, 2), (text, 12), ("/proc/self/mem", 12)):
        ended = run("inspect", str(path), "--format", "json")
        assert ended.code == code
        assert "bundle" in ended.error["hint"]


def test_the_hint_for_a_wrong_redis_url_names_the_option(run: RunCli) -> None:
    ended = run("serve", "--port", "0", "--backend", "redis://", "--format", "json")
    assert ended.code == 2
    assert "--backend" in ended.error["hint"]


def test_identities_print_in_one_order_and_long_names_are_cut() -> None:
    there = {"b": "1", "a": "2", "c": "3"}
    identity = SourceIdentity(model_name="x" * 3000, extra_parameters=there)
    again = identity.with_fields(extra_parameters=dict(sorted(there.items())))
    assert json.dumps(identity_object(identity)) == json.dumps(identity_object(again))
    assert len(shortened(identity.model_name)) < 120


@pytest.mark.parametrize("verb", ["verify", "used", "uninstall"])
@pytest.mark.parametrize("named", ["root", "other.json", "absent"])
def test_the_hint_for_a_file_that_is_no_receipt_does_not_say_to_remove_it(
    verb: str, named: str, tmp_path: Path, run: RunCli
) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "other.json").write_text("{}")
    ended = run(verb, str(tmp_path / named), "--format", "json")
    assert (ended.code, ended.error["type"]) == (2, "ConfigurationError")
    assert ended.error["message"].startswith(f"{tmp_path / named} is no receipt: ")
    assert "remove" not in ended.error["hint"]
    assert "--kind" in ended.error["hint"]


@pytest.mark.parametrize("kinds", [("all",), ("triton", "inductor")])
def test_why_takes_one_kind(kinds: tuple[str, ...], run: RunCli) -> None:
    args = [arg for kind in kinds for arg in ("--kind", kind)]
    ended = run("why", *args, *SERVER, "--model", "m", "--format", "json")
    assert (ended.code, ended.error["type"]) == (2, "ConfigurationError")
    assert ended.error["message"].startswith("why takes one kind")


@pytest.mark.process
@pytest.mark.parametrize("verb", ["verify", "used"])
def test_a_killed_install_is_reported_and_can_be_taken_back(
    verb: str, tmp_path: Path, run: RunCli
) -> None:
    root, bundle = tmp_path / "root", make_bundle(tmp_path / "artifact.tar", NEW)
    killed, _, _ = install_process.run(
        root=root, bundle=bundle, replace=False, kill_on="install.moved"
    )
    assert killed == -signal.SIGKILL
    ended = run(verb, "--kind", "triton", "--root", str(root), "--format", "json")
    assert (ended.code, ended.error["type"]) == (1, "InstallError")
    assert f"an install into {root} was interrupted" in ended.error["message"]
    assert "journal.json" in ended.error["message"]
    assert "fetch-and-install" in ended.error["hint"]
    assert (root / "k1").exists()
    ended = run("uninstall", "--kind", "triton", "--root", str(root))
    assert (ended.code, ended.err) == (0, "")
    assert f"{root}: took back" in ended.out
    assert contents(root) == {}
    assert not workspace_of(root).exists()


def test_verify_says_when_nothing_was_installed(tmp_path: Path, run: RunCli) -> None:
    root = fill(tmp_path / "root", NEW)
    receipt = install(root, make_bundle(tmp_path / "artifact.tar", NEW)).receipt_path
    document = json.loads(receipt.read_text())
    document["roots"][0]["unusable"] = {"k1": "its group file names another root"}
    receipt.write_text(json.dumps(document))
    ended = run("verify", str(receipt))
    assert ended.code == 0
    assert "nothing was installed; 3 entries were kept, which verify does not check" in ended.out
    assert "k1 was kept, but was not usable: its group file names another root" in ended.out
    assert "0 intact" not in ended.out


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--identity", "triton.=1", "is 'triton.=1', but should be [KIND.]KEY=VALUE: the key"),
        ("--identity", "=1", "is '=1', but should be [KIND.]KEY=VALUE: the key or kind is missing"),
        ("--identity", "a", "is 'a', but should be [KIND.]KEY=VALUE: the = is missing"),
        ("--root", "triton/autotune=/x", "names 'triton/autotune', but triton has no such root"),
    ],
)
def test_the_error_names_the_missing_part_of_an_option(
    option: str, value: str, message: str, run: RunCli
) -> None:
    ended = run(*FETCH, "--model", "m", option, value, "--format", "json")
    assert (ended.code, ended.error["type"]) == (2, "ConfigurationError")
    assert ended.error["message"].startswith(f"{option} {message}")


@pytest.mark.process
def test_verify_warns_of_a_killed_install_over_another_one(tmp_path: Path, run: RunCli) -> None:
    root, bundle = tmp_path / "root", make_bundle(tmp_path / "artifact.tar", NEW)
    install(root, bundle)
    install_process.run(root=root, bundle=bundle, replace=True, kill_on="install.moved")
    ended = run("verify", "--kind", "triton", "--root", str(root))
    assert ended.code == 0
    assert f"warning: an install into {root} was interrupted" in ended.err
