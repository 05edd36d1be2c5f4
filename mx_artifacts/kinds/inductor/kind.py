"""torch.compile's cache: TorchInductor's own directory, or vLLM's torch_compile_cache around it.

vLLM keeps its compile cache below VLLM_CACHE_ROOT. In its own process, it sets
TORCHINDUCTOR_CACHE_DIR to a directory there. So for vLLM this variable does not count, even if we
run inside the engine. If no engine is named and VLLM_CACHE_ROOT is set, we assume vLLM.

Loading executes code: pickles, Python wrappers, shared libraries.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from mx_artifacts.bundle.entry import EntryView
from mx_artifacts.bundle.rules import PackRules
from mx_artifacts.core.foreign_text import shown
from mx_artifacts.core.identity import BackendFramework, SourceType
from mx_artifacts.kinds.base import NEVER_PACKED, CacheKind, EntryVerdict, RootRule
from mx_artifacts.kinds.inductor.checks import fault_of
from mx_artifacts.kinds.inductor.cpu_code import CPU_CODE_VALUES
from mx_artifacts.kinds.inductor.vllm_factor_files import VLLM_FACTORS
from mx_artifacts.kinds.inductor.vllm_hash_directories import hash_directory_of, rank_sets
from mx_artifacts.kinds.inductor.vllm_indexes import (
    lacking_index,
    path_elsewhere,
    relocate_vllm_indexes,
)
from mx_artifacts.kinds.root_rules import (
    VLLM_CACHE_ROOT,
    below_temporary,
    below_vllm_cache,
    first_of,
    for_engines,
    from_variable,
    user_name,
)
from mx_artifacts.kinds.tools import COMPILERS
from mx_artifacts.kinds.triton.compiler import TRITON_VALUES
from mx_artifacts.kinds.triton.group_files import is_key_directory, relocate_triton_groups
from mx_artifacts.kinds.triton.key_directories import judge_existing_groups
from mx_artifacts.kinds.usage_markers import UsageMarkers
from mx_artifacts.node.environment import Environment


def _default_directory(env: Environment) -> Sequence[str]:
    # As torch/_inductor/runtime/cache_dir_utils.py: getpass's variables, then the passwd entry,
    # then the user id, which is what a container under a random user id gets.
    name = user_name(env, ("LOGNAME", "USER", "LNAME", "USERNAME")) or f"uid_{os.getuid()}"
    return ("torchinductor_" + re.sub(r'[\\/:*?"<>|]', "_", name),)


def entry_of(path: str) -> str:
    """Map a path to what is committed as one.

    A hash directory of vLLM is one entry: if one of the files that it names is missing, vLLM's
    loader fails and the engine does not start. A Triton key directory is one entry at any depth.
    Every other file of Inductor is a separate entry.
    """
    hash_directory = hash_directory_of(path)
    if hash_directory is not None:
        return hash_directory
    parts = path.split("/")
    for position, part in enumerate(parts[:-1]):
        if is_key_directory(part):
            return "/".join(parts[: position + 1])
    return path


def judge_existing_entry(entry: EntryView, root: Path, fetched: Path | None) -> EntryVerdict:
    """Look where an entry's Triton groups, and the indexes of a tree of vLLM's, point."""
    verdict = judge_existing_groups(entry, root, fetched)
    if verdict == EntryVerdict() and hash_directory_of(entry.path) == entry.path:
        lacking = lacking_index(entry, fetched)
        if lacking:
            return EntryVerdict(f"it has no {lacking}, without which vLLM compiles again")
        path = path_elsewhere(entry, root)
        if path:
            return EntryVerdict(
                unverified_reason=f"not verified: its index names {shown(path)}, "
                "which vLLM before 0.33 reads"
            )
    return verdict


KIND = CacheKind(
    name="inductor",
    source_type=SourceType.TORCH_COMPILE_CACHE,
    title="torch.compile (TorchInductor, with vLLM's torch_compile_cache)",
    roots=(
        RootRule(
            "",
            first_of(
                for_engines({BackendFramework.VLLM}, below_vllm_cache("torch_compile_cache")),
                for_engines(
                    {BackendFramework.UNKNOWN},
                    from_variable(VLLM_CACHE_ROOT, "torch_compile_cache"),
                ),
                from_variable("TORCHINDUCTOR_CACHE_DIR"),
                below_temporary(_default_directory),
            ),
        ),
    ),
    pack=PackRules(
        exclude=(
            *NEVER_PACKED,
            # 150 MB a file, tied to this very g++; lies in the default root only.
            "precompiled_headers",
            # Of vLLM: measured on this host, and an empty directory.
            "gpu_p2p_access_cache_for_*.json",
            "dummy_cache",
        ),
        entry_of=entry_of,
        fault_of=fault_of,
    ),
    identity_fields=(
        "backend_framework",
        "backend_framework_version",
        "torch_version",
        "cuda_version",
        "triton_version",
        "gpu_arch",
    ),
    engine_fields=(
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "expert_parallel_size",
        "dtype",
        "quantization",
        "revision",
        "compile_config_digest",
    ),
    extra_parameters=("triton_key",),
    # Kernels for the CPU are built with -march=native, and neither Inductor's key nor the
    # library's name tells the CPU: another one gives wrong results or crashes. The same holds on
    # one machine for ATEN_CPU_CAPABILITY (docs/cache-facts.md, 2, g1 and h3). Inductor's key
    # has the GPU's name beside its architecture, and for the CPU the number of threads and the
    # whole command line of the compiler.
    strict_parameters=(
        "machine",
        "python_abi",
        "libc",
        "cpu_model",
        "cpu_flags",
        "aten_cpu_capability",
        "gpu_name",
        "gpu_sm_count",
        "cpp_threads",
        "cpp_torch_path",
        "cpp_python_include",
        "cpp_compiler",
    ),
    identity_values={**TRITON_VALUES, **CPU_CODE_VALUES},
    tools=COMPILERS,
    # Inductor works without an engine, without Triton and, with a CPU build of torch, without GPU.
    may_be_absent=frozenset(
        {
            *("backend_framework_version", "triton_version", "triton_key"),
            *("gpu_arch", "gpu_name", "gpu_sm_count"),
            *("cpp_threads", "cpp_torch_path", "cpp_python_include", "cpp_compiler"),
        }
    ),
    fixups=(relocate_triton_groups, relocate_vllm_indexes),
    existing_entry_rule=judge_existing_entry,
    # A hit, too, writes wrappers and Triton kernels out of its pickles where they are absent, and
    # AOTAutograd's layer misses on a warm cache (docs/cache-facts.md, 2), so those do not count.
    signs=UsageMarkers(compiled=("fxgraph", "*.so", "artifact_*", "model")),
    rank_sets=rank_sets,
    key_factors=VLLM_FACTORS,
)
