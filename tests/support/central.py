"""The real central server on a thread of its own, with its own event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from mx_artifacts.runtime.clock import SYSTEM_CLOCK, Clock
from mx_artifacts.server.app import ServerConfig, serve


@contextmanager
def running_central(config: ServerConfig, clock: Clock = SYSTEM_CLOCK) -> Iterator[str]:
    """Serve for the body, which gets host:port; stop in order and raise what the server raised."""
    ready: queue.Queue[tuple[str, BaseException | None]] = queue.Queue()
    running: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
    failure: list[BaseException] = []

    async def main() -> None:
        stop = asyncio.Event()
        running.append((asyncio.get_running_loop(), stop))
        await serve(
            config, on_ready=lambda address: ready.put((address, None)), stop=stop, clock=clock
        )

    def thread() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            failure.append(error)
            ready.put(("", error))

    worker = threading.Thread(target=thread, name="central-server")
    worker.start()
    address, error = ready.get(timeout=30)
    try:
        if error is not None:
            raise error
        yield address
    finally:
        loop, stop = running[0]
        if not loop.is_closed():
            loop.call_soon_threadsafe(stop.set)
        worker.join(timeout=30)
        assert not worker.is_alive(), "the central server did not stop"
    if failure:
        raise failure[0]
