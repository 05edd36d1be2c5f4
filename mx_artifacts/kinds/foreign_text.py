"""Text of a cache's files in messages: cut, and with nothing in it that a terminal acts upon."""

from __future__ import annotations

MAX_SHOWN_CHARACTERS = 200
"""Maximum length of a foreign text in a message [characters]: a whole path, mostly."""


def shown(foreign: str | bytes) -> str:
    """Return `foreign` for a message: its beginning, with unprintable characters escaped.

    Bytes are paths and texts of files, mostly UTF-8.
    """
    text = (
        foreign[: 4 * MAX_SHOWN_CHARACTERS].decode("utf-8", "backslashreplace")
        if isinstance(foreign, bytes)
        else foreign
    )
    cut = "".join(
        c if c.isprintable() else ascii(c)[1:-1] for c in text[: MAX_SHOWN_CHARACTERS + 1]
    )
    if len(cut) > MAX_SHOWN_CHARACTERS:
        cut = cut[: MAX_SHOWN_CHARACTERS - 3] + "..."
    return cut
