"""Where the kernel has no openat2, or a container's rules forbid it, all of it holds as well."""

from __future__ import annotations

import errno
import sys
from pathlib import Path

import pytest

from tests.support.child import ended

REPOSITORY = Path(__file__).parents[2]
TESTS = (
    "tests/unit/bulk/test_files.py",
    "tests/unit/bulk/test_listing.py",
    "tests/unit/filesystem/test_beneath.py",
    "tests/faults/test_strangers_publish.py",
    "tests/faults/test_strangers_install.py",
)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.EPERM])
def test_the_same_holds_part_by_part(number: int, tmp_path: Path) -> None:
    python = (sys.executable, "-m", "tests.support.no_openat2", str(number), "pytest")
    arguments = ("-p", "no:cacheprovider", "-q", "-k", "not race", f"--basetemp={tmp_path / 't'}")
    done = ended([*python, *arguments, *TESTS])
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert " passed" in done.stdout


def test_the_call_is_refused() -> None:
    code = (
        "from tests.support.no_openat2 import refuse_openat2; refuse_openat2(38); "
        "from mx_artifacts.bulk import beneath; assert beneath._openat2() is None"
    )
    done = ended([sys.executable, "-c", code])
    assert done.returncode == 0, done.stderr
