"""Finds one value of an identity on this node, and the advice if two nodes differ in it.

A kind's own values come before those that all kinds share.
"""

from __future__ import annotations

import logging

from mx_artifacts.kinds.base import CacheKind
from mx_artifacts.node.installed import CannotProbe
from mx_artifacts.probes.base import Fact, IdentityValue, ProbeContext
from mx_artifacts.probes.common import COMMON_VALUES

logger = logging.getLogger(__name__)

_UNKNOWN = IdentityValue()


def value_of(kind: CacheKind, name: str) -> IdentityValue:
    """Return what is known of a field or extra parameter; an empty one for a name of a user's."""
    return kind.identity_values.get(name) or COMMON_VALUES.get(name) or _UNKNOWN


def probe_value(
    kind: CacheKind, name: str, context: ProbeContext, *, as_the_reference: bool = False
) -> Fact:
    """Return the value of the field or extra parameter `name`, never an empty one.

    Raises:
        CannotProbe: it cannot be determined, or its probe is broken.
        ComponentAbsent: the component that it belongs to is known not to be there.
    """
    value = value_of(kind, name)
    probe = (as_the_reference and value.reference_probe) or value.probe
    if probe is None:
        raise CannotProbe("nothing here knows how to find it")
    try:
        fact = probe(context)
        is_empty = not fact.value.strip()
    except CannotProbe:
        raise
    except Exception as error:  # whatever the probe of another package's kind raises
        logger.debug("the probe of %s for kind %s failed", name, kind.name, exc_info=True)
        raise CannotProbe(f"its probe failed: {error!r}") from error
    if is_empty:
        raise CannotProbe(f"{fact.origin.removeprefix('probed: ')} is empty")
    return fact


def advice_for(kind: CacheKind, name: str) -> str:
    """Return a sentence on what to do where the identity field or extra parameter differs."""
    key = name.removeprefix("extra_parameters.")
    fallback = f"state the same --identity {key}=VALUE on both nodes, if they are alike in it"
    return value_of(kind, key).advice or fallback
