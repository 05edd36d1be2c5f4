"""Finds the receipts that a command works on: a named one, or those in the roots of kinds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mx_artifact_cli.option_groups import ReceiptOptions
from mx_artifact_cli.output import Output
from mx_artifact_cli.selection import ALL, select_kinds
from mx_artifacts.errors import ConfigurationError, InstallError, MxArtifactsError

if TYPE_CHECKING:
    from mx_artifacts.install.receipts.lookup import FoundReceipt
    from mx_artifacts.workflows.selected_kind import SelectedKind


def chosen_receipts(
    output: Output, options: ReceiptOptions, *, may_be_none: bool = False
) -> list[tuple[FoundReceipt, ...]]:
    """Return the receipts of each kind, newest first; a named receipt is the only one.

    If nothing was installed, return an empty list if `may_be_none`, else raise an error.

    Raises:
        ConfigurationError: neither or both of RECEIPT and --kind are given, nothing was installed,
            or the named file is no receipt.
        InstallError: an install into the root was interrupted, or still runs.
    """
    from mx_artifacts.install.receipts.lookup import FoundReceipt
    from mx_artifacts.install.receipts.receipt import load_named_receipt
    from mx_artifacts.workflows.receipts import receipts_of_kind

    receipt, takes_all = options.receipt, ALL in options.kind_names
    if (receipt is None) == (not options.kind_names):
        raise ConfigurationError(
            "state either RECEIPT or --kind",
            hint="fetch-and-install prints the path of the receipt",
        )
    if receipt is not None:
        if options.stated_roots:
            raise ConfigurationError(
                "--root cannot be used with RECEIPT, because the receipt names its roots",
                hint="leave out --root, or use --kind in place of RECEIPT",
            )
        path = receipt.absolute()
        return [(FoundReceipt(path, load_named_receipt(path)),)]
    found = []
    for selected in selected_of(options):
        try:
            of_kind = receipts_of_kind(selected)
        except ConfigurationError as error:
            if not takes_all:
                raise
            output.note(f"{selected.name} skipped: {error}")
            continue
        interrupted = _interrupted(selected) if of_kind or takes_all else None
        if interrupted is not None:
            output.warn(f"{interrupted}; {interrupted.hint()}")
        if of_kind:
            found.append(of_kind)
        elif not (takes_all or may_be_none):
            raise _nothing_installed(selected)
    if not found and not may_be_none:
        raise ConfigurationError(
            "no receipt was found in the roots of any kind",
            hint="name the root of a kind with --root KIND=PATH, or the engine with --framework",
        )
    return found


def selected_of(options: ReceiptOptions) -> tuple[SelectedKind, ...]:
    """Return the kinds that the options name; raises the same errors as `select_kinds`."""
    return select_kinds(options.kind_names, options.stated_roots, framework=options.framework)


def roots_of(options: ReceiptOptions) -> tuple[Path, ...]:
    """Return the roots of the named kinds; receipts are trusted to describe these roots."""
    from mx_artifacts.workflows.receipts import believed_roots

    return believed_roots(selected_of(options))


def _nothing_installed(selected: SelectedKind) -> MxArtifactsError:
    return _interrupted(selected) or ConfigurationError(
        f"there is no receipt of {selected.name} in {selected.primary_root()}",
        hint="if it is installed in another root, name that root with --root, or the engine with "
        "--framework; otherwise install it",
    )


def _interrupted(selected: SelectedKind) -> InstallError | None:
    """Return the error for an install into the kind's primary root that has no receipt, if any."""
    from mx_artifacts.workflows.receipts import interrupted_install

    journal = interrupted_install(selected)
    if journal is None:
        return None
    return InstallError(
        f"an install into {selected.primary_root()} was interrupted, or still runs: there is "
        f"the journal {journal}, but no receipt",
        hint="if it was interrupted, `mx-artifact uninstall` with the same options takes back what "
        "it moved; the next `mx-artifact fetch-and-install` does that, too, and installs",
    )
