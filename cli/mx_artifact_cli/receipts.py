"""Which receipts a command works on: one that is named, or those of kinds' roots."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mx_artifact_cli import options
from mx_artifact_cli.output import Output
from mx_artifact_cli.selection import ALL, SelectedKind, select_kinds
from mx_artifacts.errors import ConfigurationError, InstallError, MxArtifactsError
from mx_artifacts.node.environment import environment

if TYPE_CHECKING:
    from mx_artifacts.install.receipts.lookup import FoundReceipt

receipt_argument: options.Decorator = click.argument(
    "receipt", required=False, type=click.Path(path_type=Path)
)
kind_option = options.kind_option("those of which something was installed", required=False)


def chosen_receipts(
    output: Output,
    receipt: Path | None,
    kind_names: Sequence[str],
    stated_roots: Sequence[tuple[str, Path]],
    framework: str | None,
    *,
    may_be_none: bool = False,
) -> list[list[FoundReceipt]]:
    """Return the receipts of each kind, newest first; one that is named is alone.

    Where nothing was installed, that is none if there `may_be_none`, else an error.

    Raises:
        ConfigurationError: neither or both of RECEIPT and --kind, or nothing was installed, or
            what is named is no receipt.
        InstallError: an install into the root was interrupted, or is going on.
    """
    from mx_artifacts.install.receipts.lookup import FoundReceipt
    from mx_artifacts.install.receipts.receipt import load_named_receipt

    if (receipt is None) == (not kind_names):
        raise ConfigurationError(
            "give either a RECEIPT or --kind", hint="fetch-and-install prints where a receipt is"
        )
    if receipt is not None:
        if stated_roots:
            raise ConfigurationError("--root goes with --kind; a RECEIPT names its roots itself")
        path = receipt.absolute()
        return [[FoundReceipt(path, load_named_receipt(path))]]
    found = []
    for selected in select_kinds(kind_names, stated_roots, framework=framework):
        try:
            of_kind = receipts_of_kind(selected)
        except ConfigurationError as error:
            if ALL not in kind_names:
                raise
            output.note(f"{selected.kind.name} skipped: {error}")
            continue
        interrupted = _interrupted(selected) if of_kind or ALL in kind_names else None
        if interrupted is not None:
            output.warn(f"{interrupted}; {interrupted.hint()}")
        if of_kind:
            found.append(of_kind)
        elif ALL not in kind_names and not may_be_none:
            raise _nothing_installed(selected)
    if not found and not may_be_none:
        raise ConfigurationError("nothing was installed into any kind's root")
    return found


def stated_or_located(
    kind_names: Sequence[str], stated_roots: Sequence[tuple[str, Path]], framework: str | None
) -> list[Path]:
    """Return all roots of the kinds that --kind names: those of which receipts are believed."""
    if not kind_names:
        return []
    found: list[Path] = []
    for selected in select_kinds(kind_names, stated_roots, framework=framework):
        with suppress(ConfigurationError):  # which `chosen_receipts` tells
            found += selected.roots(environment()).values()
    return found


def receipts_of_kind(selected: SelectedKind) -> list[FoundReceipt]:
    """Return the receipts in the kind's primary root, newest first.

    Raises:
        ConfigurationError: nothing says where that root is.
    """
    from mx_artifacts.install.receipts.lookup import find_receipts

    return [
        found
        for found in find_receipts(_primary_root(selected))
        if found.receipt.artifact.kind == selected.kind.name
    ]


def _primary_root(selected: SelectedKind) -> Path:
    return selected.roots(environment())[selected.kind.roots[0].name]


def _nothing_installed(selected: SelectedKind) -> MxArtifactsError:
    root = _primary_root(selected)
    return _interrupted(selected) or ConfigurationError(
        f"nothing of {selected.kind.name} was installed into {root}",
        hint="name the root that it was installed into with --root, or its engine with "
        "--framework, or install it",
    )


def _interrupted(selected: SelectedKind) -> InstallError | None:
    """Return the error for an install into the kind's primary root that has no receipt, if any."""
    from mx_artifacts.install.recover import unfinished_install

    root = _primary_root(selected)
    journal = unfinished_install(root)
    if journal is None:
        return None
    return InstallError(
        f"an install into {root} was interrupted, or is going on: there is {journal}, and no "
        "receipt",
        hint="the next `mx-artifact fetch-and-install` into it takes back what was moved, and "
        "installs; `mx-artifact uninstall` with the same options only takes it back",
    )
