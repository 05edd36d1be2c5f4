"""A build file says what it says to ninja, or is refused where it says more than we judge."""

from __future__ import annotations

import tempfile
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm_ffi.cpp import extension

from mx_artifacts.kinds.ninja import syntax
from mx_artifacts.kinds.ninja.build_file import BuildFile, parse_build_file, shell_quoted
from mx_artifacts.kinds.ninja.syntax import (
    MAX_BUILD_FILE_BYTES,
    MAX_EXPANDED_BYTES,
    MAX_STATEMENTS,
    MAX_TEXT_BYTES,
    UnknownForm,
)
from tests.support.ninja_program import ninja_commands

TVM_FFI = b"""\
ninja_required_version = 1.3
cxx = c++
cxxflags = -std=c++17 -fPIC -O2 -I/p/include -I/q$:r
nvcc = /c/bin/nvcc
cuda_cflags = -Xcompiler -fPIC
ldflags = -shared -L/p/lib -ltvm_ffi

rule compile
  depfile = $out.d
  deps = gcc
  command = $cxx -MMD -MF $out.d $cxxflags -c $in -o $out

rule compile_cuda
  depfile = $out.d
  deps = gcc
  command = $nvcc  --generate-dependencies-with-compile $cuda_cflags -c $in -o $out

rule merge_objects
  command = ld -r -o $out $in

rule embed_cubin
  command = python -m embed --output-obj $out --input-obj $in --cubin $cubin --name $name

rule link
  command = $cxx $in $ldflags -o $out

build cpp_0.o: compile /r/m/main.cpp
build cuda_0.o: compile_cuda /r/m/cuda.cu
build unified.o: merge_objects cpp_0.o cuda_0.o

build unified_with_k.o: embed_cubin unified.o
  cubin = k.cubin
  name = k

build m.so: link unified_with_k.o

default m.so
"""

FLASHINFER = b"""\
ninja_required_version = 1.3
name = norm
cuda_home = /usr/local/cuda
cxx = c++
nvcc = $cuda_home/bin/nvcc
cxx_launcher =\x20
nvcc_launcher =\x20

common_cflags = -DPy_LIMITED_API=0x03090000 $
    -isystem $cuda_home/include $
    -I/p
cflags = $common_cflags $
    -fPIC
post_cflags =
cuda_cflags = $common_cflags $
    -gencode=arch=compute_90a,code=sm_90a
cuda_post_cflags =
cuda_arch_flags = -gencode=arch=compute_90a,code=sm_90a
ldflags = -shared $
    -L$cuda_home/lib64

rule compile
  command = $cxx_launcher $cxx -MMD -MF $out.d $cflags -c $in -o $out $post_cflags
  depfile = $out.d
  deps = gcc

rule cuda_compile
  command = $nvcc_launcher $nvcc -MF $out.d $cuda_cflags -c $in -o $out $cuda_post_cflags
  depfile = $out.d
  deps = gcc

rule embed_cubin
  command = python -m embed --output-obj $out --input-obj $in --cubin $cubin --name $cubin_name

rule nvcc_link
  command = $nvcc -shared $cuda_arch_flags $in $ldflags -o $out

build /r/ops/norm/csrc_norm.cuda.o: cuda_compile /r/generated/norm.cu
  cuda_cflags = $common_cflags $
    -O3
build /r/ops/norm/csrc_bind.o: compile /p/bind.cc
build /r/ops/norm/embedded_0_csrc_norm.cuda.o: embed_cubin $
    /r/ops/norm/csrc_norm.cuda.o | /p/k.cubin
  cubin = /p/k.cubin
  cubin_name = k

build /r/ops/norm/norm.so: nvcc_link /r/ops/norm/embedded_0_csrc_norm.cuda.o /r/ops/norm/csrc_bind.o
default /r/ops/norm/norm.so
"""


def fault_of(text: bytes) -> str:
    try:
        parse_build_file(text)
    except UnknownForm as error:
        return str(error)
    return ""


