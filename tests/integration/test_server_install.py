"""The central server runs where only its own requirements are installed."""

from __future__ import annotations

import sys
from importlib import metadata

from packaging.requirements import Requirement

from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.sources import SourceQuery
from tests.support.child import REPOSITORY, Child

SERVE = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(f"not installed in this test: {{name}}")

sys.meta_path.insert(0, Blocker())
from mx_artifact_cli.__main__ import run
from tests.support.child import REPOSITORY
sys.argv = ["mx-artifact", "serve", "--port", "0"]
run()
"""


def _requirements(extra: str = "") -> set[tuple[str, str]]:
    """Return name and versions of what the distribution, or an extra of it, requires."""
    found = map(Requirement, metadata.requires("mx-artifacts") or [])
    marker = f'extra == "{extra}"' if extra else "extra"
    return {
        (each.name, str(each.specifier))
        for each in found
        if (marker in str(each.marker)) == bool(extra)
    }


def test_the_server_runs_without_the_packages_of_a_node() -> None:
    blocked = {"torch", "nixl", "nixl_cu12", "nixl_cu13", "numpy", "rapidhash", "rich", "triton"}
    with Child([sys.executable, "-c", SERVE.format(blocked=blocked)]) as server:
        address = server.line()
        assert address is not None, server.errors
        with CentralClient(address) as client:
            assert client.list_sources(SourceQuery()) == []
        assert server.stop() == 0


def test_the_lists_of_requirements_agree() -> None:
    lines = (REPOSITORY / "requirements" / "server.txt").read_text().splitlines()
    listed = [Requirement(line) for line in lines if not line.startswith("#")]
    assert {(each.name, str(each.specifier)) for each in listed} == _requirements("server")
    assert _requirements() == _requirements("server") | _requirements("node")
