"""What a target believes of a member index."""

from __future__ import annotations

import pytest

from mx_artifacts.bundle.headers import END_OF_ARCHIVE, encode_member, padding_bytes
from mx_artifacts.bundle.index import CHECKSUM_UNIT_BYTES, MappedMember, map_bundle
from mx_artifacts.bundle.spans import parts_of
from mx_artifacts.core.digest import crc32c, crc32c_hex
from mx_artifacts.core.member_index import MemberIndex
from mx_artifacts.errors import ManifestInvalidError
from tests.support.indexes import index_of_rows

LONG = bytes(CHECKSUM_UNIT_BYTES) + b"the rest"
LONG_BLOCKS = (crc32c(LONG[:CHECKSUM_UNIT_BYTES]), crc32c(LONG[CHECKSUM_UNIT_BYTES:]))


def entry_of(path: str, content: bytes, blocks: tuple[int, ...] = ()) -> MemberIndex:
    return index_of_rows([(path, False, len(content), 0o644, 0, crc32c(content), blocks)])


def bundle_of(path: str, content: bytes, *, is_dir: bool = False) -> bytes:
    mode = 0o755 if is_dir else 0o644
    header = encode_member(path, is_dir=is_dir, size=len(content), mode=mode, mtime_ns=0)
    return header + content + bytes(padding_bytes(len(content))) + END_OF_ARCHIVE


def mapped(index: MemberIndex, bundle: bytes) -> MappedMember:
    (member,) = map_bundle(index, len(bundle), crc32c_hex(crc32c(bundle))).members
    return member


def test_an_index_of_what_the_bundle_holds_is_believed() -> None:
    member = mapped(entry_of("k/f", b"content"), bundle_of("k/f", b"content"))
    assert [part.checksum for part in parts_of(member)] == [crc32c(b"content")]
    member = mapped(entry_of("k/f", LONG, LONG_BLOCKS), bundle_of("k/f", LONG))
    assert [part.length for part in parts_of(member)] == [CHECKSUM_UNIT_BYTES, 8]


@pytest.mark.parametrize("content", [b"", b"good", bytes(CHECKSUM_UNIT_BYTES)])
def test_a_short_member_must_not_have_block_checksums(content: bytes) -> None:
    entry = entry_of("k/f", content, (crc32c(b"evil"),))
    with pytest.raises(ManifestInvalidError, match="the block checksums of member 'k/f'"):
        mapped(entry, bundle_of("k/f", content))


@pytest.mark.parametrize("blocks", [(), LONG_BLOCKS[:1], LONG_BLOCKS[::-1], (*LONG_BLOCKS, 0)])
def test_the_blocks_of_a_long_member_join_to_its_checksum(blocks: tuple[int, ...]) -> None:
    with pytest.raises(ManifestInvalidError, match="the block checksums of member 'k/f'"):
        mapped(entry_of("k/f", LONG, blocks), bundle_of("k/f", LONG))


def test_a_directory_has_no_blocks() -> None:
    entry = index_of_rows([("k", True, len(LONG), 0o755, 0, crc32c(LONG), LONG_BLOCKS)])
    with pytest.raises(ManifestInvalidError, match="the block checksums of member 'k'"):
        mapped(entry, bundle_of("k", LONG, is_dir=True))


@pytest.mark.parametrize("is_dir", [True, False])
def test_a_size_beyond_the_bundle_is_refused_before_it_costs_memory(is_dir: bool) -> None:
    index = index_of_rows([("k", is_dir, 2**64 - 1, 0o755, 0, 0, (1, 2))])
    with pytest.raises(ManifestInvalidError, match="longer than the bundle"):
        mapped(index, bundle_of("k", b"", is_dir=True))
