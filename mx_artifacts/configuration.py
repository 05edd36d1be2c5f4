"""Settings, and dataclasses that are filled from them: by flag, then environment, then default.

`settings.py` is the table of all settings. `PublisherSettings` and similar classes declare their
fields with `from_setting`. So a default is in the table only, and the library and the command line
read a variable in the same way.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from mx_artifacts.errors import ConfigurationError
from mx_artifacts.node.environment import Environment, environment
from mx_artifacts.parsing import parse_or_refuse

T = TypeVar("T")
S = TypeVar("S", bound="EnvironmentSettings")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Setting(Generic[T]):
    """One setting. `aliases` are older names that win over `name`, `fallbacks` lose to it."""

    name: str
    default: Callable[[Environment], T]
    parse: Callable[[str], T]
    meaning: str
    default_text: str
    aliases: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    lenient: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All variables that are read, the winning one first."""
        return (*self.aliases, self.name, *self.fallbacks)

    def stated(self, env: Environment | None = None) -> str | None:
        """Return the name of the variable that decides, or None where the default does."""
        env = environment() if env is None else env
        # Empty counts as unset, as in a pod spec without a value.
        return next((name for name in self.names if env.get(name)), None)

    def default_here(self) -> T:
        """Return the default on this node, without reading the variables of the setting."""
        return self.default(environment())

    def read(
        self,
        flag: str | None = None,
        env: Environment | None = None,
        *,
        flag_name: str | None = None,
    ) -> T:
        """Return the flag's value, else the environment's, else the default.

        `flag_name` ("--port") is what messages call the flag.

        Raises:
            ConfigurationError: naming the flag or variable and what its value should be.
        """
        env = environment() if env is None else env
        if flag is not None:
            return parse_or_refuse(self.parse, flag, flag_name or f"the flag for {self.name}")
        name = self.stated(env)
        if name is None:
            return self.default(env)
        try:
            return parse_or_refuse(self.parse, env[name], name)
        except ConfigurationError as error:
            if not self.lenient:
                raise
            logger.warning("%s; using %s", error, self.default_text)
            return self.default(env)


@dataclass(frozen=True)
class SettingFlags:
    """What options of a command line say of settings, by the setting's name.

    Attributes:
        values: what each option was found to be: by its flag, the environment or the default.
        given: those whose flag was given.
    """

    values: Mapping[str, object] = field(default_factory=dict)
    given: frozenset[str] = frozenset()


NO_FLAGS = SettingFlags()


class SettingValues:
    """Reads settings: what flags say, else the environment, else the default."""

    def __init__(self, env: Environment | None = None, flags: SettingFlags = NO_FLAGS) -> None:
        self._env = environment() if env is None else env
        self._flags = flags

    def read(self, setting: Setting[T]) -> T:
        """Return the value of `setting`; raises as `Setting.read`."""
        if setting.name in self._flags.values:
            return cast(T, self._flags.values[setting.name])
        return setting.read(env=self._env)

    def is_stated(self, setting: Setting[Any]) -> bool:
        """Return whether a flag or a variable states `setting`."""
        return setting.name in self._flags.given or setting.stated(self._env) is not None


_READ = "read"
_NESTED = "nested"


def from_setting(setting: Setting[T]) -> T:
    """Return a dataclass field that `from_environment` fills from `setting`."""
    return from_settings(lambda values: values.read(setting), setting.default_here)


def from_settings(read: Callable[[SettingValues], T], default: Callable[[], T]) -> T:
    """Return a dataclass field that `from_environment` fills by `read`, from several settings."""
    made: T = field(default_factory=default, metadata={_READ: read})
    return made


def nested(cls: type[S]) -> S:
    """Return a dataclass field for settings of another class, which are read in the same way."""
    made: S = field(default_factory=cls, metadata={_NESTED: cls})
    return made


class EnvironmentSettings:
    """Base of dataclasses whose fields are settings.

    Without `from_environment`, every field has the default of the settings table; the environment
    is not read.
    """

    @classmethod
    def from_environment(
        cls: type[S],
        *,
        env: Environment | None = None,
        flags: SettingFlags = NO_FLAGS,
        **overrides: Any,
    ) -> S:
        """Return the settings that this process's environment states.

        Args:
            env: variables by name, instead of this process's.
            flags: what options of a command line say, which win over the environment.
            overrides: values of single fields, those of nested settings included. No variable
                is read for them.

        Raises:
            ConfigurationError: naming the variable and what its value should be.
            TypeError: there is no field of that name.
        """
        left = dict(overrides)
        made = _fill(cls, SettingValues(env, flags), left)
        if left:
            raise TypeError(f"{cls.__name__} has no field {', '.join(sorted(left))}")
        return made


def _fill(cls: type[S], values: SettingValues, overrides: dict[str, Any]) -> S:
    """Return an instance of `cls`; take out of `overrides` what it has fields for."""
    found: dict[str, Any] = {}
    for each in dataclasses.fields(cast(Any, cls)):
        if each.name in overrides:
            found[each.name] = overrides.pop(each.name)
        elif _NESTED in each.metadata:
            found[each.name] = _fill(each.metadata[_NESTED], values, overrides)
        elif _READ in each.metadata:
            found[each.name] = each.metadata[_READ](values)
    return cls(**found)