def commands(build: BuildFile) -> dict[bytes, bytes]:
    return {step.output: step.command for step in build.steps}


@pytest.mark.process
@pytest.mark.parametrize("content", [TVM_FFI, FLASHINFER], ids=["tvm_ffi", "flashinfer"])
def test_build_files_of_the_tools_are_read_as_ninja_reads_them(
    content: bytes, tmp_path: Path
) -> None:
    (tmp_path / "build.ninja").write_bytes(content)
    build = parse_build_file(content)
    assert commands(build) == ninja_commands(tmp_path)
    assert build.needed_steps() == build.steps


def test_steps_have_their_inputs() -> None:
    step = parse_build_file(FLASHINFER).steps[2]
    assert step.inputs == (b"/r/ops/norm/csrc_norm.cuda.o", b"/p/k.cubin")
    assert b"--input-obj /r/ops/norm/csrc_norm.cuda.o --cubin" in step.command
    assert [s.has_deps for s in parse_build_file(FLASHINFER).steps] == [True, True, False, False]


def test_files_that_the_default_outputs_do_not_need_are_not_checked() -> None:
    text = b"rule r\n  command = c\nbuild a: r i\nbuild b: r a\nbuild c: r a\ndefault b\n"
    assert [s.output for s in parse_build_file(text).needed_steps()] == [b"a", b"b"]


@pytest.mark.process
@pytest.mark.parametrize("more", [{}, {"embed_cubin": {"k": b"", "l": b""}}, {"output": "m.o"}])
def test_the_build_file_that_the_installed_tvm_ffi_writes(
    more: dict[str, Any], tmp_path: Path
) -> None:
    text = extension._generate_ninja_build(
        "m", ["-DX=$$y"], [], ["-lz"], ["/a:b"], ["/r/a.cpp", "/r/b:c.cc", "/r/c.c"], **more
    )
    (tmp_path / "build.ninja").write_text(text)
    assert commands(parse_build_file(text.encode())) == ninja_commands(tmp_path)


# --- any file of the form ------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b-c", "d_1", "flags", "E"])
SPACES = st.sampled_from(["", " ", "  ", " $\n   ", "$\n"])
PATH_TEXTS = st.text(alphabet="abz019_+.-=@'\"(){}#~éλ", min_size=1, max_size=6)
PLAIN_TEXTS = st.text(alphabet="ab :|=#'\"/-\\{}()éλ", min_size=1, max_size=6)


@st.composite
def texts(draw: st.DrawFn, own: tuple[str, ...] = (), *, is_path: bool = False) -> str:
    """Return a text as a build file may spell it."""
    parts = []
    for _ in range(draw(st.integers(0, 5))):
        name = draw(NAMES | st.sampled_from(own)) if own else draw(NAMES)
        plain = draw(PATH_TEXTS if is_path else PLAIN_TEXTS)
        spelled = [plain, f"${{{name}}}", "$$", "$ ", "$:", "$\n  "]
        # A name takes what follows for a part of it, unless that cannot be one.
        spelled.append(f"${name}" + draw(st.sampled_from([".d", "$\n", "/", "="])))
        parts.append(draw(st.sampled_from(spelled)))
    return "".join(parts)


