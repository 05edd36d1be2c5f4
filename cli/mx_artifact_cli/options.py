"""Options that verbs share.

An option of a setting takes the value of its flag, else of the environment, else the default.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from mx_artifact_cli.output import Format
from mx_artifacts import parsing, settings
from mx_artifacts.configuration import Setting, SettingFlags
from mx_artifacts.core.compatibility import ACCELERATORS
from mx_artifacts.errors import ConfigurationError

T = TypeVar("T")
Decorator = Callable[[Any], Any]

UINT32_MAX = 2**32 - 1
"""Maximum rank; the wire protocol has uint32."""
MAX_DEVICE = 1023
"""Maximum device index; no node has so many GPUs and MIG slices."""


# --- accepted everywhere --------------------------------------------------------------------------


def _everywhere() -> list[click.Parameter]:
    return [
        click.Option(
            ["--format"],
            type=click.Choice([f.value for f in Format]),
            expose_value=False,
            help="Output on stdout: human: tables and lines; json: one object; jsonl: one object "
            "per "
            "line; quiet: nothing. quiet shows only errors.  [default: human]",
        ),
        click.Option(
            ["--debug"],
            is_flag=True,
            expose_value=False,
            show_default=False,
            help="Print the log of the library, and tracebacks of errors.",
        ),
    ]


def requested_format(args: Sequence[str]) -> Format:
    """Return the format that --format names, before or after the verb; the last one counts.

    It is read before click parses the arguments, so that usage errors are printed in this format,
    too. An invalid format is ignored here; click refuses it.
    """
    known = {f.value: f for f in Format}
    chosen = Format.HUMAN
    for position, arg in enumerate(args):
        if arg == "--format":
            chosen = known.get("".join(args[position + 1 : position + 2]), chosen)
        elif arg.startswith("--format="):
            chosen = known.get(arg.partition("=")[2], chosen)
    return chosen


def requested_debug(args: Sequence[str]) -> bool:
    """Return whether --debug is among the arguments."""
    return "--debug" in args


class Verb(click.Command):
    """A command that takes --format and --debug."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.params.extend(_everywhere())


class VerbGroup(click.Group):
    """A group that takes --format and --debug, and whose commands take them, too."""

    command_class = Verb

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.no_args_is_help = False  # a missing command is an error like others
        self.params.extend(_everywhere())


# --- parsed values --------------------------------------------------------------------------------


class SettingOption(click.Option):
    """An option whose value is that of the flag, else of the environment, else the default."""

    def __init__(self, declarations: Sequence[str], *, setting: Setting[Any], **attrs: Any) -> None:
        variables = ", ".join(setting.names)
        super().__init__(
            declarations,
            metavar="VALUE",
            callback=lambda context, parameter, text: setting.read(text, flag_name=self.opts[0]),
            help=f"{setting.meaning[0].upper()}{setting.meaning[1:]}.  "
            f"[env: {variables}; default: {setting.default_text}]",
            **attrs,
        )
        self.setting = setting


def setting_option(setting: Setting[Any], flag: str) -> Decorator:
    """Return an option that overrides `setting`; its value is parsed and never None."""
    return click.option(flag, cls=SettingOption, setting=setting)


def _is_given(name: str) -> bool:
    """Return whether the command line has the option whose parameter is `name`."""
    source = click.get_current_context().get_parameter_source(name)
    return source is click.core.ParameterSource.COMMANDLINE


def setting_flags() -> SettingFlags:
    """Return the values that the options of the current command give to settings."""
    context = click.get_current_context()
    options = [each for each in context.command.params if isinstance(each, SettingOption)]
    values = {each.setting.name: context.params[each.name or ""] for each in options}
    given = (each.setting.name for each in options if _is_given(each.name or ""))
    return SettingFlags(values, frozenset(given))


def parsed_option(
    flag: str,
    parse: Callable[[str], T],
    meaning: str,
    *,
    metavar: str = "VALUE",
    **attrs: Any,
) -> Decorator:
    """Return an option with a parser of parsing.py; None if it is not given and has no default.

    Its errors have the same form as those of `setting_option`.
    """

    def read(context: click.Context, parameter: click.Parameter, text: str | None) -> T | None:
        return None if text is None else parsing.parse_or_refuse(parse, text, flag)

    return click.option(flag, metavar=metavar, callback=read, help=meaning, **attrs)


def parsed_argument(name: str, parse: Callable[[str], T], *, required: bool = True) -> Decorator:
    """Return an argument with a parser of parsing.py; None if it is not given."""

    def read(context: click.Context, parameter: click.Parameter, text: str | None) -> T | None:
        return None if text is None else parsing.parse_or_refuse(parse, text, name.upper())

    return click.argument(name, required=required, callback=read)


# --- shared by several verbs ----------------------------------------------------------------------

