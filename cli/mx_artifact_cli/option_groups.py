"""Groups of options that several verbs share; each group is a frozen value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from mx_artifact_cli import options
from mx_artifact_cli.option_fields import nested, option
from mx_artifact_cli.selection import ALL, select_kinds

if TYPE_CHECKING:
    from mx_artifacts.workflows.selected_kind import SelectedKind


@dataclass(frozen=True)
class IdentityOptions:
    """The values of the caches' identity that the user states for this node."""

    stated: Mapping[str, str] = option(options.identity_option)
    framework: str | None = option(options.framework_option)
    arch: str | None = option(options.arch_option)
    device: int = option(options.device_option)


@dataclass(frozen=True)
class KindsOptions:
    """The kinds and the model that a verb works on; base class of the options of such verbs."""

    kind_names: tuple[str, ...]
    model: str = option(options.model_option)
    identity: IdentityOptions = nested(IdentityOptions)
    profile: str = option(options.profile_option())
    stated_roots: tuple[tuple[str, Path], ...] = option(options.root_option)
    server: str = option(options.server_option)

    @property
    def takes_all(self) -> bool:
        """Whether --kind is "all"."""
        return ALL in self.kind_names

    def selected(self) -> tuple[SelectedKind, ...]:
        """Return the kinds that --kind names; raises the same errors as `select_kinds`."""
        return select_kinds(
            self.kind_names, self.stated_roots, self.identity.stated, self.identity.framework
        )


@dataclass(frozen=True)
class ReceiptOptions:
    """The installs that a verb works on: that of one receipt, or those of kinds."""

    receipt: Path | None = option(
        click.argument("receipt", required=False, type=click.Path(path_type=Path))
    )
    kind_names: tuple[str, ...] = option(
        options.kind_option("every kind that has an install on this node", required=False)
    )
    stated_roots: tuple[tuple[str, Path], ...] = option(options.root_option)
    framework: str | None = option(options.framework_option)
