"""`mx-artifact serve`: runs the central server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from mx_artifact_cli.option_fields import option, settings_flags, takes
from mx_artifact_cli.options import Verb, parsed_option, setting_option
from mx_artifact_cli.output import Output
from mx_artifact_cli.signals import on_stop_request
from mx_artifacts import settings
from mx_artifacts.configuration import SettingFlags
from mx_artifacts.parsing import parse_integer, parse_text

if TYPE_CHECKING:
    from mx_artifacts.observability.catalogue import ServerStarted
    from mx_artifacts.observability.events import Event


@dataclass(frozen=True)
class ServeOptions:
    """What `serve` is asked for."""

    host: str = option(
        parsed_option(
            "--host",
            parse_text,
            "Address to listen on. There is no authentication: everyone who can reach this address "
            "can list and publish.",
            default="127.0.0.1",
        )
    )
    port: int = option(
        parsed_option(
            "--port",
            parse_integer(0, 65535),
            "Port to listen on; 0: any free port.",
            default="8001",
        )
    )
    flags: SettingFlags = settings_flags(
        setting_option(settings.METADATA_BACKEND, "--backend"),
        setting_option(settings.HEARTBEAT_TIMEOUT, "--heartbeat-timeout"),
        setting_option(settings.REAPER_SCAN_INTERVAL, "--reaper-interval"),
        setting_option(settings.GC_TIMEOUT, "--gc-timeout"),
    )


@click.command("serve", cls=Verb)
@takes(ServeOptions)
@click.pass_obj
def command(output: Output, options: ServeOptions) -> None:
    """Run the central server, which knows which source serves which cache.

    It prints its address when it is ready. It runs until SIGINT, SIGTERM or SIGHUP.
    """
    import asyncio  # here, because this import takes longer than the rest of the start

    from mx_artifacts.observability.catalogue import ServerStarted
    from mx_artifacts.server.app import ServerConfig, serve

    config = ServerConfig.from_environment(
        flags=options.flags, host=options.host, port=options.port
    )

    def on_ready(address: str) -> None:
        output.line(address)
        output.result({"address": address})
        output.note("serving until SIGINT, SIGTERM or SIGHUP")

    def on_event(event: Event) -> None:
        if isinstance(event, ServerStarted) and (limits := _limits(event)):
            output.note(
                f"records are stored in {event.backend}: {limits}. To store them elsewhere, use "
                "--backend or MX_METADATA_BACKEND"
            )

    async def run() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        with on_stop_request(lambda: loop.call_soon_threadsafe(stop.set)):
            await serve(config, on_ready=on_ready, stop=stop, events=on_event)

    asyncio.run(run())


def _limits(started: ServerStarted) -> str:
    """Return the limits of the store in which this server keeps records, or ""."""
    limits = []
    if not started.survives_restart:
        limits.append("a restart loses them")
    if not started.shared:
        limits.append("other servers cannot read them")
    return " and ".join(limits)
