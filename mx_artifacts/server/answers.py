"""Translates our errors into gRPC statuses, for the handlers of all services."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import TypeVar

import grpc.aio

from mx_artifacts.errors import MxArtifactsError
from mx_artifacts.wire.status import code_of

logger = logging.getLogger(__name__)

Service = TypeVar("Service")
Request = TypeVar("Request")
Answer = TypeVar("Answer")


def errors_as_status(
    method: Callable[[Service, Request], Awaitable[Answer]],
) -> Callable[[Service, Request, grpc.aio.ServicerContext], Awaitable[Answer]]:
    """Turn a method of core errors into a handler that answers with status codes."""

    @wraps(method)
    async def handler(self: Service, request: Request, context: grpc.aio.ServicerContext) -> Answer:
        try:
            return await method(self, request)
        except MxArtifactsError as error:
            details = f"{error}; {error.hint()}" if error.hint() else str(error)
            logger.warning("%s failed: %s", method.__name__, details)
            await context.abort(code_of(error), details)
            raise AssertionError("abort raises") from error

    return handler
