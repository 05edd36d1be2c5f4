"""The health endpoint of an inference engine."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Engine:
    """Gives `statuses` one after the other, the last one for ever; `at_poll` runs before each."""

    def __init__(self) -> None:
        self.statuses = [200]
        self.paths: list[str] = []
        self.at_poll: Callable[[], object] = lambda: None
        engine = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                engine.at_poll()
                engine.paths.append(self.path)
                status = engine.statuses[0]
                if len(engine.statuses) > 1:
                    engine.statuses.pop(0)
                self.send_response(status)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/health"


@contextmanager
def running_engine() -> Iterator[Engine]:
    """Run an engine's endpoint in this process for as long as the block lasts."""
    engine = Engine()
    with engine.server:
        thread = threading.Thread(target=engine.server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield engine
        finally:
            engine.server.shutdown()
            thread.join()
