"""What an installed package can add, with nothing but `mx_artifacts.plugin`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from mx_artifacts.core.identity import compute_mx_source_id
from mx_artifacts.doctor import network, tools
from mx_artifacts.doctor.base import Level
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.identity.identify import ProbedIdentity, probe_identity
from mx_artifacts.identity.values import advice_for
from mx_artifacts.install.base import ArtifactOrigin, RootInstall
from mx_artifacts.install.usage import UsageVerdict, usage_of
from mx_artifacts.kinds.registry import all_kinds, get_kind
from mx_artifacts.metadata.registry import create_backend
from mx_artifacts.transport.registry import create_transport, open_transport
from tests.support.cli import RunCli, runner
from tests.support.install_cases import fill, install_roots, make_bundle
from tests.support.third_party import installed_package

KIND = """
import json
from mx_artifacts import plugin
from mx_artifacts.plugin import Fact, IdentityValue

def compiler(context):
    if "AITER_BROKEN" in context.env:
        raise RuntimeError("no compiler was asked")
    if "AITER_EMPTY" in context.env:
        return Fact("", "probed: aiter")
    return Fact(context.env.get("AITER_COMPILER", "hipcc 6"), "probed: aiter")

def differences(installed, in_use):
    return compare(next(iter(installed)), next(iter(in_use)))

def compare_files(ours, theirs):
    return compare(ours.read_bytes(), theirs.read_bytes())

def compare(ours, theirs):
    ours, theirs = json.loads(ours), json.loads(theirs)
    return {name: (ours[name], theirs[name]) for name in ours if ours[name] != theirs[name]}

KIND = plugin.CacheKind(
    name="aiter",
    source_type=plugin.SourceType.TORCH_COMPILE_CACHE,
    title="AITER kernels",
    shares_source_type=True,
    roots=(plugin.RootRule("", plugin.first_of(plugin.from_variable("AITER_DIR"))),),
    pack=plugin.PackRules(
        exclude=plugin.NEVER_PACKED, entry_of=plugin.first_parts(1), fault_of=plugin.binary_fault
    ),
    identity_fields=("gpu_arch",),
    strict_parameters=("machine", "aiter_compiler", "json_version"),
    may_be_absent=frozenset({"gpu_arch", "json_version"}),
    identity_values={
        "aiter_compiler": IdentityValue(compiler, "install the same hipcc on both nodes"),
        "json_version": plugin.package_version("no-such-distribution"),
        # A kind's own way to find what others have too.
        "machine": IdentityValue(lambda context: Fact("theirs", "probed: theirs")),
    },
    tools=(
        plugin.Tool(
            "hipcc", lambda env: ["no-such-hipcc"], lack="cannot compile without it",
            next_step="install ROCm", is_required=True,
        ),
        plugin.NINJA,
    ),
    key_factors=plugin.KeyFactors(
        file_name="key.json", max_bytes=1 << 20,
        finding="AITER has another key: start it as on the source",
        differences=differences, compare_files=compare_files,
        advice_for=lambda name: f"set {name} alike",
    ),
)
"""
OTHERS = """
from mx_artifacts.metadata.memory import MemoryRecords
from mx_artifacts.metadata.memory_ballots import MemoryBallots
from mx_artifacts.plugin import BackendProperties, MetadataBackend
from mx_artifacts.transport.inproc import InprocTransport

def backend(url):
    facts = BackendProperties(url, survives_restart=True, shared=True)
    return MetadataBackend(facts, MemoryRecords(), MemoryBallots())

def transport(agent_name):
    return InprocTransport(agent_name)
