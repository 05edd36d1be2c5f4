"""How often followers look, and when changed roots are sealed."""

from __future__ import annotations

from dataclasses import dataclass

from mx_artifacts.configuration import EnvironmentSettings, from_setting
from mx_artifacts.settings import FOLLOW_INTERVAL, READY_TIMEOUT


@dataclass(frozen=True)
class FollowSettings(EnvironmentSettings):
    """How often followers look, and when changed roots are sealed.

    Attributes:
        interval_seconds: between two looks, at sources or at roots.
        settle_seconds: for which roots must not have changed before they are sealed; 0: two looks
            in a row that find them alike are enough, and what is there at the start is sealed at
            once.
        patience_seconds: after which an event tells of roots that do not settle.
    """

    interval_seconds: float = from_setting(FOLLOW_INTERVAL)
    settle_seconds: float = 0.0
    patience_seconds: float = from_setting(READY_TIMEOUT)
