"""Generate mx_artifacts/wire/gen from proto/, or check that it is up to date.

usage: python tools/generate_protos.py [--check]

Needs the pinned grpcio-tools of the `dev` extra: its protobuf version is written into the output.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import generated

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


if __name__ == "__main__":
    raise SystemExit(
        generated.main(generate, GENERATED, owned="*.py*", remake="make proto", usage=__doc__)
    )
