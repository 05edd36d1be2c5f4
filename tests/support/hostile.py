"""Damaged and hostile bundles, built byte by byte and without the code under test.

`CORPUS` maps a name to the bundle's bytes; every one of them must be refused before anything
is written. `MillionsOfMembers` is a bundle that no disk needs to hold.
"""

from __future__ import annotations

BLOCK = 512
END = bytes(2 * BLOCK)


def header(
    name: bytes,
    *,
    kind: bytes = b"0",
    size: bytes | int = 0,
    mode: bytes = b"0000644\0",
    mtime: bytes = b"00000000000\0",
    magic: bytes = b"ustar\x0000",
    prefix: bytes = b"",
    linkname: bytes = b"",
    tail: bytes = b"",
) -> bytes:
    """Return one header block with a right checksum. `tail` starts at byte 345, like `prefix`."""
    block = bytearray(BLOCK)
    block[0 : len(name)] = name
    block[100:108] = mode
    block[108:124] = b"0000000\0" * 2
    block[124:136] = size if isinstance(size, bytes) else b"%011o\0" % size
    block[136:148] = mtime
    block[156:157] = kind
    block[157 : 157 + len(linkname)] = linkname
    block[257:265] = magic
    block[345 : 345 + len(prefix or tail)] = prefix or tail
    return checksummed(block)


def checksummed(block: bytearray) -> bytes:
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


def padded(content: bytes) -> bytes:
    return content + bytes(-len(content) % BLOCK)


def file(name: bytes, content: bytes = b"", **fields: bytes) -> bytes:
    return header(name, size=len(content), **fields) + padded(content)


def directory(name: bytes) -> bytes:
    return header(name, kind=b"5", mode=b"0000755\0")


def pax(*records: bytes) -> bytes:
    """Return an extended header; a record is b"key=value", its length is put before it."""
    payload = b"".join(pax_record(record) for record in records)
    return header(b"././@PaxHeader", kind=b"x", size=len(payload)) + padded(payload)


def pax_record(record: bytes) -> bytes:
    length = len(record) + 3
    while len(b"%d %b\n" % (length, record)) != length:
        length += 1
    return b"%d %b\n" % (length, record)


def long_name(name: bytes) -> bytes:
    payload = name + b"\0"
    return header(b"././@LongLink", kind=b"L", size=len(payload), magic=b"ustar  \0") + padded(
        payload
    )


def base256(value: int) -> bytes:
    """Return GNU's form of a number in a field of 12 bytes."""
    if value < 0:
        return value.to_bytes(12, "big", signed=True)
    return b"\x80" + value.to_bytes(11, "big")


_LONG = b"d/" * 20 + b"n" * 90  # longer than a header's name field
_GOOD = file(b"good.bin", b"good")
_TEN_TIB = 10 << 40


def _flipped_bit() -> bytes:
    damaged = bytearray(_GOOD + END)
    damaged[3] ^= 1
    return bytes(damaged)


NAMES = {
    "absolute": file(b"/abs") + END,
    "dot dot": file(b"../x") + END,
    "dot dot inside": file(b"a/../../x") + END,
    "dot dot at the end": directory(b"a/..") + END,
    "dot dot by prefix": file(b"x", prefix=b"..") + END,
    "absolute by prefix": file(b"etc/passwd", prefix=b"/") + END,
    "only a dot, a file": file(b".") + END,
    "dot inside": file(b"a/./x") + END,
    "two dots at the front": file(b"././x") + END,
    "empty name": file(b"") + END,
    "empty part": file(b"a//x") + END,
    "root slash": directory(b"/") + END,
    "file with a slash at the end": file(b"x/") + END,
    "not UTF-8": file(b"a\xff") + END,
    "newline": file(b"a\nb") + END,
    "escape sequence": file(b"\x1b[2Jx") + END,
    "NUL in a pax path": pax(b"path=a\0b") + file(b"a") + END,
    "bytes behind the name's NUL": file(b"a\0/../../x") + END,
    "part of 256 bytes": pax(b"path=" + b"n" * 256) + file(b"n" * 100) + END,
    "path of 4,097 bytes": pax(b"path=" + b"d/" * 2048 + b"n") + file(b"d/" * 50) + END,
    "a thousand directories deep": pax(b"path=" + b"d/" * 1000 + b"n") + file(b"d/" * 50) + END,
}