server_option: Decorator = setting_option(settings.SERVER_ADDRESS, "--server")
bundle_root_option: Decorator = setting_option(settings.BUNDLE_ROOT, "--bundle-root")

lock_timeout_option: Decorator = parsed_option(
    "--lock-timeout",
    parsing.parse_wait,
    "How long to wait for another process that installs into the same root; 0: do not wait.",
    default="60s",
)

model_option: Decorator = parsed_option(
    "--model",
    parsing.parse_model_name,
    "Model that the caches belong to.",
    required=True,
    metavar="NAME",
)
accelerator_option: Decorator = click.option(
    "--accelerator",
    type=click.Choice(ACCELERATORS, case_sensitive=False),
    help="Family of accelerators that source and target must share.  [default: that of this node]",
)


class KindOption(click.Option):
    """Lists the kinds in its help; they are imported only for that."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        from mx_artifacts.kinds.registry import all_kinds

        record = super().get_help_record(ctx)
        names = ", ".join(kind.name for kind in all_kinds())
        generic = ", generic (any directory; needs --root)"
        return record and (record[0], f"{record[1]}  [kinds: {names}{generic}]")


def kind_option(meaning_of_all: str, *, required: bool = True) -> Decorator:
    """Return --kind, which may be repeated."""
    return click.option(
        "--kind",
        "kind_names",
        cls=KindOption,
        multiple=True,
        required=required,
        metavar="KIND",
        help=f"Cache kind. May be repeated. all: {meaning_of_all}.",
    )


def worker_rank_option(meaning: str, *, default: str | None = None) -> Decorator:
    """Return --worker-rank."""
    return parsed_option(
        "--worker-rank", parsing.parse_integer(0, UINT32_MAX), meaning, default=default
    )


def node_rank_option(meaning: str, *, default: str | None = None) -> Decorator:
    """Return --node-rank."""
    return parsed_option(
        "--node-rank", parsing.parse_integer(0, UINT32_MAX), meaning, default=default
    )


def _identity(
    context: click.Context, parameter: click.Parameter, pairs: tuple[str, ...]
) -> dict[str, str]:
    stated: dict[str, str] = {}
    for pair in pairs:
        key, separator, value = pair.partition("=")
        if not separator or "" in map(str.strip, key.split(".")):
            raise ConfigurationError(
                f"--identity is {pair!r}, but should be [KIND.]KEY=VALUE: "
                f"{'the key or kind' if separator else 'the ='} is missing",
                hint="state it, for example, as --identity gpu_arch=sm90",
            )
        if stated.setdefault(key.strip(), value.strip()) != value.strip():
            raise ConfigurationError(
                f"--identity states two different values for {key.strip()!r}",
                hint="state one value",
            )
    return stated


identity_option: Decorator = click.option(
    "--identity",
    "stated",
    multiple=True,
    metavar="[KIND.]KEY=VALUE",
    callback=_identity,
    help="State the value of an identity field or extra parameter, in place of the value found on "
    "this "
    "node. It counts for every kind, or only for KIND. May be repeated.",
)
framework_option: Decorator = click.option(
    "--framework",
    type=click.Choice(["vllm", "sglang", "trt_llm"]),
    help="Inference engine. It decides where the caches are, and it is the identity field "
    "backend_framework.  [default: the installed engine]",
)
arch_option: Decorator = click.option(
    "--arch",
    metavar="ARCH",
    help="GPU architecture for which the caches are, such as sm_90. It is the identity field "
    "gpu_arch.  "
    "[default: that of --device]",
)
device_option: Decorator = parsed_option(
    "--device",
    parsing.parse_integer(0, MAX_DEVICE),
    "GPU that the engine will use, by its CUDA number under CUDA_VISIBLE_DEVICES.",
    default="0",
)


def profile_option(*, both: bool = False) -> Decorator:
    """Return --profile; with `both` it may also be "both"."""
    return click.option(
        "--profile",
        type=click.Choice(["strict", "reference", *(["both"] if both else [])]),
        default="strict",
        help="Fields of the identity. strict: every value that could make a cache wrong. "
        "reference: "
        "the values that ModelExpress's own loaders use, to pair with them."
        + (" both: announce under both identities." if both else ""),
    )


def _roots(
    context: click.Context, parameter: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, Path], ...]:
    parsed = []
    for value in values:
        name, separator, path = value.partition("=")
        if not separator or value.startswith(("/", ".", "~")):  # a path may hold "="
            name, path = "", value
        parsed.append((name, parsing.parse_or_refuse(parsing.parse_path, path, "--root")))
    return tuple(parsed)


root_option: Decorator = click.option(
    "--root",
    "stated_roots",
    multiple=True,
    metavar="[KIND[/ROOT]=]PATH",
    callback=_roots,
    help="Path of a kind's cache root, or of another root of the kind (flashinfer/autotune=PATH), "
    "in "
    "place of the path that the engine uses. With a single --kind, KIND= may be left out.",
)
