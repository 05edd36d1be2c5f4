"""Compresses blocks for slow links. The library is optional, and imported on first use."""

from __future__ import annotations

import importlib
import importlib.util
from functools import cache
from typing import Any

from mx_artifacts.errors import ConfigurationError

ZSTD = "zstd"
AUTO, NONE = "auto", "none"
MODES = (AUTO, ZSTD, NONE)
"""auto: where the link is slower than the compressor."""
LEVEL = 3
"""Of zstd: its own default."""
MAX_WINDOW_LOG = 23
"""A frame that wants to look back farther than 8 MiB is refused: our blocks are half of that."""

_LIBRARIES = ("compression.zstd", "backports.zstd")
"""Of Python from 3.14 on, and the same for older ones."""


@cache
def encodings() -> tuple[str, ...]:
    """Return what this process can make and undo."""
    return (ZSTD,) if any(map(_is_installed, _LIBRARIES)) else ()


def check_mode(mode: str) -> None:
    """Accept a mode of `MODES` that can be had here.

    Raises:
        ConfigurationError: zstd is demanded, and not installed.
    """
    if mode == ZSTD and not encodings():
        raise ConfigurationError(
            "compression is set to zstd, but zstd is not installed",
            hint="pip install 'mx-artifacts[zstd]', or set the compression to auto",
        )


def compress(data: memoryview) -> bytes:
    """Return `data` as one zstd frame, which states its size."""
    frame: bytes = _zstd().compress(data, LEVEL)
    return frame


def decompress(frame: bytes, into: memoryview) -> str:
    """Undo `compress` into all of `into`; say what is wrong with the frame instead, or "".

    No frame makes this use more memory than `into` has, the window and as much as the frame.
    """
    zstd = _zstd()
    undo = zstd.ZstdDecompressor(
        options={zstd.DecompressionParameter.window_log_max: MAX_WINDOW_LOG}
    )
    try:
        data = undo.decompress(frame, max_length=len(into))
    except zstd.ZstdError as error:
        return str(error)
    if len(data) != len(into) or not undo.eof:
        return f"a frame that does not end with {len(into)} bytes, but has {len(data)} or more"
    into[:] = data
    return ""


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # not even what it is in
        return False


@cache
def _zstd() -> Any:
    return importlib.import_module(next(filter(_is_installed, _LIBRARIES)))
