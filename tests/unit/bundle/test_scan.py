"""What the scanner accepts; what it refuses is in tests/faults/test_hostile_bundles.py."""

import pytest

from mx_artifacts.bundle.scan import BundleMember, scan_bundle
from tests.support import hostile


def scan(content: bytes) -> list[BundleMember]:
    return scan_bundle(content)


def test_members_in_their_order_with_offsets() -> None:
    bundle = hostile.directory(b"d/") + hostile.file(b"d/x", b"12345") + hostile.file(b"y")
    assert scan(bundle + hostile.END) == [
        BundleMember("d", True, 0, 0o755, 0, 512),
        BundleMember("d/x", False, 5, 0o644, 0, 1024),
        BundleMember("y", False, 0, 0o644, 0, 2048),
    ]


def test_a_bundle_without_members() -> None:
    assert scan(hostile.END) == []
    assert scan(bytes(10240)) == []


def test_dot_slash_before_names_and_the_root_itself() -> None:
    bundle = hostile.directory(b"./") + hostile.directory(b"./d/") + hostile.file(b"./d/x")
    assert [member.path for member in scan(bundle + hostile.END)] == ["d", "d/x"]


def test_old_regular_file_type() -> None:
    assert scan(hostile.file(b"x", kind=b"\0") + hostile.END)[0].path == "x"


def test_prefix_belongs_to_the_name() -> None:
    assert scan(hostile.file(b"x", prefix=b"a/b") + hostile.END)[0].path == "a/b/x"


def test_padding_of_the_last_record() -> None:
    assert len(scan(hostile.file(b"x") + hostile.END + bytes(8192))) == 1


def test_a_directory_after_the_files_in_it() -> None:
    bundle = hostile.file(b"d/x") + hostile.directory(b"d") + hostile.END
    assert [member.path for member in scan(bundle)] == ["d/x", "d"]


@pytest.mark.parametrize(
    ("name", "short"),
    [
        (b"dd/" * 60 + b"x", (b"dd/" * 60)[:100]),  # GNU tar and Python alike
        ("dé".encode() * 60, ("dé".encode() * 60)[:100]),  # GNU tar cuts bytes
        ("dé".encode() * 60, b"d?" * 50),  # Python cuts the ASCII form
        ("é".encode(), b"?"),
        (b"x", b"x"),
    ],
)
def test_extended_names_with_the_short_forms_that_tar_programs_write(
    name: bytes, short: bytes
) -> None:
    for extension in (hostile.pax(b"path=" + name), hostile.long_name(name)):
        bundle = extension + hostile.file(short, b"data") + hostile.END
        assert [member.path for member in scan(bundle)] == [name.decode()]


@pytest.mark.parametrize(
    ("record", "mtime_ns"),
    [
        (b"mtime=1700000000.123456789", 1700000000_123456789),
        (b"mtime=1700000000.5", 1700000000_500000000),
        (b"mtime=1700000000", 1700000000_000000000),
        (b"mtime=1.0000000019", 1_000000001),
        (b"mtime=-1.5", -1_500000000),
    ],
)
def test_extended_times_to_the_nanosecond(record: bytes, mtime_ns: int) -> None:
    bundle = hostile.pax(record) + hostile.file(b"x") + hostile.END
    assert scan(bundle)[0].mtime_ns == mtime_ns


def test_times_before_1970_and_large_numbers_in_gnu_form() -> None:
    early = hostile.file(b"x", magic=b"ustar  \0", mtime=hostile.base256(-2)) + hostile.END
    assert scan(early)[0].mtime_ns == -2_000000000
    sized = hostile.header(b"x", size=hostile.base256(5)) + hostile.padded(b"12345") + hostile.END
    assert scan(sized)[0].size == 5


def test_harmless_records_are_ignored() -> None:
    records = (b"atime=1.5", b"ctime=2.5", b"uid=1001230000", b"uname=j\xc3\xb6rg", b"comment=hi")
    assert scan(hostile.pax(*records) + hostile.file(b"x") + hostile.END)[0].path == "x"


@pytest.mark.parametrize(
    ("kind", "stated", "mode"),
    [
        (b"0", b"0006777\0", 0o755),
        (b"0", b"0000000\0", 0o400),
        (b"0", b"0000666\0", 0o644),
        (b"0", b"0100644\0", 0o644),
        (b"5", b"0007777\0", 0o755),
        (b"5", b"0000000\0", 0o700),
        (b"5", b"0000555\0", 0o755),
    ],
)
def test_modes_are_safe(kind: bytes, stated: bytes, mode: int) -> None:
    bundle = hostile.header(b"x", kind=kind, mode=stated) + hostile.END
    assert scan(bundle)[0].mode == mode
