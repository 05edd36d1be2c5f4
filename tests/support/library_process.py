"""A program that uses the library as a loader does, and ends in different ways.

usage: python -m tests.support.library_process SERVER DIRECTORY HOW

It publishes DIRECTORY/warm from DIRECTORY/sealed and never closes its publisher; HOW says how it
ends. On stdout it writes one JSON object: where the source is found.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import sys
import threading
from pathlib import Path

from mx_artifacts.artifacts.source.publisher_settings import PublisherSettings
from mx_artifacts.client.central import CentralClient
from mx_artifacts.core.sources import SourceQuery, SourceStatus
from mx_artifacts.publisher import ArtifactPublisher
from tests.support.artifacts import new_agent
from tests.support.fleet import IDENTITY, KIND


def publish(server: str, directory: Path) -> ArtifactPublisher:
    settings = PublisherSettings.from_environment(
        env={}, bundle_root=directory / "sealed", port=0, publish_timeout_seconds=0
    )
    publisher = ArtifactPublisher(
        client=CentralClient(server), transport=new_agent("library"), settings=settings
    )
    published = publisher.publish(KIND, IDENTITY, {"": directory / "warm"})
    print(
        json.dumps(
            {
                "mx_source_id": published.mx_source_id,
                "worker_id": published.worker_id,
                "artifact_id": published.artifact_id,
                "endpoint": published.endpoint,
            }
        ),
        flush=True,
    )
    return publisher


def is_ready(server: str) -> bool:
    with CentralClient(server) as client:
        return bool(client.list_sources(SourceQuery(status=SourceStatus.READY), IDENTITY))


def main(server: str, directory: str, how: str) -> None:
    if how == "of multiprocessing":
        # As engines start their workers; such a process calls no handlers of atexit.
        context = multiprocessing.get_context("fork")
        child = context.Process(target=publish, args=(server, Path(directory)))
        child.start()
        child.join()
        sys.exit(child.exitcode)
    publisher = publish(server, Path(directory))
    if how == "with an error":
        raise RuntimeError("as loaders may")
    if how == "by sys.exit":
        sys.exit(3)
    if how == "with a thread":
        threading.Thread(target=threading.Event().wait, args=(1.0,)).start()
    if how == "when told":
        sys.stdin.readline()
    if how == "after a child":
        pid = os.fork()
        if not pid:
            publisher.close()  # as the end of a with block
            sys.exit(0)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        print(json.dumps({"child": code, "is_ready": is_ready(server)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
