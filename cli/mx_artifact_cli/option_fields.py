"""Frozen dataclasses whose fields are options of a verb; click fills them.

    @dataclass(frozen=True)
    class SomeOptions:
        model: str = option(model_option)
        kinds: KindOptions = nested(KindOptions)
        flags: SettingFlags = settings_flags(setting_option(settings.SLOTS, "--slots"))

    @click.command("verb", cls=Verb)
    @takes(SomeOptions)
    @click.pass_obj
    def command(output: Output, options: SomeOptions) -> None: ...

A field must have the name that click gives to the parameter of the option. The help shows options
in the order of the fields.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import field, fields
from typing import Any, TypeVar, cast

from mx_artifact_cli.options import Decorator, setting_flags
from mx_artifacts.configuration import SettingFlags

T = TypeVar("T")
_OPTIONS = "options"
_NESTED = "nested"
_FLAGS = "flags"


def option(decorator: Decorator) -> Any:
    """Return a field that holds the value of the option, or argument, that `decorator` adds."""
    return field(metadata={_OPTIONS: (decorator,)})


def nested(cls: type[T]) -> T:
    """Return a field that holds options of another class."""
    return cast(T, field(metadata={_NESTED: cls}))


def settings_flags(*decorators: Decorator) -> SettingFlags:
    """Return a field for options that override settings; the library makes its values from them.

    The field holds the values of all such options of the verb.
    """
    return cast(SettingFlags, field(metadata={_OPTIONS: decorators, _FLAGS: True}))


def takes(cls: type) -> Decorator:
    """Return a decorator that adds the options of `cls` and calls the command with one `cls`."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def filled(**given: Any) -> Any:
            return command(_fill(cls, given))

        result: Callable[..., Any] = filled
        for decorator in reversed(_decorators(cls)):
            result = decorator(result)
        return result

    return decorate


def _decorators(cls: type) -> list[Decorator]:
    found: list[Decorator] = []
    for each in fields(cast(Any, cls)):
        inner = each.metadata.get(_NESTED)
        found += _decorators(inner) if inner else each.metadata[_OPTIONS]
    return found


def _fill(cls: type, given: dict[str, Any]) -> Any:
    """Return an instance of `cls` with the values that click gives to parameters."""
    values: dict[str, Any] = {}
    for each in fields(cast(Any, cls)):
        if _NESTED in each.metadata:
            values[each.name] = _fill(each.metadata[_NESTED], given)
        elif _FLAGS in each.metadata:
            values[each.name] = setting_flags()
        else:
            values[each.name] = given[each.name]
    return cls(**values)