@st.composite
def build_files(draw: st.DrawFn) -> str:
    """Return a build file with paths that are short, and all different."""
    lines = ["ninja_required_version = 1.3"]
    variables = draw(st.lists(st.tuples(NAMES, SPACES, SPACES, texts()), max_size=5))
    lines += [f"{name}{before}={after}{text}" for name, before, after, text in variables]
    rules = draw(st.integers(1, 3))
    for number in range(rules):
        lines += ["", f"rule r{number}"]
        if draw(st.booleans()):
            lines += ["  depfile = $out.d", "  deps = gcc"]
        lines.append(f"  command = c{draw(texts(('in', 'out')))}")
    outputs: list[str] = []
    for number in range(draw(st.integers(1, 4))):
        rule = draw(st.integers(0, rules - 1))
        inputs = [
            f"i{number}_{n}{draw(texts(is_path=True))}x" for n in range(draw(st.integers(1, 3)))
        ]
        inputs += draw(st.lists(st.sampled_from(outputs), max_size=2)) if outputs else []
        implicit = f" | imp{number}" if draw(st.booleans()) else ""
        outputs.append(f"o{number}{draw(PATH_TEXTS.map(lambda t: t.replace('..', '.')))}")
        lines.append(f"build {outputs[-1]}:{draw(SPACES)}r{rule} {' '.join(inputs)}{implicit}")
        for name, text in draw(st.lists(st.tuples(NAMES, texts()), max_size=2)):
            lines.append(f"{draw(st.sampled_from(['  ', ' ']))}{name} = {text}")
        if draw(st.booleans()):
            name, text = draw(st.tuples(NAMES, texts()))
            lines.append(f"{name} = {text}")  # commands see it, earlier paths do not
    if draw(st.booleans()):
        lines.append(f"default {draw(st.sampled_from(outputs))}")
    return "\n".join([*lines, ""])


@pytest.mark.process
@settings(max_examples=150, deadline=None)
@given(build_files())
def test_commands_are_those_of_ninja(text: str) -> None:
    """What is not refused is what ninja has, to the byte: their hashes must agree."""
    try:
        build = parse_build_file(text.encode())
    except UnknownForm:
        return
    with tempfile.TemporaryDirectory() as name:
        Path(name, "build.ninja").write_text(text)
        assert commands(build) == ninja_commands(Path(name))


@given(build_files())
@settings(deadline=None)
def test_files_of_the_form_are_mostly_read(text: str) -> None:
    """Only paths can be at fault: an expanded one may have empty parts, and two may be the same."""
    fault = fault_of(text.encode())
    known = ("the path", "again", "as input", "without inputs")
    assert not fault or any(each in fault for each in known)


@pytest.mark.process
@pytest.mark.parametrize("path", [b"a/b.o", b"/a=b", b"it's", b"a b", "é".encode(), b"a@b", b"-"])
def test_paths_are_quoted_as_ninja_does(path: bytes, tmp_path: Path) -> None:
    spelled = path.replace(b" ", b"$ ")
    text = b"rule r\n  command = $in > $out\nbuild x%s: r %s\n" % (spelled, spelled)
    (tmp_path / "build.ninja").write_bytes(text)
    command = ninja_commands(tmp_path)[b"x" + path]
    assert command == shell_quoted(path) + b" > " + shell_quoted(b"x" + path)
    assert commands(parse_build_file(text)) == {b"x" + path: command}


@pytest.mark.process
@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=60) | st.text(alphabet="build rule=:|$\n inout{}#a", max_size=60))
def test_any_bytes_are_a_build_file_or_refused(noise: bytes | str) -> None:
    tail = noise.encode() if isinstance(noise, str) else noise
    text = b"rule r\n  command = c\nbuild o: r i\n" + tail
    fault = fault_of(text)
    if fault:
        assert fault.isprintable()
        assert len(fault) < 400
        return
    build = parse_build_file(text)
    with tempfile.TemporaryDirectory() as name:
        Path(name, "build.ninja").write_bytes(text)
        assert commands(build) == ninja_commands(Path(name))


# --- what is refused -----------------------------------------------------------------------------

RULE = "rule r\n  command = c\n"

