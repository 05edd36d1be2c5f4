"""Settings of followers: how often they look, and when changed roots are sealed."""

from __future__ import annotations

from dataclasses import dataclass

from mx_artifacts.configuration import EnvironmentSettings, from_setting
from mx_artifacts.settings import FOLLOW_INTERVAL, READY_TIMEOUT


@dataclass(frozen=True)
class FollowSettings(EnvironmentSettings):
    """How often followers check, and when they seal changed roots.

    Attributes:
        interval_seconds: interval of the checks of sources or roots.
        settle_seconds: time for which roots must not have changed before they are sealed. 0: two
            checks in a row that find the same files are enough, and existing files are sealed at
            the start.
        patience_seconds: time after which an event reports roots that do not settle.
    """

    interval_seconds: float = from_setting(FOLLOW_INTERVAL)
    settle_seconds: float = 0.0
    patience_seconds: float = from_setting(READY_TIMEOUT)
