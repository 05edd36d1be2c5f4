"""Bundles, roots and pictures of roots for the tests of mx_artifacts.install."""

from __future__ import annotations

import io
import os
import stat
import subprocess
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from mx_artifacts.bundle.rules import first_parts
from mx_artifacts.install.base import ArtifactOrigin, InstallReport, RootInstall
from mx_artifacts.install.installer import install_artifact
from mx_artifacts.install.staging.staging import Staging

ORIGIN = ArtifactOrigin("ab" * 32, "source-1", "worker-1", "10.0.0.1:6555", "triton")
MTIME_SECONDS = 1_700_000_000
NEW = {
    "k1/kernel.so": b"new k1 so",
    "k1/kernel.json": b"new k1 json",
    "k2/deep/kernel.so": b"new k2 so",
    "k2/kernel.json": b"new k2 json",
    "k3": b"new k3",
}
"""Three entries of `first_parts(1)`: two directories and a file."""
OLD = {"k1/kernel.so": b"old k1", "k3": b"old k3", "mine/kernel.so": b"compiled here"}

Picture = dict[str, tuple[str, int, bytes]]


def make_bundle(path: Path, files: Mapping[str, bytes], mode: int = 0o644) -> Path:
    """Write a tar of `files`; a name that ends in "/" is an empty directory."""
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name.rstrip("/"))
            member.mtime = MTIME_SECONDS
            if name.endswith("/"):
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(member)
            else:
                member.size, member.mode = len(content), mode
                tar.addfile(member, io.BytesIO(content))
    return path


def fill(root: Path, files: Mapping[str, bytes]) -> Path:
    """Write `files` below `root`, as an engine would."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return root


def picture(root: Path) -> Picture | None:
    """Return kind, mode and content of everything in `root`; None when it is absent.

    The workspace inside a root is left out: the engine never looks there.
    """
    if not root.exists():
        return None
    found: Picture = {".": ("d", stat.S_IMODE(root.stat().st_mode), b"")}
    for base, directories, files in os.walk(root):
        if ".mx-artifacts" in directories:
            directories.remove(".mx-artifacts")
        for name in (*directories, *files):
            path = Path(base, name)
            mode = stat.S_IMODE(path.lstat().st_mode)
            if path.is_symlink():
                item = ("l", mode, os.fsencode(os.readlink(path)))
            elif path.is_dir():
                item = ("d", mode, b"")
            else:
                item = ("f", mode, path.read_bytes())
            found[str(path.relative_to(root))] = item
    return found


def contents(root: Path) -> dict[str, bytes]:
    """Return the files of `root` with their content."""
    return {
        name: content for name, (kind, _, content) in (picture(root) or {}).items() if kind == "f"
    }


def install_roots(parts: Iterable[tuple[RootInstall, Path]], **options: Any) -> InstallReport:
    """Install each bundle as its root wants it, staged in parts of 64 KiB."""
    options = {"artifact": ORIGIN, "lock_timeout_seconds": 30.0, **options}
    with ExitStack() as stagings:
        staged = [stagings.enter_context(closing(stage(root, bundle))) for root, bundle in parts]
        return install_artifact(staged, **options)


def stage(root: RootInstall, bundle: Path) -> Staging:
    """Stage a bundle; close what is returned."""
    content = memoryview(bundle.read_bytes())
    staging = Staging(root, len(content))
    try:
        for offset in range(0, len(content), 1 << 16):
            staging.write(offset, content[offset : offset + (1 << 16)])
        staging.finish_writing()
    except BaseException:
        staging.close()
        raise
    return staging


def install(root: Path, bundle: Path, **options: Any) -> InstallReport:
    """Install one bundle whose entries are the first path parts."""
    return install_roots([(RootInstall("", root, first_parts(1)), bundle)], **options)


def workspace_of(root: Path) -> Path:
    """Return where the workspace of `root` is, beside or inside."""
    inside = root / ".mx-artifacts"
    return inside if inside.exists() else root.with_name(f".mx-artifacts.{root.name}")


def leftovers(root: Path) -> list[str]:
    """Return what an install left behind that it should not have."""
    workspace = workspace_of(root)
    paths = (*workspace.glob("staging/*"), *workspace.glob("old/*"), *workspace.glob("**/.tmp"))
    return [str(path) for path in (*paths, *workspace.glob("journal*"))]


@contextmanager
def mounted(directory: Path, *options: str) -> Iterator[None]:
    """Mount something on `directory`, made as needed. Raises PermissionError when refused."""
    directory.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["mount", *options, str(directory)], capture_output=True, text=True)
    if done.returncode:
        raise PermissionError(f"mount is refused here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)