REFUSED = {
    "a response file": (f"{RULE}  rspfile = victim\n", "line 3 has the rule variable 'rspfile'"),
    "its content": (f"{RULE}  rspfile_content = y\n", "rule variable 'rspfile_content'"),
    "a response file for all": (f"rspfile = v\n{RULE}", "line 1 has the variable 'rspfile'"),
    "a command for all": (f"command = v\n{RULE}", "line 1 has the variable 'command'"),
    "a response file for one": (f"{RULE}build o: r i\n  rspfile = v\n", "line 4 has the variable"),
    "dyndep": (f"{RULE}build o: r i || d\n  dyndep = d\n", "in the place of"),
    "dyndep of a rule": (f"{RULE}  dyndep = d\n", "rule variable 'dyndep'"),
    "an order": (f"{RULE}build o: r i || d\n", "line 3 has '|' in the place of the end"),
    "a validation": (f"{RULE}build o: r i |@ d\n", "line 3 has '|' in the place of the end"),
    "implicit outputs": (f"{RULE}build o | p: r i\n", "'|' in the place of ':'"),
    "no inputs": (f"{RULE}build o: r | i\n", "a build statement without inputs"),
    "two outputs": (f"{RULE}build o p: r i\n", "a build statement with 2 outputs"),
    "another dependency file": (f"{RULE}  depfile = /v\n  deps = gcc\n", "not $out.d"),
    "one elsewhere": (f"{RULE}  depfile = ../$out.d\n  deps = gcc\n", "not $out.d"),
    "one that stays": (f"{RULE}  depfile = $out.d\n", "whose deps are not gcc"),
    "msvc": (f"{RULE}  depfile = $out.d\n  deps = msvc\n", "whose deps are not gcc"),
    "generator": (f"{RULE}  generator = 1\n", "rule variable 'generator'"),
    "restat": (f"{RULE}  restat = 1\n", "rule variable 'restat'"),
    "a pool": ("pool p\n  depth = 1\n", "line 1 has the statement 'pool'"),
    "include": ("include x\n", "the statement 'include'"),
    "include, by variable": ("f = x\ninclude $f\n", "line 2 has the statement 'include'"),
    "include, on two lines": ("include $\n  /etc/passwd\n", "the statement 'include'"),
    "include, behind one that goes on": ("a = b $\n\ninclude x\n", "line 3 has the statement"),
    "subninja": ("subninja x\n", "the statement 'subninja'"),
    "builddir": ("builddir = /v\n", "the variable 'builddir'"),
    "builddir, on two lines": ("builddir $\n = /v\n", "the variable 'builddir'"),
    "a newer ninja": ("ninja_required_version = 1.13\n", "the required version '1.13'"),
    "phony": ("build o: phony i\n", "the unknown rule 'phony'"),
    "an unknown rule": ("build o: s i\n", "the unknown rule 's'"),
    "a rule again": (f"{RULE}{RULE}", "line 3 has the rule 'r' again"),
    "an output again": (f"{RULE}build o: r i\nbuild o: r j\n", "the output 'o' again"),
    "a circle": (f"{RULE}build o: r o\n", "'o', which it or an earlier line has as input"),
    "a wide circle": (f"{RULE}build o: r p\nbuild p: r o\n", "line 4 has 'p', which"),
    "an unknown default": (f"{RULE}build o: r i\ndefault p\n", "the default 'p', which none makes"),
    "no default": (f"{RULE}build o: r i\ndefault\n", "a default statement without outputs"),
    "no command": ("rule r\n", "a rule without a command"),
    "nothing": ("", "it builds nothing"),
    "a path upwards": (f"{RULE}build ../o: r i\n", "the path '../o'"),
    "a path upwards inside": (f"{RULE}build o: r a/../../i\n", "the path 'a/../../i'"),
    "a path with an empty part": (f"{RULE}build o: r a//i\n", "the path 'a//i'"),
    "a path of nothing": (f"{RULE}build o: r $none\n", "the path ''"),
    "a path for ever": (f"{RULE}build o: r {'i' * 5000}\n", "line 3 has the path 'iiii"),
    "a reference to its own": (f"rule r\n  command = $depfile\n{RULE}", "a reference to 'depfile'"),
    "in, where there is none": (f"a = $in\n{RULE}", "a reference to 'in'"),
    "an escape": (f"a = $x$!\n{RULE}", "the escape '$!'"),
    "the newer escape of a line": (f"a = $^\n{RULE}", "the escape '$^'"),
    "a tab": (f"a =\tb\n{RULE}", r"the byte b'\t'"),
    "a NUL": (f"a = b\0\n{RULE}", r"line 1 has the byte b'\x00'"),
    "a carriage return": (f"a = b\r\n{RULE}", r"the byte b'\r'"),
    "no end of the line": (f"{RULE}build o: r i", "the end of the file within a line"),
    "an indent": (f"{RULE}build o: r i\n\n  a = b\n", "in the place of a statement"),
    "a comment": (f"# here\n{RULE}", "'#' in the place of a statement"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_build_files_that_the_tools_never_write_are_refused(name: str) -> None:
    text, because = REFUSED[name]
    with pytest.raises(UnknownForm) as caught:
        parse_build_file(text.encode())
    assert because in str(caught.value)


def test_a_build_file_that_is_not_utf_8() -> None:
    with pytest.raises(UnknownForm, match="line 2 has text that is not UTF-8"):
        parse_build_file(b"a = b\nc = \xff\n")


DOUBLING = b"".join(b"v%d = $v%d$v%d\n" % (n + 1, n, n) for n in range(200))
TEXT_LIMIT = f"a text that expands to more than {MAX_TEXT_BYTES} bytes"
ALL_LIMIT = "all texts expand to more than {} bytes"

BOMBS = {
    "doubling": (b"v0 = xxxxxxxxxxxxxxxx\n" + DOUBLING, f"line 15 has {TEXT_LIMIT}"),
    "28 KiB": (b"a = " + b"x" * 14_000 + b"\nb = " + b"$a" * 7_000 + b"\n", TEXT_LIMIT),
    "a little more than a shell takes": (b"a = " + b"x" * (MAX_TEXT_BYTES + 1) + b"\n", TEXT_LIMIT),
    "many long texts": (
        b"a = " + b"x" * 100_000 + b"\n" + b"b = $a\n" * 10_000,
        f"line 168 has {ALL_LIMIT.format(MAX_EXPANDED_BYTES)}",
    ),
    "many long commands": (
        b"a = "
        + b"x" * 100_000
        + b"\nrule r\n  command = $a\n"
        + b"".join(b"build o%d: r i\n" % n for n in range(10_000)),
        f"line 169 has {ALL_LIMIT.format(MAX_EXPANDED_BYTES)}",
    ),
    "many inputs, often": (
        b"rule r\n  command = " + b"$in" * 1_000 + b"\nbuild o: r" + b" abcdefgh" * 20_000 + b"\n",
        TEXT_LIMIT,
    ),
    "many statements": (b"a = b\n" * 100_000, f"more than {MAX_STATEMENTS} statements"),
    "many lines": (b"\n" * 150_000, "it builds nothing"),
    "many parts": (b"a = " + b"$$" * 150_000 + b"\n", TEXT_LIMIT),
    "one line": (b"a = " + b"x" * 1_000_000, "the end of the file within a line"),
    "longer than any": (b"a = b\n" * 200_000, f"it is longer than {MAX_BUILD_FILE_BYTES} bytes"),
    "lines that go on": (b"a = " + b"$\n" * 500_000 + b"\n", "it builds nothing"),
    "blanks": (b"a" + b" " * 1_000_000 + b"= b\n", "it builds nothing"),
    "blank indents": (b"rule r\n" + (b" " * 1_000 + b"\n") * 1_000, "a rule without a command"),
}


def refusal_in_little_memory(content: bytes) -> str:
    """Return why a file is refused, and check that this took little memory."""
    tracemalloc.start()
    try:
        with pytest.raises(UnknownForm) as caught:
            parse_build_file(content)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 100 << 20
    return str(caught.value)


@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_takes_little_memory_and_ends_at_a_limit(name: str) -> None:
    content, because = BOMBS[name]
    assert because in refusal_in_little_memory(content)


def test_empty_references_count_as_what_they_expand_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a file of 1 MiB had thousands of millions of them looked up."""
    monkeypatch.setattr(syntax, "MAX_EXPANDED_BYTES", 1 << 18)
    content = b"rule r\n  command = " + b"$e" * 30_000 + b"\n"
    content += b"".join(b"build o%d: r i\n" % n for n in range(10_000))
    assert refusal_in_little_memory(content) == f"line 9 has {ALL_LIMIT.format(1 << 18)}"
