"""The process's first and last moment: `python -m mx_artifact_cli`, and the console script.

Nothing is imported here before signals are held, since the imports are most of a short command.
"""

from __future__ import annotations

import os
from typing import NoReturn

from mx_artifact_cli.signals import hold_signals


def run() -> NoReturn:
    """Run the process's command line and leave with its exit code.

    Without the interpreter's own end: threads of NIXL that an interrupt left behind may still be
    inside C++, whose static destructors would abort the process. `main` has cleaned up and flushed.
    """
    held = hold_signals()
    from mx_artifact_cli.main import main
    from mx_artifacts.runtime.process import claim_process

    claim_process()
    os._exit(main(held=held))


if __name__ == "__main__":
    run()
