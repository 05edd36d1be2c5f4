"""Probes of installed Python packages: version and directory."""

from __future__ import annotations

from mx_artifacts.node.installed import distribution_version, package_directory
from mx_artifacts.probes.base import SAME_IMAGE, SAME_PLACE, Fact, IdentityValue, Probe


def version_probe(distribution: str) -> Probe:
    """Return a probe of the version of a distribution."""
    return lambda context: Fact(
        distribution_version(distribution), f"probed: installed {distribution}"
    )


def path_probe(module: str) -> Probe:
    """Return a probe of the directory that a package is installed in, as it is spelled."""
    return lambda context: Fact(str(package_directory(module)), f"probed: package {module}")


def package_version(distribution: str) -> IdentityValue:
    """Return the identity value that is the version of a distribution."""
    return IdentityValue(version_probe(distribution), SAME_IMAGE)


def package_path(module: str) -> IdentityValue:
    """Return the identity value that is the directory of a package."""
    return IdentityValue(path_probe(module), SAME_PLACE)
