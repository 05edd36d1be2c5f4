"""Rules for what of a directory tree goes into a bundle, as data that a cache kind declares."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from mx_artifacts.bundle.entry import EntryView

SECRETS = (
    # Settings and credentials of users and tools, as they lie in a home directory or a repository.
    ".env",
    ".env.*",
    ".netrc",
    ".pgpass",
    ".npmrc",
    ".pypirc",
    ".git",
    ".git-credentials",
    ".ssh",
    ".gnupg",
    ".aws",
    ".azure",
    ".kube",
    ".docker",
    ".vault-token",
    "application_default_credentials.json",
    # Private keys, by the names that their tools give them.
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ecdsa_sk",
    "id_ed25519",
    "id_ed25519_sk",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keytab",
    # Tokens: Hugging Face's, a pod's.
    "token",
    "stored_tokens",
    "*.token",
)
"""Patterns of names of files with secrets, for the case that a user's home or repository is in a
cache root or is used as one. No compiler gives such names to its files (tests/unit/kinds)."""


def each_file(path: str) -> str:
    """Treat every file as an entry of its own."""
    return path


def no_fault(entry: EntryView) -> str | None:
    """Take every entry that was read consistently."""
    return None


def first_parts(count: int) -> Callable[[str], str]:
    """Return a rule by which the first `count` path parts name the entry."""

    def entry_of(path: str) -> str:
        return "/".join(path.split("/", count)[:count])

    return _first_part if count == 1 else entry_of


def _first_part(path: str) -> str:
    return path.partition("/")[0]


@dataclass(frozen=True)
class PackRules:
    """What of a root is shipped, and in which units.

    Attributes:
        exclude: fnmatch patterns; one with "/" matches the whole relative path, one without
            matches any single path part (and so everything below a directory of that name).
        secrets: as `exclude`; what fits may be a secret, so it is never shipped, and that is said.
        keep_mtimes: keep modification times to the nanosecond (ninja reads them); else 0.
        entry_of: maps a relative path ("/"-separated) to its entry: the path of the file or
            directory that is committed, kept or left out as one.
        fault_of: says why an entry that was read consistently is not fit to be shipped (its
            compiler has not committed it, or it is damaged), else None. It is then left out
            whole. Called once for each attempt at an entry, and for one that exists in a target's
            root; must not raise but for what the view raises.
    """

    exclude: tuple[str, ...] = ()
    secrets: tuple[str, ...] = SECRETS
    keep_mtimes: bool = False
    entry_of: Callable[[str], str] = each_file
    fault_of: Callable[[EntryView], str | None] = no_fault
