"""A network of one machine, apart from this one's, and hosts files of single processes in it."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.child import Child
from tests.support.processes import COMMAND

ADDRESS = "10.66.0.1"
"""Of the machine; its way out leads to 10.66.0.2, where nobody is."""
_SET_UP = f"""
ip link set lo up
ip link add mx0 type veth peer name mx1
ip addr add {ADDRESS}/24 dev mx0
ip link set mx0 up
ip link set mx1 up
ip route add default via 10.66.0.2
"""


def obstacle() -> str:
    """Return why there can be no such network here, or ""."""
    if os.geteuid():
        return "only root may make network namespaces"
    missing = [name for name in ("unshare", "nsenter", "ip") if shutil.which(name) is None]
    if missing:
        return f"there is no {' and no '.join(missing)}"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "sh", "-ec", _SET_UP], capture_output=True, text=True
    )
    return f"no network namespace: {tried.stderr.strip()}" if tried.returncode else ""


@dataclass(frozen=True)
class Network:
    """`process_id` is of a process that is in it."""

    process_id: int

    def command(self, hosts: Path) -> tuple[str, ...]:
        """Return how to run `mx-artifact` in it, with `hosts` as /etc/hosts."""
        # Without a name server, whose answers gRPC would wait for, as none can be reached.
        binds = f'mount --bind "{hosts}" /etc/hosts && mount --bind /dev/null /etc/resolv.conf'
        inside = f'{binds} && exec "$@"'
        entered = ("nsenter", f"--net=/proc/{self.process_id}/ns/net", "unshare", "--mount")
        return (*entered, "sh", "-c", inside, "sh", *COMMAND)


@contextmanager
def separate_network() -> Iterator[Network]:
    """Yield a network that ends with the block."""
    program = f"{_SET_UP}\necho ready; exec sleep infinity"
    with Child(["unshare", "--net", "sh", "-ec", program]) as child:
        assert child.line() == "ready"
        yield Network(child.process.pid)
