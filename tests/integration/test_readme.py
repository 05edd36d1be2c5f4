"""The README's loader example runs, against a real server and publisher."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from mx_artifacts.install.receipts.receipt import load_receipt
from tests.support.child import REPOSITORY, ended
from tests.support.nodes import IDENTITY, WORDS, clean_environment
from tests.support.processes import serving

# What differs here: that no engine, compiler or GPU can be asked.
STATED = IDENTITY | {"backend_framework": "vllm"}
CHANGES = {
    '("triton", "inductor")': '("tilelang",)',
    'kind.probe("org/name")': f'kind.probe("org/name", overrides={STATED!r})',
}


def test_the_loader_example(tmp_path: Path) -> None:
    env = clean_environment(tmp_path) | {"TILELANG_CACHE_DIR": str(tmp_path / "cold")}
    env["MX_ARTIFACT_BUNDLE_ROOT"] = str(tmp_path / "bundles")
    entry = tmp_path / "warm" / "1" / "cuda-sm90" / "autotuner" / ("a" * 64)
    entry.mkdir(parents=True)
    (entry / "kernel.cu").write_bytes(os.urandom(1000))
    readme = (REPOSITORY / "README.md").read_text()
    (example,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    with serving("serve", "--port", "0", env=env, logs=tmp_path) as server:
        address = server.ready["address"]
        words = (*WORDS, "--model", "org/name", "--server", address)
        with serving("publish", *words, "--root", str(tmp_path / "warm"), env=env, logs=tmp_path):
            for old, new in CHANGES.items():
                assert old in example
                example = example.replace(old, new)
            command = [sys.executable, "-c", example]
            done = ended(command, env=env | {"MX_SERVER_ADDRESS": address})
    assert done.returncode == 0, done.stderr
    name, path = done.stdout.split()
    assert name == "tilelang"
    receipt = load_receipt(Path(path))
    assert [Path(root.root) for root in receipt.roots] == [tmp_path / "cold"]
    assert (tmp_path / "cold" / entry.relative_to(tmp_path / "warm") / "kernel.cu").is_file()