CLASHES = {
    "duplicate file": file(b"x") + file(b"x") + END,
    "duplicate by ./": file(b"x") + file(b"./x") + END,
    "duplicate directory": directory(b"d") + directory(b"d/") + END,
    "root twice": directory(b"./") + directory(b".") + END,
    "file then directory": file(b"x") + directory(b"x") + END,
    "directory then file": directory(b"x") + file(b"x") + END,
    "file where a directory is needed": file(b"x") + file(b"x/y") + END,
    "file where a directory was implied": file(b"x/y") + file(b"x") + END,
    "case": file(b"Key") + file(b"kEY") + END,
    "case of a directory": file(b"D/x") + file(b"d/y") + END,
    "case of a stated directory": file(b"D/x") + directory(b"d") + END,
    "Unicode form": file("é".encode()) + file("e\u0301".encode()) + END,
    "case folding": file("straße".encode()) + file(b"STRASSE") + END,
    "file under a case twin of a file": file(b"x") + file(b"X/y") + END,
}

KINDS = {
    "hard link": file(b"x") + header(b"y", kind=b"1", linkname=b"x") + END,
    "symbolic link": header(b"x", kind=b"2", linkname=b"/etc") + END,
    "link and write through it": header(b"x", kind=b"2", linkname=b"/tmp") + file(b"x/y") + END,
    "character device": header(b"x", kind=b"3") + END,
    "block device": header(b"x", kind=b"4") + END,
    "FIFO": header(b"x", kind=b"6") + END,
    "contiguous file": file(b"x", b"data", kind=b"7") + END,
    "global header": header(b"g", kind=b"g", size=13) + padded(pax_record(b"path=evil")) + END,
    "long link name": header(b"././@LongLink", kind=b"K", size=2) + padded(b"x\0") + END,
    "volume label": header(b"x", kind=b"V", magic=b"ustar  \0") + END,
    "unknown kind": header(b"x", kind=b"Z") + END,
    "device by long name": long_name(_LONG) + header(_LONG[:100], kind=b"3") + END,
}

RENAMES = {
    "pax path": pax(b"path=other") + file(b"x") + END,
    "pax path to a parent": pax(b"path=../x") + file(b"x") + END,
    "pax path to a parent of the same name": pax(b"path=../x") + file(b"../x") + END,
    "absolute pax path": pax(b"path=/etc/passwd") + file(b"etc/passwd") + END,
    "empty pax path": pax(b"path=") + file(b"x") + END,
    "pax path cut elsewhere": pax(b"path=" + _LONG) + file(_LONG[:99]) + END,
    "two paths in one header": pax(b"path=x", b"path=y") + file(b"y") + END,
    "long name": long_name(b"other") + file(b"x") + END,
    "long name to a parent": long_name(b"../x") + file(b"x") + END,
    "long name cut elsewhere": long_name(_LONG) + file(_LONG[1:101]) + END,
    "two long names": long_name(_LONG) + long_name(_LONG) + file(_LONG[:100]) + END,
    "pax and long name": pax(b"path=" + _LONG) + long_name(_LONG) + file(_LONG[:100]) + END,
    "long name without a member": long_name(_LONG) + END,
    "pax header without a member": pax(b"mtime=1.5") + END,
    "long name with two NULs": long_name(b"x\0") + file(b"x") + END,
    "empty long name": header(b"././@LongLink", kind=b"L") + file(b"") + END,
}

NUMBERS = {
    "negative size": header(b"x", size=base256(-1)) + END,
    "very negative size": header(b"x", size=base256(-(1 << 80))) + END,
    "negative size of an extended header": header(b"x", kind=b"x", size=base256(-512)) + END,
    "negative octal size": header(b"x", size=b"-0000000001\0") + END,
    "size that overflows": header(b"x", size=base256((1 << 88) - 1)) + END,
    "size beyond the bundle": header(b"x", size=1 << 20) + END,
    "size that eats the end": header(b"x", size=1024) + END,
    "10 TiB": header(b"x", size=base256(_TEN_TIB)) + END,
    "size that is no number": header(b"x", size=b"12345678901x") + END,
    "empty size": header(b"x", size=bytes(12)) + END,
    "directory with content": header(b"d", kind=b"5", size=4) + padded(b"data") + END,
    "pax size that differs": pax(b"size=9000000000") + file(b"x", b"data") + END,
    "pax size that hides a member": pax(b"size=512") + header(b"x") + file(b"y") + END,
    "negative pax size": pax(b"size=-1") + file(b"x") + END,
    "pax size of 10 TiB": pax(b"size=%d" % _TEN_TIB) + header(b"x") + END,
    "pax size with a sign": pax(b"size=+9000000000") + header(b"x") + END,
    "mtime that is no number": pax(b"mtime=nan") + file(b"x") + END,
    "mtime beyond 64 bits": pax(b"mtime=99999999999999") + file(b"x") + END,
    "mtime field beyond 64 bits": file(b"x", mtime=base256(1 << 60)) + END,
    "mode that is no number": file(b"x", mode=b"rw-r--r-") + END,
    "negative offset of a volume": header(b"x", magic=b"ustar  \0", tail=bytes(24) + base256(-512))
    + END,
}

