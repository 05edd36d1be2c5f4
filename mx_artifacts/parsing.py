"""Parsers of texts that people type: text -> value, or ValueError with the expected form.

Settings, flags and identity values use the same parsers, so the same mistake gets the same message.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from unicodedata import category

from mx_artifacts.core.chunks import MAX_CHUNK_SIZE_BYTES
from mx_artifacts.core.groups import NAME, NAME_EXPECTED
from mx_artifacts.errors import ConfigurationError

T = TypeVar("T")
MAX_MODEL_NAME_LENGTH = 1024
"""Characters; above the paths and repository names that engines take."""


def parse_utf8(text: str) -> str:
    """Accept any text, an empty one too, that the wire can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("text in UTF-8") from None
    return text


def parse_text(text: str) -> str:
    """Accept any text that is not blank."""
    if not text.strip():
        raise ValueError("some text")
    return parse_utf8(text.strip())


def parse_model_name(text: str) -> str:
    """Accept a model's name as others can read it: bounded, and without control characters."""
    name = parse_text(text)
    if len(name) > MAX_MODEL_NAME_LENGTH or any(category(c) == "Cc" for c in name):
        raise ValueError(
            f"a name of at most {MAX_MODEL_NAME_LENGTH} characters and no control characters"
        )
    return name


def parse_artifact_id(text: str) -> str:
    """Accept an artifact id; they are compared in lower case."""
    if not re.fullmatch(r"[0-9a-f]{64}", text.strip().lower()):
        raise ValueError("64 hexadecimal digits")
    return text.strip().lower()


def parse_group_name(text: str) -> str:
    """Accept the name of a group, or of a member."""
    if not NAME.fullmatch(text.strip()):
        raise ValueError(NAME_EXPECTED)
    return text.strip()


def parse_path(text: str) -> Path:
    """Accept a path; `~` is expanded."""
    if not text.strip():
        raise ValueError("a path")
    try:
        return Path(text.strip()).expanduser()
    except RuntimeError:  # ~name of an unknown user
        raise ValueError("a path whose ~ names a home directory") from None


_HOST_NAME = re.compile(
    r"([A-Za-z0-9_]([A-Za-z0-9_-]{0,62})\.)*[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})\.?"
)
"""Of RFC 1123, and underscores, which Docker's names have."""
_MAX_HOST_NAME_LENGTH = 253


def parse_address(text: str) -> str:
    """Accept host:port; an http:// or https:// prefix and a trailing slash are dropped."""
    address = re.sub(r"^https?://", "", parse_utf8(text.strip())).rstrip("/")
    host, separator, port = address.rpartition(":")
    if not (separator and host and port.isdecimal() and 0 < int(port[:6]) < 65536):
        raise ValueError("host:port")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        # fd00::1:8001 is an IPv6 address with no port as much as one with port 8001.
        raise ValueError("host:port, with an IPv6 address in brackets, such as [fd00::1]:8001")
    try:
        parse_host(host)
    except ValueError:
        raise ValueError("host:port of a host name or an IP address") from None
    return address


def parse_host(text: str) -> str:
    """Accept a host name or an IP address without a port; brackets of IPv6 are dropped."""
    host = parse_utf8(text.strip())
    expected = ValueError("a host name or an IP address, without a port")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    if ":" in host or bare is not host:
        try:
            return str(ipaddress.IPv6Address(bare))
        except ValueError:
            raise expected from None
    if not _HOST_NAME.fullmatch(bare) or len(bare) > _MAX_HOST_NAME_LENGTH:
        raise expected
    return bare


_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h)?")
_DURATION_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_duration(text: str) -> float:
    """Accept seconds, or a number with ms, s, m or h; returns seconds > 0."""
    match = _DURATION.fullmatch(text.strip().lower())
    seconds = float(match[1]) * _DURATION_SECONDS[match[2] or "s"] if match else 0.0
    if not 0.0 < seconds <= 7 * 86400:
        raise ValueError("a duration above 0 and up to 7 days, such as 30, 30s, 5m")
    return seconds


def parse_wait(text: str) -> float:
    """Accept a duration, or 0: do not wait."""
    if re.fullmatch(r"0+(\.0*)?\s*(ms|s|m|h)?", text.strip().lower()):
        return 0.0
    try:
        return parse_duration(text)
    except ValueError as error:
        raise ValueError(f"0 (do not wait), or {error}") from None


