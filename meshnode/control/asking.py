"""A request's arguments, from its body or a GET's query; whatever is wrong with them is one typed error.

The socket is its owner's alone: the bounds here are against a mistaken program of the same user, which must not take
the node's memory, or its event loop, by accident.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, get_origin

import msgspec
from starlette.requests import Request

from meshnode.control.failures import RefusedError
from meshnode.control.requests import BODY_BYTES, Arguments
from meshnode.errors import BusyError, UsageError
from meshnode.model.wording import quoted
from meshnode.node.jsonvalues import from_json_builtins, parse_json

BODIES_BYTES: Final = 2 * BODY_BYTES  # of all requests that are read or answered; against many large ones at once
BODY_S: Final = 60.0  # seconds in which a request has to be here; against one that never ends
_JSON: Final = "application/json"

A = TypeVar("A", bound=Arguments)


class Bodies:
    """Holds what the requests under way have in their bodies to one budget."""

    def __init__(self) -> None:
        self._taken = 0

    @contextmanager
    def share(self) -> Iterator[Share]:
        """The part of one request, given back when it is left."""
        share = Share(self)
        try:
            yield share
        finally:
            self._taken -= share.taken

    def take(self, count: int) -> None:
        """Count some bytes in, or refuse them."""
        if self._taken + count > BODIES_BYTES:
            busy = BusyError("more is being sent to the node at once than it takes: try again, one request at a time")
            raise RefusedError(503, busy, {"Retry-After": "1", "Connection": "close"})
        self._taken += count


class Share:
    """Reads one request."""

    def __init__(self, bodies: Bodies) -> None:
        self._bodies = bodies
        self.taken = 0

    async def arguments(self, request: Request, kind: type[A]) -> A:
        """What the request asks for; raises UsageError, or RefusedError."""
        if request.method == "GET":
            return _of_query(request, kind)
        if request.url.query:
            raise UsageError("a POST has its arguments in its body, as JSON, and none in its address")
        try:
            async with asyncio.timeout(BODY_S):
                body = await self._body(request)
        except TimeoutError as error:
            late = UsageError(f"the request was not here within {BODY_S:.0f} seconds")
            raise RefusedError(408, late, {"Connection": "close"}) from error
        if not body:
            return from_json_builtins({}, kind)
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _JSON:
            raise RefusedError(415, UsageError(f"a request's body is JSON: say so with `Content-Type: {_JSON}`"))
        return from_json_builtins(_parsed(body), kind)

    async def _body(self, request: Request) -> bytes:
        length = request.headers.get("content-length", "")
        if length.isdigit() and int(length) > BODY_BYTES:  # not read at all
            raise _too_large()
        body = bytearray()
        async for chunk in request.stream():
            if len(body) + len(chunk) > BODY_BYTES:
                raise _too_large()
            self._bodies.take(len(chunk))
            self.taken += len(chunk)
            body += chunk
        return bytes(body)


def _too_large() -> RefusedError:
    return RefusedError(413, UsageError(f"a request is at most {BODY_BYTES} bytes"), {"Connection": "close"})


def _parsed(body: bytes) -> Any:
    raw = parse_json(body)
    if b"\\ud" in body.lower():  # half a surrogate pair is in JSON, and in no text that can be kept or told
        _refuse_halves(raw)
    return raw


def _refuse_halves(raw: Any) -> None:
    if isinstance(raw, str):
        try:
            raw.encode()
        except UnicodeEncodeError as error:
            raise UsageError("text that is not Unicode: half a surrogate pair") from error
    elif isinstance(raw, dict):
        for name, value in raw.items():
            _refuse_halves(name)
            _refuse_halves(value)
    elif isinstance(raw, list):
        for value in raw:
            _refuse_halves(value)


def _of_query(request: Request, kind: type[A]) -> A:
    lists = {each.encode_name for each in msgspec.structs.fields(kind) if get_origin(each.type) is list}
    raw: dict[str, Any] = {}
    for name, text in request.query_params.multi_items():
        if name in lists:
            raw.setdefault(name, []).append(text)
        elif name in raw:
            raise UsageError(f"{quoted(name)} is there twice")
        else:
            raw[name] = text
    try:
        return msgspec.convert(raw, kind, strict=False)  # numbers and booleans are text in a query
    except msgspec.ValidationError as error:
        raise UsageError(str(error)) from error