SPARSE = {
    "old GNU sparse file of 10 TiB": header(
        b"x", kind=b"S", magic=b"ustar  \0", tail=bytes(138) + base256(_TEN_TIB)
    )
    + END,
    "sparse fields in a plain file": header(
        b"x", magic=b"ustar  \0", tail=bytes(138) + base256(_TEN_TIB)
    )
    + END,
    "pax sparse file": pax(b"GNU.sparse.major=1", b"GNU.sparse.realsize=%d" % _TEN_TIB)
    + file(b"x", b"1\n0\n0\n")
    + END,
    "star's real size": pax(b"SCHILY.realsize=%d" % _TEN_TIB) + file(b"x") + END,
}

PAX_RECORDS = {
    "link path": pax(b"linkpath=/etc/passwd") + file(b"x") + END,
    "character set": pax(b"hdrcharset=BINARY") + file(b"x") + END,
    "vendor's key": pax(b"EVIL.key=1") + file(b"x") + END,
    "length beyond the header": header(b"p", kind=b"x", size=12) + padded(b"99 mtime=1.5") + END,
    "length too short": header(b"p", kind=b"x", size=12) + padded(b"5 mtime=1.5\n") + END,
    "length zero": header(b"p", kind=b"x", size=12) + padded(b"0 mtime=1.5\n") + END,
    "length negative": header(b"p", kind=b"x", size=13) + padded(b"-9 mtime=1.5\n") + END,
    "no equals sign": header(b"p", kind=b"x", size=9) + padded(b"9 mtime1\n") + END,
    "header of a gigabyte": header(b"p", kind=b"x", size=1 << 30) + END,
    "header of 65 KiB": pax(b"comment=" + b"c" * 65 * 1024) + file(b"x") + END,
}

DAMAGE = {
    "nothing": b"",
    "not a tar": b"PK\x03\x04" + bytes(range(256)) * 8,
    "gzip": b"\x1f\x8b\x08" + bytes(4096),
    "flipped bit": _flipped_bit(),
    "no end": _GOOD,
    "one zero block": _GOOD + bytes(BLOCK),
    "zero block inside": _GOOD + bytes(BLOCK) + file(b"x") + END,
    "half a header": _GOOD + header(b"x")[:300],
    "half a content": header(b"x", size=600) + bytes(600),
    "half an end": _GOOD + bytes(BLOCK + 100),
    "half an extended header": header(b"p", kind=b"x", size=600) + bytes(100),
    "garbage behind the end": _GOOD + END + b"garbage",
    "concatenated": _GOOD + END + file(b"x") + END,
    "two MiB of zeros behind the end": _GOOD + END + bytes(2 << 20),
    "old V7 header": header(b"x", magic=bytes(8)) + END,
    "unknown magic": header(b"x", magic=b"ustar\x0099") + END,
    "last of a thousand": b"".join(file(b"good%d" % i, b"good") for i in range(999))
    + file(b"../bad")
    + END,
}

CORPUS = {
    f"{group}: {name}": content
    for group, cases in {
        "name": NAMES,
        "clash": CLASHES,
        "kind": KINDS,
        "rename": RENAMES,
        "number": NUMBERS,
        "sparse": SPARSE,
        "pax": PAX_RECORDS,
        "damage": DAMAGE,
    }.items()
    for name, content in cases.items()
}


class MillionsOfMembers:
    """A bundle of `count` empty files that are made up while it is read, block by block."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.length = (count + 2) * BLOCK
        self.blocks_read = 0

    def read_block(self) -> bytes:
        """Return the next block."""
        index = self.blocks_read
        self.blocks_read += 1
        return file(b"d%d/f%d" % (index % 1000, index)) if index < self._count else bytes(BLOCK)
