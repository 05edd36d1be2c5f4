"""Stands in for the driver that would load a cubin: it would refuse one that is cut short."""

import struct


def require_whole(path):
    """Raise ValueError unless `path` is an ELF file that is as long as its tables say."""
    content = path.read_bytes()
    if content[:4] != b"\x7fELF" or len(content) < 64:
        raise ValueError(f"{path} is no cubin")
    segments, sections = struct.unpack_from("<QQ", content, 0x20)
    segment_size, segment_count, section_size, section_count = struct.unpack_from(
        "<HHHH", content, 0x36
    )
    ends = segments + segment_size * segment_count, sections + section_size * section_count
    if max(ends) > len(content):
        raise ValueError(f"{path} is cut short")
