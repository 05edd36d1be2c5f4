"""Run a module where the kernel refuses openat2: `python -m tests.support.no_openat2 ERRNO MODULE`.

As kernels before Linux 5.6 do (ENOSYS), and seccomp profiles of older container engines (EPERM).
"""

from __future__ import annotations

import ctypes
import runpy
import struct
import sys

_OPENAT2 = 437
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 38, 22, 2
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def refuse_openat2(error: int) -> None:
    """Let openat2 fail with `error` in this process, and in those that it starts, from now on."""
    steps = (
        (0x20, 0, 0, 0),  # load the number of the system call
        (0x15, 0, 1, _OPENAT2),  # go on if it is this one, else skip one step
        (0x06, 0, 0, _ERRNO | error),
        (0x06, 0, 0, _ALLOW),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *step) for step in steps))
    program = _Program(len(steps), ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in (
        (_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        (_PR_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0),
    ):
        if libc.prctl(*arguments):
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    refuse_openat2(int(sys.argv[1]))
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
