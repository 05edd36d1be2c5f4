"""Labels that our sources add to the topology map of their record.

`mx_artifacts.artifact` is the artifact id. `mx_artifacts.root` is the path of the primary root and
`mx_artifacts.root.<name>` that of another root, absolute and without links. So a target knows both
before it transfers anything. `mx_artifacts.transports` lists the transports by which the source can
be read, joined by commas (transport_labels.py). Other implementations neither set nor read these
labels.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from mx_artifacts.artifacts.protocol import ArtifactCacheRoot
from mx_artifacts.core.identity import AnyBackendFramework
from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.node.environment import Environment

ARTIFACT_LABEL = "mx_artifacts.artifact"
"""Has the artifact id, so that a target sees in a listing which sources have something new."""
ROOT_LABEL = "mx_artifacts.root"


def root_labels(roots: Sequence[ArtifactCacheRoot]) -> dict[str, str]:
    """Return what a source of `roots`, the primary one first, announces."""
    on = (root for root in roots if not root.off)
    return {_label(roots, root): os.path.realpath(root.source_root) for root in on}


def own_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that describe the served bytes; they hold for every seed of these bytes."""
    return {key: value for key, value in labels.items() if key.startswith("mx_artifacts.")}


def root_objection(
    kind: CacheKind,
    roots: Sequence[ArtifactCacheRoot],
    labels: Mapping[str, str],
    env: Environment,
    framework: AnyBackendFramework,
) -> str:
    """Say why a cache from a source with these `labels` could not be used in `roots`, or "".

    A root that the source does not announce is not compared: the install does it, entry by entry.
    """
    for root in (each for each in roots if not each.off):
        theirs, ours = labels.get(_label(roots, root)), os.path.realpath(root.target_root)
        rule = next((r for r in kind.roots if kind.root_label(r.name) == root.name), None)
        if rule is None or theirs is None or theirs == ours:
            continue
        obstacle = rule.relocation_obstacle()
        if obstacle:
            path, decided_by = rule.locate(env, framework)
            origin = decided_by if path == root.target_root else "stated"
            return (
                f"its cache root is {theirs}, here it is {ours} ({origin}), and a cache of another "
                f"root cannot be used: {obstacle}"
            )
    return ""


def _label(roots: Sequence[ArtifactCacheRoot], root: ArtifactCacheRoot) -> str:
    return ROOT_LABEL if root is roots[0] else f"{ROOT_LABEL}.{root.name}"
