"""Something that is in use: before an install is done it is waited for, and then only told."""

from __future__ import annotations

import logging
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest

from mx_artifacts.errors import InstallError
from mx_artifacts.install.uninstall import uninstall_artifact
from mx_artifacts.observability.events import Event
from tests.support.install_cases import (
    NEW,
    OLD,
    contents,
    fill,
    install,
    leftovers,
    make_bundle,
    mounted,
    picture,
    workspace_of,
)


@pytest.fixture(name="bundle")
def _bundle(tmp_path: Path) -> Path:
    return make_bundle(tmp_path / "artifact.tar", NEW)


@pytest.fixture(name="mounts")
def _mounts() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def mount(mounts: ExitStack, place: Path, *options: str) -> None:
    try:
        mounts.enter_context(mounted(place, *options))
    except PermissionError as error:
        pytest.skip(str(error))


def test_an_entry_that_is_busy_for_a_moment_is_replaced(
    tmp_path: Path, bundle: Path, mounts: ExitStack
) -> None:
    root = fill(tmp_path / "root", OLD)
    mount(mounts, root / "k1", "-t", "tmpfs", "none")
    threads = []

    def end_soon(event: Event) -> None:
        if event.name == "install.journaled":
            threads.append(threading.Timer(0.15, mounts.close))
            threads[0].start()

    install(root, bundle, replace=True, events=end_soon)
    threads[0].join()
    assert contents(root / "k1") == {"kernel.so": b"new k1 so", "kernel.json": b"new k1 json"}
    assert leftovers(root) == []


def test_an_entry_that_stays_busy_is_an_error_and_nothing_changes(
    tmp_path: Path, bundle: Path, mounts: ExitStack
) -> None:
    root = fill(tmp_path / "root", OLD)
    mount(mounts, root / "k3 of ours", "-t", "tmpfs", "none")
    bundle = make_bundle(tmp_path / "b.tar", {"k1/kernel.so": b"1", "k3 of ours/x": b"2"})
    before = picture(root)
    with pytest.raises(InstallError, match="busy") as caught:
        install(root, bundle, replace=True)
    assert "mounted" in caught.value.hint()
    assert picture(root) == before
    assert leftovers(root) == []


def test_busy_paths_after_the_receipt_only_give_a_warning(
    tmp_path: Path, bundle: Path, mounts: ExitStack, caplog: pytest.LogCaptureFixture
) -> None:
    root = fill(tmp_path / "root", OLD)
    mount(mounts, tmp_path / "probe", "-t", "tmpfs", "none")
    journal = workspace_of(root) / "journal.json"

    def bind(event: Event) -> None:
        if event.name == "install.receipt":
            subprocess.run(["mount", "--bind", str(journal), str(journal)], check=True)
            mounts.callback(subprocess.run, ["umount", str(journal)], check=True)

    with caplog.at_level(logging.WARNING):
        report = install(root, bundle, replace=True, events=bind)
    assert "the install is complete" in caplog.text
    assert report.receipt_path.exists()
    assert journal.exists()
    mounts.close()
    # The next one finds it done, and tidies up.
    again = install(root, bundle)
    assert again.unchanged
    assert contents(root)["k1/kernel.so"] == NEW["k1/kernel.so"]
    assert leftovers(root) == []
    with suppress(InstallError):
        uninstall_artifact(report.receipt_path, lock_timeout_seconds=1.0)
    assert "k1/kernel.so" not in contents(root)
