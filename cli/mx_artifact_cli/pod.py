"""The Kubernetes pod of this process."""

from __future__ import annotations

from mx_artifacts import settings
from mx_artifacts.core.sources import PodIdentity


def own_pod() -> PodIdentity:
    """Return it as the downward API's variables name it."""
    return PodIdentity(
        name=settings.POD_NAME.read(),
        uid=settings.POD_UID.read(),
        namespace=settings.POD_NAMESPACE.read(),
    )
