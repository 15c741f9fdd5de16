"""Answers of the control API: JSON, lines of JSON, and errors, which are JSON whatever was asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Final, TypeVar

from starlette.responses import Response, StreamingResponse

from meshnode.control.failures import RefusedError, failure_of, status_of
from meshnode.errors import MeshError, TransportError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.node.jsonvalues import to_json

LOG = logging.getLogger("meshnode.control")
STOPPED: Final = "the node was stopped while it was asked"
INTERNAL: Final = "the node failed in a way it does not know: its log says more"
JSON_TYPE: Final = "application/json"
LINES_TYPE: Final = "application/jsonl"

T = TypeVar("T")


def json_answer(value: Any) -> Response:
    """A view, or anything made of views and row values."""
    return Response(_line(value), media_type=JSON_TYPE)


def lines_answer(views: AsyncIterator[Any], stopping: asyncio.Event) -> Response:
    """Views as they come, a line each."""
    return StreamingResponse(_lines(views, stopping), media_type=LINES_TYPE)


def error_answer(error: Exception) -> Response:
    """The answer to a request that failed."""
    if isinstance(error, RefusedError):
        return Response(_line(failure_of(error.error)), error.status, dict(error.headers), JSON_TYPE)
    told = _known(error)
    return Response(_line(failure_of(told)), status_of(type(told)), media_type=JSON_TYPE)


async def unless_stopped(operation: Coroutine[Any, Any, T], stopping: asyncio.Event) -> T:
    """What takes long by intention: whoever waits for it is told that the node stops, and nobody waits for that."""
    stop, answer = asyncio.ensure_future(stopping.wait()), asyncio.ensure_future(operation)
    try:
        await asyncio.wait({stop, answer}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise TransportError(STOPPED)
        return answer.result()
    finally:
        stop.cancel()
        answer.cancel()
        await asyncio.gather(stop, answer, return_exceptions=True)


async def _lines(views: AsyncIterator[Any], stopping: asyncio.Event) -> AsyncIterator[bytes]:
    """An error is the last line. An empty first line tells the client that it is subscribed."""
    stop = asyncio.ensure_future(stopping.wait())
    following: asyncio.Future[Any] | None = None
    try:
        yield b"\n"
        while True:
            following = asyncio.ensure_future(anext(views))
            await asyncio.wait({stop, following}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                return
            yield _line(following.result())
    except StopAsyncIteration:
        return
    except Exception as error:
        yield _line(failure_of(_known(error)))
    finally:
        pending = [task for task in (stop, following) if task is not None]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        close = getattr(views, "aclose", None)
        if close is not None:
            await close()


def _line(value: Any) -> bytes:
    """A lone surrogate, which a file's name can have, is no reason to answer nothing."""
    return to_json(value).encode("utf-8", "replace") + b"\n"


def _known(error: Exception) -> MeshError:
    """The error as it may be told: of a fault of this program only that there was one, and its log has the rest."""
    if isinstance(error, MeshError):
        return error
    log_event(LOG, logging.ERROR, LogEvent.FAULT, trace=error, work="a control request")
    return MeshError(INTERNAL)
