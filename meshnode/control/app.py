"""The control API: each operation is a POST with its arguments in JSON; some reading ones are GETs too."""

from __future__ import annotations

import asyncio
import hmac
import logging
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from meshnode.control.answering import JSON_TYPE, error_answer, json_answer, lines_answer, unless_stopped
from meshnode.control.asking import Bodies
from meshnode.control.failures import RefusedError
from meshnode.control.operation import Call, Operation, Stream
from meshnode.control.operations import OPERATIONS
from meshnode.control.requests import API
from meshnode.errors import NotFoundError, UsageError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.node.api import Operations

DOCUMENT: Final = "openapi.json"
DOCUMENT_PATH: Final = f"{API}/{DOCUMENT}"

Answer = Callable[[Operations, Any], Any]

LOG = logging.getLogger("meshnode.control")


def control_app(
    operations: Operations,
    *,
    token: str | None,
    stopping: asyncio.Event,
    answers: Mapping[str, Answer] | None = None,
) -> ASGIApp:
    """The API over some operations. With a token, every request must bear it; streams end when `stopping` is set.

    `answers` are those to operations, by name, that whoever serves the API answers in the place of the node.
    """
    return _Api(operations, token, stopping, answers or {}).serve


class _Api:
    """Answers one request after the other, and as many at a time as come."""

    def __init__(
        self, operations: Operations, token: str | None, stopping: asyncio.Event, answers: Mapping[str, Answer]
    ) -> None:
        self._operations = operations
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._stopping = stopping
        self._answers = answers
        self._bodies = Bodies()

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """An ASGI application."""
        request = Request(scope, receive)
        try:
            response = await self._response(request)
        except ClientDisconnect:
            return  # nobody is there to be told
        except Exception as error:
            response = error_answer(error)
        await response(scope, receive, send)

    async def _response(self, request: Request) -> Response:
        self._check_token(request)
        path = request.scope["path"]
        if path == DOCUMENT_PATH:
            _check_method(request, "GET")
            return Response(document_bytes(), media_type=JSON_TYPE)
        operation = OPERATIONS.get(path)
        if operation is None:
            raise NotFoundError(
                f"this node has no such operation: is its meshnode older? A GET of {DOCUMENT_PATH} tells which it has"
            )
        log_event(LOG, logging.DEBUG, LogEvent.ASKED, operation=path)
        _check_method(request, *(("GET", "POST") if operation.reads else ("POST",)))
        return await self._answered(operation, request)

    async def _answered(self, operation: Operation[Any, Any], request: Request) -> Response:
        with self._bodies.share() as share:
            arguments = await share.arguments(request, operation.takes)
            if isinstance(operation, Call):
                return await self._called(operation, arguments, request)
        assert isinstance(operation, Stream)
        return lines_answer(self._answer_of(operation)(self._operations, arguments), self._stopping)

    async def _called(self, operation: Call[Any, Any], arguments: Any, request: Request) -> Response:
        work = self._answer_of(operation)(self._operations, arguments)
        result = await (unless_stopped(work, self._stopping) if operation.waits else work)
        if operation.text is not None and request.method == "GET":
            return Response(operation.text.write(result), media_type=operation.text.content_type)
        return json_answer(result)

    def _answer_of(self, operation: Call[Any, Any] | Stream[Any, Any]) -> Answer:
        return self._answers.get(operation.name, operation.answer)

    def _check_token(self, request: Request) -> None:
        given = request.headers.get("authorization", "").encode()
        if self._expected is not None and not hmac.compare_digest(given, self._expected):
            missing = UsageError("the control token is missing or wrong")
            raise RefusedError(401, missing, {"WWW-Authenticate": "Bearer"})


def document_bytes() -> bytes:
    """The OpenAPI document of this very program (`control/openapi.py` makes it)."""
    return files("meshnode.control").joinpath(DOCUMENT).read_bytes()


def _check_method(request: Request, *methods: str) -> None:
    if request.method not in methods:
        wrong = UsageError(f"this is a {' or a '.join(methods)}, and no {request.method}")
        raise RefusedError(405, wrong, {"Allow": ", ".join(methods)})