_SIZE = re.compile(r"(\d+)\s*(?:([kmgt])i?)?b?")


def parse_size(text: str) -> int:
    """Accept bytes, or a number with K, M, G, T (powers of 1024); returns bytes > 0."""
    match = _SIZE.fullmatch(text.strip().lower())
    value = int(match[1]) * 1024 ** ("kmgt".index(match[2]) + 1 if match[2] else 0) if match else 0
    if value <= 0:
        raise ValueError("a size above 0, such as 67108864 or 64MiB")
    return value


def parse_rate(text: str) -> int | None:
    """Accept a size, which goes by in a second, or 0 for any number of bytes (None)."""
    try:
        return None if text.strip() == "0" else parse_size(text)
    except ValueError:
        raise ValueError("bytes per second, such as 500MiB, or 0 for no limit") from None


def parse_chunk_size(text: str) -> int:
    """Accept a size of at most 4 GiB."""
    value = parse_size(text)
    if value > MAX_CHUNK_SIZE_BYTES:
        raise ValueError("a size of at most 4GiB")
    return value


def parse_integer(low: int, high: int) -> Callable[[str], int]:
    """Return a parser of a whole number in low..high."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"\d+", text.strip()) or not low <= int(text) <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return int(text)

    return parse


def parse_choice(*choices: str) -> Callable[[str], str]:
    """Return a parser of one of `choices`, in any case."""

    def parse(text: str) -> str:
        for choice in choices:
            if text.strip().lower() == choice.lower():
                return choice
        raise ValueError(f"one of {', '.join(choices)}")

    return parse


MAX_LABEL_LENGTH = 253
"""Characters of a label's value: those of a host name, the longest that is of use."""
_LABEL = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_./-]*[A-Za-z0-9])?")
_LABEL_EXPECTED = "labels such as zone=a,rack=7, or a JSON object of texts"


def parse_labels(text: str) -> dict[str, str]:
    """Accept KEY=VALUE by commas, or a JSON object, as the reference has it."""
    if text.strip().startswith("{"):
        try:
            labels = json.loads(text)
        except ValueError:
            raise ValueError(_LABEL_EXPECTED) from None
    else:
        pairs = [each.partition("=") for each in text.split(",") if each.strip()]
        labels = {key.strip(): value.strip() for key, _, value in pairs}
    for key, value in labels.items():
        good = isinstance(value, str) and 0 < len(value) <= MAX_LABEL_LENGTH
        if not (_LABEL.fullmatch(key) and good and value.isprintable()):
            raise ValueError(_LABEL_EXPECTED)
        parse_utf8(value)
    return dict(labels)


def parse_names(text: str) -> tuple[str, ...]:
    """Accept names by commas, each one once."""
    names = tuple(each.strip() for each in text.split(",") if each.strip())
    if not names or len(set(names)) < len(names) or not all(map(_LABEL.fullmatch, names)):
        raise ValueError("different names, separated by commas, such as zone,rack,host")
    return names


_RDMA_DEVICE = re.compile(r"[A-Za-z0-9_.-]+(:[0-9]+)?")


def parse_rdma_devices(text: str) -> tuple[str, ...]:
    """Accept names of RDMA devices, with or without a port, or "auto"."""
    names = tuple(each.strip() for each in text.split(","))
    if len(set(names)) < len(names) or not all(map(_RDMA_DEVICE.fullmatch, names)):
        raise ValueError("auto, or different devices, separated by commas: mlx5_0:1,mlx5_1:1")
    return names


def parse_gbps(text: str) -> float:
    """Accept a rate of a link [Gbit/s]."""
    if not re.fullmatch(r"\d{1,6}(\.\d{1,3})?", text.strip()):
        raise ValueError("a number of Gbit/s, such as 200")
    return float(text)


def parse_switch(text: str) -> bool:
    """Parse 0 or 1."""
    if text.strip() not in ("0", "1"):
        raise ValueError("0 or 1")
    return text.strip() == "1"


_SHOWN_LENGTH = 80
"""Characters of a refused value that a message repeats."""


def parse_or_refuse(parse: Callable[[str], T], text: str, name: str) -> T:
    """Parse the value of the flag or variable `name`.

    Raises:
        ConfigurationError: naming it and what its value should be.
    """
    try:
        return parse(text)
    except ValueError as error:
        shown = repr(text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…")
        raise ConfigurationError(
            f"{name} is {shown}, but should be {error}", hint=f"set {name} to {error}"
        ) from None
