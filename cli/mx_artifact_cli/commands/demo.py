"""`mx-artifact demo`: publish, fetch and use a cache, with real compilers and processes."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mx_artifact_cli.options import Verb
from mx_artifact_cli.output import Output
from mx_artifact_cli.text import format_bytes, format_seconds
from mx_artifacts.node.environment import environment
from mx_artifacts.runtime.clock import SYSTEM_CLOCK

if TYPE_CHECKING:
    from mx_artifact_cli.demo.processes import Processes
    from mx_artifact_cli.demo.scenario import Comparison


@click.command("demo", cls=Verb)
@click.option(
    "--kind",
    "wanted",
    multiple=True,
    type=click.Choice(["inductor", "triton"]),
    show_default=False,
    help="Cache kind to show. May be repeated.  [default: every kind whose compiler is installed]",
)
@click.option("--keep", is_flag=True, help="Keep the caches and logs, and print where they are.")
@click.pass_obj
def command(output: Output, wanted: tuple[str, ...], keep: bool) -> None:
    """Compile on one node, run without compiling on another.

    Node A compiles a small model with torch.compile, and Triton kernels, and publishes the caches.
    Node B fetches and installs them, and runs the same jobs. Both nodes are directories of this
    machine. The demo fails if node B compiles anything.
    """
    from mx_artifact_cli.demo.requirements import MODULES, check_compiler, runnable_kinds
    from mx_artifact_cli.demo.scenario import Scenario

    env = environment()
    kinds, missing = runnable_kinds(wanted)
    if "inductor" in kinds:
        check_compiler(env)
    for kind in missing:
        output.note(
            f"{kind} is left out, because {MODULES[kind]} is not installed "
            f"(pip install {MODULES[kind]})"
        )
    with _workplace(output, keep) as (directory, processes):
        if keep:
            # Now, because a user needs the logs after a failure.
            output.notice(f"caches and logs are kept in {directory}", {"directory": directory})
        comparisons = Scenario(directory, kinds, processes, env, output.note).play()
    for comparison in comparisons:
        comparison.check()
    _show(output, comparisons, directory if keep else None)


@contextlib.contextmanager
def _workplace(output: Output, keep: bool) -> Iterator[tuple[Path, Processes]]:
    """Yield a directory and processes; remove both afterwards, also after a signal."""
    from mx_artifact_cli.demo.interrupts import one_interrupt, signals_held
    from mx_artifact_cli.demo.processes import Processes

    with one_interrupt(), contextlib.ExitStack() as stack:
        with signals_held():
            directory = Path(tempfile.mkdtemp(prefix="mx-artifact-demo-"))
            logs = directory / "logs"
            logs.mkdir()
            processes = Processes(logs, output.note, SYSTEM_CLOCK)

            def end() -> None:
                processes.close()
                if directory.exists() and not keep:
                    shutil.rmtree(directory)

            # Twice: an interrupt may stop the first call. There can be only one interrupt.
            stack.callback(end)
            stack.callback(end)
        yield directory, processes


def _show(output: Output, comparisons: list[Comparison], kept: Path | None) -> None:
    output.table(
        ["kind", "jobs", "hits", "misses", "cold", "warm", "speed-up", "moved"],
        [
            [
                each.warm.kind,
                each.warm.jobs,
                each.warm.hits,
                each.warm.misses,
                format_seconds(each.cold.seconds),
                format_seconds(each.warm.seconds),
                f"{each.cold.seconds / each.warm.seconds:.1f} x",
                f"{each.files} files, {format_bytes(each.total_bytes)}",
            ]
            for each in comparisons
        ],
    )
    result: dict[str, object] = {"kinds": [each.as_dict() for each in comparisons]}
    output.result(result | ({"directory": kept} if kept else {}))
