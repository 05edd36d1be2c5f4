import pytest

from mx_artifacts.bundle.names import fold, path_fault, printable


@pytest.mark.parametrize(
    "path",
    [
        "a",
        "a/b.so",
        "...",
        "a/..b",
        ".hidden",
        "back\\slash",
        "with space",
        "ünïcode/文件",
        "a\u200db",
        "n" * 255,
        "/".join("d" * 63),
        "ü" * 127,
    ],
)
def test_ordinary_paths_are_allowed(path: str) -> None:
    assert path_fault(path) is None


@pytest.mark.parametrize(
    ("path", "fault"),
    [
        ("", "the part ''"),
        ("/a", "absolute"),
        ("a//b", "the part ''"),
        ("a/", "the part ''"),
        ("./a", "the part '.'"),
        ("a/..", "the part '..'"),
        ("a\0b", "control character"),
        ("a\x9bb", "control character"),
        ("a\udcff", "not UTF-8"),
        ("n" * 256, "longer than 255 bytes"),
        ("ü" * 128, "longer than 255 bytes"),
        ("/".join("d" * 65), "deeper than 64"),
        ("/".join(["d" * 200] * 21), "longer than 4096 bytes"),
    ],
)
def test_other_paths_are_refused_with_a_reason(path: str, fault: str) -> None:
    assert fault in (path_fault(path) or "")


@pytest.mark.parametrize(
    ("one", "other"),
    [("Key", "kEY"), ("é", "e\u0301"), ("É", "e\u0301"), ("straße", "STRASSE"), ("ſ", "S")],
)
def test_twins_fold_alike(one: str, other: str) -> None:
    assert fold(one) == fold(other)


def test_different_names_fold_differently() -> None:
    assert fold("a") != fold("ä")


def test_printable_escapes_what_a_terminal_must_not_get() -> None:
    assert printable("a\udcffb") == "a\\xffb"
    assert printable("a\nb\x1b[2J") == "a\\nb\\x1b[2J"
    assert printable("ünïcode") == "ünïcode"
