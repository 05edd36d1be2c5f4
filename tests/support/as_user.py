"""`mx-artifact` as another user: `python -m tests.support.as_user UID ARGUMENT…`; needs root.

Everything is imported before, since an interpreter below /root is closed to other users.
"""

from __future__ import annotations

import os
import pkgutil
import sys
from importlib import import_module

import mx_artifact_cli
import mx_artifacts
from mx_artifact_cli.main import main
from mx_artifacts.transport.registry import create_transport

COMMAND = (sys.executable, "-m", "tests.support.as_user")


def _import_everything() -> None:
    for package in (mx_artifacts, mx_artifact_cli):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if ".demo" not in module.name:
                import_module(module.name)
    create_transport("nixl", "warm-up").close()
    "codec".encode("idna")  # that of host names


if __name__ == "__main__":
    _import_everything()
    os.setgroups([])
    os.setgid(0)
    os.setuid(int(sys.argv[1]))
    sys.exit(main(sys.argv[2:]))
