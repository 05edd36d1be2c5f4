"""Names that are left out of a bundle."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import translate
from functools import lru_cache


class _Patterns:
    """fnmatch patterns that most texts do not match."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._each = [(pattern, re.compile(translate(pattern))) for pattern in patterns]
        self._any = re.compile("|".join(map(translate, patterns)))

    def find(self, text: str) -> str | None:
        """Return the first pattern that `text` fits."""
        if not self._each or self._any.match(text) is None:
            return None
        return next(pattern for pattern, expression in self._each if expression.match(text))

    def find_any(self, texts: Iterable[str]) -> bool:
        """Return whether one of `texts` fits a pattern."""
        return bool(self._each) and any(map(self._any.match, texts))


class Excludes:
    """Exclude patterns, as `PackRules.exclude` defines them."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self._by_part = _Patterns([pattern for pattern in patterns if "/" not in pattern])
        self._by_path = _Patterns([pattern for pattern in patterns if "/" in pattern])

    def find_any(self, names: Iterable[str], paths: Iterable[str]) -> bool:
        """Return whether one of `paths`, which have `names` for their last parts, is excluded."""
        return self._by_part.find_any(names) or self._by_path.find_any(paths)

    def pattern_for(self, path: str, name: str) -> str | None:
        """Return the pattern that excludes `path`, whose last part is `name`, itself, if any."""
        return self._by_part.find(name) or self._by_path.find(path)

    def covers(self, path: str) -> bool:
        """Return whether `path` or a directory above it is excluded."""
        parts = path.split("/")
        prefixes = (("/".join(parts[: depth + 1]), part) for depth, part in enumerate(parts))
        return any(self.pattern_for(prefix, part) is not None for prefix, part in prefixes)


@lru_cache(maxsize=64)
def excludes(patterns: tuple[str, ...]) -> Excludes:
    """Return the test for names that `patterns` exclude; it is made once for the same patterns."""
    return Excludes(patterns)
