"""Where each kind's engine looks, by the environment's rules in their order."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

import pytest

from mx_artifacts.core.identity import BackendFramework
from mx_artifacts.errors import ConfigurationError
from mx_artifacts.kinds import root_rules
from mx_artifacts.kinds.registry import get_kind
from mx_artifacts.probes import engines

# Each line adds what wins over the lines above it: (variable and value, root, what decided).
PRECEDENCE = {
    ("triton", ""): [
        ({"HOME": "/h"}, "/h/.triton/cache", "default ~/.triton/cache"),
        ({"TRITON_HOME": "/th"}, "/th/.triton/cache", "TRITON_HOME"),
        ({"TRITON_CACHE_DIR": "/tc"}, "/tc", "TRITON_CACHE_DIR"),
    ],
    ("inductor", ""): [
        ({"USER": "me"}, "/tmp/torchinductor_me", "default $TMPDIR/torchinductor_me"),
        ({"LOGNAME": "you"}, "/tmp/torchinductor_you", "default $TMPDIR/torchinductor_you"),
        ({"TORCHINDUCTOR_CACHE_DIR": "/ic"}, "/ic", "TORCHINDUCTOR_CACHE_DIR"),
        ({"VLLM_CACHE_ROOT": "/v"}, "/v/torch_compile_cache", "VLLM_CACHE_ROOT"),
    ],
    ("deep_gemm", ""): [
        ({"HOME": "/h"}, "/h/.cache/vllm/deep_gemm", "default ~/.cache/vllm/deep_gemm"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/vllm/deep_gemm", "XDG_CACHE_HOME"),
        ({"VLLM_CACHE_ROOT": "/v"}, "/v/deep_gemm", "VLLM_CACHE_ROOT"),
        ({"SGLANG_DG_CACHE_DIR": "/s"}, "/s", "SGLANG_DG_CACHE_DIR"),
        ({"DEEP_GEMM_CACHE_DIR": "/d"}, "/d", "DEEP_GEMM_CACHE_DIR"),
        ({"DJ_JIT_CACHE_DIR": "/dj"}, "/dj", "DJ_JIT_CACHE_DIR"),
        ({"DG_JIT_CACHE_DIR": "/w:/r1:/r2"}, "/w", "DG_JIT_CACHE_DIR"),
    ],
    ("tilelang", ""): [
        ({"HOME": "/h"}, "/h/.tilelang/cache", "default ~/.tilelang/cache"),
        ({"TILELANG_CACHE_DIR": "/t"}, "/t", "TILELANG_CACHE_DIR"),
    ],
    ("cute_dsl", ""): [
        (
            {"USERNAME": "me"},
            "/tmp/me/cutlass_python_cache",
            "default $TMPDIR/me/cutlass_python_cache",
        ),
        (
            {"USER": "you"},
            "/tmp/you/cutlass_python_cache",
            "default $TMPDIR/you/cutlass_python_cache",
        ),
        ({"CUTE_DSL_CACHE_DIR": "/c"}, "/c", "CUTE_DSL_CACHE_DIR"),
    ],
    ("flashinfer", ""): [
        ({"HOME": "/h"}, "/h/.cache/flashinfer", "default ~/.cache/flashinfer"),
        ({"XDG_CACHE_HOME": "/x"}, "/h/.cache/flashinfer", "default ~/.cache/flashinfer"),
        ({"FLASHINFER_WORKSPACE_BASE": "/f"}, "/f/.cache/flashinfer", "FLASHINFER_WORKSPACE_BASE"),
    ],
    ("flashinfer", "autotune"): [
        (
            {"HOME": "/h"},
            "/h/.cache/vllm/flashinfer_autotune_cache",
            "default ~/.cache/vllm/flashinfer_autotune_cache",
        ),
        ({"VLLM_CACHE_ROOT": "/v"}, "/v/flashinfer_autotune_cache", "VLLM_CACHE_ROOT"),
        ({"SGLANG_CACHE_DIR": "/s"}, "/s/flashinfer/autotune", "SGLANG_CACHE_DIR"),
        ({"FLASHINFER_AUTOTUNE_CACHE_DIR": "/f"}, "/f", "FLASHINFER_AUTOTUNE_CACHE_DIR"),
        (
            {"VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR": "/va"},
            "/va",
            "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR",
        ),
    ],
    ("tvm_ffi", ""): [
        ({"HOME": "/h"}, "/h/.cache/tvm-ffi", "default ~/.cache/tvm-ffi"),
        ({"TVM_FFI_CACHE_DIR": "/t"}, "/t", "TVM_FFI_CACHE_DIR"),
    ],
}


def locate(
    kind: str,
    env: dict[str, str],
    name: str = "",
    engine: BackendFramework = BackendFramework.UNKNOWN,
) -> tuple[str, str]:
    rule = next(rule for rule in get_kind(kind).roots if rule.name == name)
    path, decided = rule.locate(env, engine)
    return str(path), decided


@pytest.mark.parametrize(("kind", "name"), PRECEDENCE, ids=lambda part: part or "primary")
def test_precedence(kind: str, name: str) -> None:
    env: dict[str, str] = {}
    for variables, path, decided in PRECEDENCE[kind, name]:
        env |= variables
        assert locate(kind, env, name) == (path, decided)


def test_only_the_autotune_root_is_optional() -> None:
    optional = {(k, r.name) for k, _ in PRECEDENCE for r in get_kind(k).roots if r.optional}
    assert optional == {("flashinfer", "autotune")}


def test_an_empty_variable_counts_as_unset() -> None:
    env = {"HOME": "/h", "TRITON_CACHE_DIR": ""}
    assert locate("triton", env) == ("/h/.triton/cache", "default ~/.triton/cache")


def test_paths_are_absolute_and_normal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate("triton", {"TRITON_CACHE_DIR": "a/../b/"})[0] == str(tmp_path / "b")
    assert locate("inductor", {"HOME": "/h", "VLLM_CACHE_ROOT": "~/v"})[0] == (
        "/h/v/torch_compile_cache"
    )


# As PRECEDENCE, for a named engine: no variable of another engine counts (wire facts, "Roots").
VLLM, SGLANG = BackendFramework.VLLM, BackendFramework.SGLANG
OF_ENGINE = {
    (VLLM, "inductor", ""): [
        (
            {"HOME": "/h", "USER": "me", "TORCHINDUCTOR_CACHE_DIR": "/ic"},
            "/h/.cache/vllm/torch_compile_cache",
            "default ~/.cache/vllm/torch_compile_cache",
        ),
        ({"XDG_CACHE_HOME": "/x"}, "/x/vllm/torch_compile_cache", "XDG_CACHE_HOME"),
        ({"VLLM_CACHE_ROOT": "/v"}, "/v/torch_compile_cache", "VLLM_CACHE_ROOT"),
    ],
    (SGLANG, "inductor", ""): [
        (
            {"HOME": "/h", "USER": "me", "VLLM_CACHE_ROOT": "/v"},
            "/tmp/torchinductor_me",
            "default $TMPDIR/torchinductor_me",
        ),
        ({"TORCHINDUCTOR_CACHE_DIR": "/ic"}, "/ic", "TORCHINDUCTOR_CACHE_DIR"),
    ],
    (VLLM, "deep_gemm", ""): [
        (
            {"HOME": "/h", "SGLANG_DG_CACHE_DIR": "/s"},
            "/h/.cache/vllm/deep_gemm",
            "default ~/.cache/vllm/deep_gemm",
        ),
        ({"VLLM_CACHE_ROOT": "/v"}, "/v/deep_gemm", "VLLM_CACHE_ROOT"),
        ({"DG_JIT_CACHE_DIR": "/dg"}, "/dg", "DG_JIT_CACHE_DIR"),
    ],
    (SGLANG, "deep_gemm", ""): [
        (
            # SGLang sets DG_JIT_CACHE_DIR itself, whatever it was.
            {"HOME": "/h", "VLLM_CACHE_ROOT": "/v", "DG_JIT_CACHE_DIR": "/dg"},
            "/h/.cache/deep_gemm",
            "default ~/.cache/deep_gemm",
        ),
        ({"SGLANG_DG_CACHE_DIR": "/s"}, "/s", "SGLANG_DG_CACHE_DIR"),
    ],
    (VLLM, "flashinfer", "autotune"): [
        (
            {"HOME": "/h", "SGLANG_CACHE_DIR": "/s"},
            "/h/.cache/vllm/flashinfer_autotune_cache",
            "default ~/.cache/vllm/flashinfer_autotune_cache",
        ),
        ({"VLLM_CACHE_ROOT": "/v"}, "/v/flashinfer_autotune_cache", "VLLM_CACHE_ROOT"),
    ],
    (SGLANG, "flashinfer", "autotune"): [
        (
            {
                "HOME": "/h",
                "VLLM_CACHE_ROOT": "/v",
                "VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR": "/va",
            },
            "/h/.cache/sglang/flashinfer/autotune",
            "default ~/.cache/sglang/flashinfer/autotune",
        ),
        ({"SGLANG_CACHE_DIR": "/s"}, "/s/flashinfer/autotune", "SGLANG_CACHE_DIR"),
    ],
}


@pytest.mark.parametrize(("engine", "kind", "name"), OF_ENGINE)
def test_roots_follow_the_engine_that_is_named(
    engine: BackendFramework, kind: str, name: str
) -> None:
    env: dict[str, str] = {}
    for variables, path, decided in OF_ENGINE[engine, kind, name]:
        env |= variables
        assert locate(kind, env, name, engine) == (path, decided)


def test_all_other_roots_are_the_same_for_every_engine() -> None:
    for kind, name in PRECEDENCE:
        if any((kind, name) == of_engine[1:] for of_engine in OF_ENGINE):
            continue
        env = dict(item for row in PRECEDENCE[kind, name] for item in row[0].items())
        assert len({locate(kind, env, name, engine) for engine in BackendFramework}) == 1


@pytest.mark.parametrize(
    ("installed", "engine"),
    [
        ([], BackendFramework.UNKNOWN),
        (["sglang"], SGLANG),
        (["vllm", "sglang"], BackendFramework.UNKNOWN),
    ],
)
def test_the_engine_here_is_the_only_one_installed(
    monkeypatch: pytest.MonkeyPatch, installed: Collection[str], engine: BackendFramework
) -> None:
    monkeypatch.setattr(engines, "is_installed", lambda name: name in installed)
    assert engines.engine_here() is engine


def test_temporary_directory_is_that_of_tempfile(tmp_path: Path) -> None:
    env = {"USER": "me", "TMPDIR": str(tmp_path / "missing"), "TEMP": str(tmp_path)}
    assert locate("inductor", env)[0] == str(tmp_path / "torchinductor_me")


def test_the_users_name_is_made_fit_for_a_path_as_torch_does() -> None:
    assert locate("inductor", {"USER": "DOMAIN\\me"})[0] == "/tmp/torchinductor_DOMAIN_me"


@pytest.fixture
def no_passwd_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand for a container under a random user id."""
    monkeypatch.setattr(root_rules, "_passwd", lambda attribute: None)
    monkeypatch.setattr(os, "getuid", lambda: 1001230000)


@pytest.mark.usefixtures("no_passwd_entry")
def test_without_a_passwd_entry_defaults_are_the_engines() -> None:
    assert locate("inductor", {})[0] == "/tmp/torchinductor_uid_1001230000"
    assert locate("cute_dsl", {})[0] == "/tmp/cutlass_python_cache"


@pytest.mark.usefixtures("no_passwd_entry")
def test_without_any_home_the_error_says_what_to_set() -> None:
    with pytest.raises(
        ConfigurationError, match="user id 1001230000 has no passwd entry"
    ) as raised:
        locate("triton", {})
    assert "HOME" in raised.value.hint()


def test_the_passwd_entry_is_used_if_home_is_not_set() -> None:
    pwd = pytest.importorskip("pwd")
    try:
        home = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        pytest.skip("this user has no passwd entry")
    assert locate("tilelang", {})[0] == str(Path(home) / ".tilelang/cache")


def test_an_unknown_user_has_no_passwd_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_001)
    assert root_rules.user_name({}, ("USER",)) is None
