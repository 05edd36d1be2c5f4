"""Text of peers, servers and caches in messages: cut, and nothing that a terminal acts upon."""

from __future__ import annotations

MAX_SHOWN_CHARACTERS = 200
"""Maximum length of a foreign text in a message [characters]: a whole path, mostly."""


def shown(foreign: str | bytes, max_characters: int = MAX_SHOWN_CHARACTERS) -> str:
    """Return `foreign` for a message: its beginning, with unprintable characters escaped.

    Bytes are paths and texts of files, mostly UTF-8.
    """
    text = (
        foreign[: 4 * max_characters].decode("utf-8", "backslashreplace")
        if isinstance(foreign, bytes)
        else foreign
    )
    cut = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text[: max_characters + 1])
    if len(cut) > max_characters:
        cut = cut[: max_characters - 3] + "..."
    return cut
