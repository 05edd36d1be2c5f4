"""Generate mx_artifacts/wire/gen from proto/, or check that it is up to date.

usage: python tools/generate_protos.py [--check]

Needs the pinned grpcio-tools of the `dev` extra: its protobuf version is written into the output.
"""

from __future__ import annotations

import argparse
import filecmp
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
GENERATED = ROOT / "mx_artifacts" / "wire" / "gen"
PACKAGE = "mx_artifacts.wire.gen"

# protoc writes imports relative to proto/; ours live in a package of their own.
IMPORT = re.compile(r"^from (model_express|mx_artifacts\.v1)(\.[\w.]+)? import ", re.MULTILINE)


def generate(out: Path) -> None:
    """Write all generated modules below `out`."""
    protos = sorted(str(p.relative_to(PROTO)) for p in PROTO.rglob("*.proto"))
    subprocess.run(
        [
            sys.executable,
            "-m",
            "grpc_tools.protoc",
            f"-I{PROTO}",
            f"--python_out={out}",
            f"--pyi_out={out}",
            f"--grpc_python_out={out}",
            *protos,
        ],
        check=True,
    )
    for path in sorted(out.rglob("*.py*")):
        # A package of that name would shadow the library itself inside gen/.
        text = IMPORT.sub(lambda m: f"from {PACKAGE}.{m[1]}{m[2] or ''} import ", path.read_text())
        path.write_text(text)
    for folder in [out, *(p for p in out.rglob("*") if p.is_dir())]:
        (folder / "__init__.py").write_text("")


def differences(expected: Path, actual: Path) -> list[str]:
    """List files that differ, are missing or are left over."""
    names = {
        str(p.relative_to(base))
        for base in (expected, actual)
        for p in base.rglob("*.py*")
        if "__pycache__" not in p.parts
    }
    return [
        n
        for n in sorted(names)
        if not (
            (expected / n).is_file()
            and (actual / n).is_file()
            and filecmp.cmp(expected / n, actual / n, shallow=False)
        )
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 on a difference")
    check = parser.parse_args().check
    if not check:
        generate(GENERATED)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        stale = differences(Path(folder), GENERATED)
    for name in stale:
        print(f"generated code is out of date: {name}; run 'make proto'", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
