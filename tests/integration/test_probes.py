"""The probes on this machine, compared with what the components say when they are imported."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from importlib.util import find_spec

import pytest

from mx_artifacts.kinds.inductor import kind as inductor
from mx_artifacts.kinds.triton.compiler import triton_build
from mx_artifacts.node import installed
from mx_artifacts.node.environment import environment
from mx_artifacts.probes.base import ProbeContext
from tests.support.child import ended


def say(code: str, env: Mapping[str, str] | None = None) -> object:
    """Run `code` in a fresh process; return the JSON that it prints."""
    program = [sys.executable, "-W", "error", "-c", f"import json, sys\n{code}"]
    done = ended(program, env=env or environment())
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


def test_torch_says_the_same_when_it_is_imported() -> None:
    build = installed.torch_build()
    code = "import torch; print(json.dumps([str(torch.__version__), torch.version.cuda or '']))"
    assert say(code) == [build.version, build.toolkit]


def test_triton_says_the_same_when_it_is_imported() -> None:
    if find_spec("triton") is None:
        pytest.skip("triton is not installed")
    build = triton_build(environment())
    code = (
        "import triton; from triton.runtime.cache import triton_key\n"
        "print(json.dumps([triton.__version__, triton_key()]))"
    )
    assert say(code) == [build.version, build.key]


def test_torch_says_the_same_number_of_threads_when_it_is_imported() -> None:
    env = {**environment(), "OMP_NUM_THREADS": "1"}
    for each in (environment(), env):
        probe = inductor.KIND.identity_values["cpp_threads"].probe
        assert probe is not None
        fact = probe(ProbeContext(each, gpu_arch="none"))
        code = "import torch; print(json.dumps(torch.get_num_threads()))"
        assert say(code, each) == int(fact.value)


def test_probing_imports_nothing_heavy() -> None:
    code = (
        "from mx_artifacts.node.environment import environment\n"
        "from mx_artifacts.identity.identify import probe_identity\n"
        "from mx_artifacts.kinds.registry import get_kind\n"
        "stated = {'gpu_arch': 'none', 'gpu_name': 'none'}\n"
        "env = environment()\n"
        "probe_identity(get_kind('inductor'), model_name='m', overrides=stated, env=env)\n"
        "print(json.dumps(sorted({'torch', 'triton', 'numpy', 'grpc', 'nixl'} & set(sys.modules))))"
    )
    assert say(code) == []
