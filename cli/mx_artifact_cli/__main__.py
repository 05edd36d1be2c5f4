"""Starts and ends the process of `python -m mx_artifact_cli` and of the console script.

It holds signals before it imports anything, because a short command spends most of its time in
imports.
"""

from __future__ import annotations

import os
from typing import NoReturn

from mx_artifact_cli.signals import hold_signals


def run() -> NoReturn:
    """Run the command line of this process and exit with its code.

    It does not end the interpreter in the usual way. After an interrupt, threads of NIXL may still
    be in C++ code, and the static destructors of C++ would abort the process. `main` has already
    cleaned up and flushed.
    """
    held = hold_signals()
    from mx_artifact_cli.main import main
    from mx_artifacts.runtime.process import claim_process

    claim_process()
    os._exit(main(held=held))


if __name__ == "__main__":
    run()