"""
POINTS = {
    "mx_artifacts.kinds": {"aiter": "aiter_mx:KIND"},
    "mx_artifacts.metadata_backends": {"etcd": "others_mx:backend", "bad": "others_mx:no_such"},
    "mx_artifacts.transports": {"shm": "others_mx:transport", "bad": "no_such_module:x"},
}


@pytest.fixture(autouse=True)
def their_package(tmp_path: Path) -> Iterator[None]:
    modules = {"aiter_mx": KIND, "others_mx": OTHERS}
    with installed_package(tmp_path / "site", modules, POINTS):
        yield


@pytest.fixture(name="run")
def _run(capsys: pytest.CaptureFixture[str]) -> RunCli:
    return runner(capsys)


def probed(**env: str) -> ProbedIdentity:
    stated = {"gpu_arch": "none"}
    return probe_identity(get_kind("aiter"), model_name="m", overrides=stated, env=env)


# --- a kind ---------------------------------------------------------------------------------------


def test_a_kind_of_theirs_probes_its_own_values() -> None:
    assert all_kinds()[-1] is get_kind("aiter")
    found = probed()
    assert found.identity.extra_parameters == {
        "aiter_compiler": "hipcc 6",
        "json_version": "none",
        "machine": "theirs",
        "mx_kind": "aiter",
    }
    assert found.origins["aiter_compiler"] == "probed: aiter"
    other = probed(AITER_COMPILER="hipcc 7")
    assert compute_mx_source_id(found.identity) != compute_mx_source_id(other.identity)
    assert compute_mx_source_id(found.identity) == compute_mx_source_id(probed().identity)


@pytest.mark.parametrize(
    ("variable", "says"),
    [("AITER_BROKEN", "its probe failed: RuntimeError"), ("AITER_EMPTY", "aiter is empty")],
)
def test_a_probe_that_breaks_leaves_its_value_unknown(variable: str, says: str) -> None:
    with pytest.raises(ConfigurationError, match=f"aiter_compiler: {says}") as raised:
        probed(**{variable: "1"})
    assert raised.value.hint() == "state the missing values: --identity aiter_compiler=VALUE"


def test_a_third_partys_kind_gives_advice() -> None:
    kind = get_kind("aiter")
    assert advice_for(kind, "extra_parameters.aiter_compiler").startswith("install the same hipcc")
    assert "same container image" in advice_for(kind, "json_version")
    assert advice_for(kind, "spec_tokens").startswith("state the same --identity spec_tokens")
    assert advice_for(kind, "gpu_arch").startswith("its code is for another GPU architecture")


def test_doctor_looks_for_their_tools() -> None:
    checks = {c.name: c for c in tools.check_tools([get_kind("aiter")], True, {"PATH": ""})}
    assert checks.keys() == {"hipcc", "ninja"}
    assert checks["hipcc"].level is Level.FAIL
    assert checks["hipcc"].what == "no hipcc that runs; aiter cannot compile without it"
    assert checks["hipcc"].next_step == "install ROCm"


def test_usage_says_what_their_engine_says_of_its_key(tmp_path: Path) -> None:
    root = tmp_path / "root"
    bundle = make_bundle(tmp_path / "artifact.tar", {"a/key.json": b'{"flags": "-O2"}'})
    origin = ArtifactOrigin("ab" * 32, "source", "worker", "h:1", "aiter")
    installed = install_roots(
        [(RootInstall("", root, get_kind("aiter").pack.entry_of), bundle)], artifact=origin
    )
    fill(root, {"b/key.json": b'{"flags": "-O3"}'})
    report = usage_of(installed.receipt_path)
    assert report.verdict is UsageVerdict.RECOMPILED
    assert report.roots[0].differences == {"flags": ("-O2", "-O3")}
    says = "AITER has another key: start it as on the source (flags was -O2, is -O3)"
    assert report.next_step == says


def test_why_compares_their_files(tmp_path: Path, run: RunCli) -> None:
    files = [tmp_path / "here.json", tmp_path / "there.json"]
    for path, flags in zip(files, ("-O2", "-O3"), strict=True):
        path.write_text(json.dumps({"flags": flags, "same": "1"}))
    compared = ["--key-factors", *map(str, files)]
    ended = run("why", "--kind", "aiter", *compared, "--format", "json")
    assert ended.code == 13
    assert json.loads(ended.out)["differences"] == [
        {"field": "flags", "here": "-O2", "there": "-O3", "advice": "set flags alike"}
    ]
    refused = run("why", "--kind", "triton", *compared)
    assert refused.code == 2
    assert "--kind inductor or aiter" in refused.err


# --- a metadata backend, a transport --------------------------------------------------------------


def test_a_backend_of_theirs_is_found_by_the_scheme_of_its_url() -> None:
    assert create_backend("ETCD://host:2379").properties.name == "ETCD://host:2379"
    with pytest.raises(ConfigurationError, match=r"'bad' of the entry points .*cannot be loaded"):
        create_backend("bad:")
    with pytest.raises(ConfigurationError, match="'consul' is not known"):
        create_backend("consul://x")


def test_mx_transport_may_name_a_transport_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MX_TRANSPORT", "shm")
    with closing(open_transport()) as transport:
        assert transport.names() == ("inproc",)
    assert network.check_transport("shm", 0).level is Level.OK
    for name, says in (("bad", "cannot be loaded"), ("inproc", "should be one of auto, nixl")):
        monkeypatch.setenv("MX_TRANSPORT", name)
        with pytest.raises(ConfigurationError, match=says):
            open_transport()
        assert network.check_transport(name, 0).level is Level.FAIL


def test_a_transport_of_theirs_is_found_by_its_name() -> None:
    transport = create_transport("shm", "agent-of-theirs")
    assert transport.agent_name == "agent-of-theirs"
    transport.close()
    with pytest.raises(ConfigurationError, match=r"no_such_module:x\) cannot be loaded"):
        create_transport("bad", "agent")
    with pytest.raises(ConfigurationError, match="no transport is called 'pigeon'"):
        create_transport("pigeon", "agent")
