"""The control API's routes: each operation is a POST with its arguments in JSON; some reading ones are GETs too."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from meshnode.control import requests as asked
from meshnode.control import verify_lines
from meshnode.control.dashboardview import DashboardView
from meshnode.control.failures import failure_of, http_status_of
from meshnode.errors import MeshError, NotFoundError, TransportError, UsageError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.node.api import LEAVE_S, ROWS_PER_IMPORT, ROWS_PER_PAGE, Operations
from meshnode.node.eventviews import EVENTS_PER_PAGE
from meshnode.node.jsonvalues import from_json_builtins, parse_json, to_json, to_json_builtins
from meshnode.node.metricviews import CONTENT_TYPE, exposition

LOG = logging.getLogger("meshnode.control")
INTERNAL = "the node failed in a way it does not know: its log says more"

A = TypeVar("A", bound=asked.Arguments)
T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


def control_app(
    operations: Operations,
    *,
    token: str | None,
    stopping: asyncio.Event,
    open_dashboard: Callable[[], Awaitable[DashboardView]],
) -> Starlette:
    """The API over some operations. With a token, every request must bear it; streams end when `stopping` is set."""
    api = _Api(operations, stopping)
    posts = _of_the_node(operations, api) | _of_tables(operations, api)
    posts |= _of_members(operations, api) | _of_pairing(operations, api)
    posts |= _of_the_log(operations, api)
    posts["open-dashboard"] = _answer(asked.NoArguments, lambda _: open_dashboard())
    readable = {"ping", "status", "metrics", "peers", "members", "discover", "doctor", "tables", "policy", "config"}
    readable |= {"sync-state", "frontier", "changes", "digest", "conflicts", "conflict-changes"}
    readable |= {"notices", "follow-notices"}
    routes = [
        Route(
            f"{asked.API}/{name}",
            _guarded(handler, token),
            methods=["POST", "GET"] if name in readable else ["POST"],
        )
        for name, handler in posts.items()
    ]
    return Starlette(routes=routes, exception_handlers={404: _no_such_route})


def _of_the_node(operations: Operations, api: _Api) -> dict[str, Handler]:
    return {
        "ping": api.ping,
        "status": _answer(asked.NoArguments, lambda _: operations.status()),
        "metrics": api.metrics,
        "peers": _answer(asked.NoArguments, lambda _: operations.peers()),
        "discover": _answer(asked.Discover, api.discover),
        "doctor": _answer(asked.Doctor, lambda a: operations.doctor(a.checks)),
        "policy": _answer(asked.NoArguments, lambda _: operations.policy()),
        "set-policy": _answer(asked.SetPolicy, lambda a: operations.set_policy(a.setting, a.value)),
        "config": _answer(asked.NoArguments, lambda _: operations.config()),
        "set-config": _answer(asked.SetConfig, lambda a: operations.set_config(a.values)),
        "apply-config": _answer(asked.ApplyConfig, lambda a: operations.apply_config(a.text)),
        "reload": _answer(asked.NoArguments, lambda _: operations.reload()),
        "sync-state": _answer(asked.SomePeer, lambda a: operations.sync_state(a.peer)),
        "frontier": _answer(asked.SomePeer, lambda a: operations.frontier(a.peer)),
        "conflicts": _answer(
            asked.Conflicts, lambda a: operations.conflicts(a.table, everything=a.everything, limit=a.limit)
        ),
        "resolve-conflict": _answer(
            asked.ResolveConflict, lambda a: operations.resolve_conflict(a.id, prefer=a.prefer)
        ),
        "acknowledge-conflict": _answer(asked.OneConflict, lambda a: operations.acknowledge_conflict(a.id)),
        "conflict-changes": api.conflict_changes,
        "request-sync": _answer(asked.RequestSync, lambda a: operations.request_sync(a.peer, table=a.table)),
        "verify": api.verify,
        "resume": _answer(asked.NoArguments, lambda _: operations.resume()),
        "wait": _answer(asked.Wait, api.wait),
        "check": _answer(asked.NoArguments, lambda _: operations.check()),
        "set-online": _answer(asked.SetOnline, lambda a: operations.set_online(a.online)),
    }


def _of_tables(operations: Operations, api: _Api) -> dict[str, Handler]:
    return {
        "tables": _answer(asked.NoArguments, lambda _: operations.tables()),
        "add-table": _answer(
            asked.AddTable,
            lambda a: operations.add_table(
                a.table, a.key, a.columns, own_numbers=a.own_numbers, table_class=a.table_class
            ),
        ),
        "classify": _answer(asked.Classify, lambda a: operations.classify(a.table, a.table_class)),
        "put": _answer(asked.Put, lambda a: operations.put(a.table, a.key, a.columns)),
        "remove": _answer(asked.RowKey, lambda a: operations.remove(a.table, a.key)),
        "import-rows": _answer(asked.ImportRows, api.import_rows),
        "get": _answer(asked.RowKey, lambda a: operations.get(a.table, a.key)),
        "explain": _answer(asked.RowKey, lambda a: operations.explain(a.table, a.key)),
        "rows": _answer(asked.Rows, api.rows),
        "changes": api.changes,
        "evict": _answer(
            asked.Evict, lambda a: operations.evict(a.table, before_ms=a.before_ms, everything=a.everything)
        ),
        "rehydrate": _answer(asked.TableName, lambda a: operations.rehydrate(a.table)),
        "compact": _answer(asked.SomeTable, lambda a: operations.compact(a.table)),
        "forget": _answer(asked.Forget, lambda a: operations.forget(a.table, a.key, undo=a.undo)),
        "digest": _answer(asked.Digest, lambda a: operations.digest(a.table)),
    }


def _of_the_log(operations: Operations, api: _Api) -> dict[str, Handler]:
    return {
        "events": _answer(asked.Events, api.events),
        "notices": _answer(asked.Notices, lambda a: operations.notices(kind=a.kind, everything=a.everything)),
        "follow-notices": api.follow_notices,
        "export-events": api.export_events,
        "import-events": api.import_events,
        "acknowledge": _answer(asked.Acknowledge, lambda a: operations.acknowledge(a.ids)),
    }


def _of_members(operations: Operations, api: _Api) -> dict[str, Handler]:
    return {
        "members": _answer(asked.NoArguments, lambda _: operations.members()),
        "vouch": _answer(
            asked.Vouch,
            lambda a: operations.vouch(a.subject, name=a.name, recovery=a.recovery, passphrase=a.passphrase),
        ),
        "set-role": _answer(
            asked.SetRole,
            lambda a: operations.set_role(a.subject, a.role, recovery=a.recovery, passphrase=a.passphrase),
        ),
        "retire": _answer(
            asked.Retire,
            lambda a: operations.retire(
                a.subject, at_ms=a.at_ms, alone=a.alone, recovery=a.recovery, passphrase=a.passphrase
            ),
        ),
        "leave": _answer(asked.Leave, api.leave),
    }


def _of_pairing(operations: Operations, api: _Api) -> dict[str, Handler]:
    """Letting devices in (profile §10)."""
    return {
        "invite": _answer(asked.Invite, lambda a: operations.invite(a.ttl_ms, confirm=a.confirm)),
        "invited": _answer(asked.Invited, api.invited),
        "decide": _answer(asked.Decide, lambda a: operations.decide(a.named, approve=a.approve)),
        "nearby-open": _answer(asked.NearbyOpen, lambda a: operations.nearby_open(a.ttl_ms)),
        "nearby": _answer(asked.Nearby, api.nearby),
        "nearby-answer": _answer(asked.NearbyAnswer, lambda a: operations.nearby_answer(a.code, yes=a.yes)),
        "nearby-close": _answer(asked.NoArguments, lambda _: operations.nearby_close()),
    }


class _Api:
    """The operations that need more than a call."""

    def __init__(self, operations: Operations, stopping: asyncio.Event) -> None:
        self._operations = operations
        self._stopping = stopping

    async def ping(self, _request: Request) -> Response:
        """Answers as soon as the node can."""
        return JSONResponse({})

    async def import_rows(self, arguments: asked.ImportRows) -> Any:
        if len(arguments.rows) > ROWS_PER_IMPORT:
            raise UsageError(f"at most {ROWS_PER_IMPORT} rows fit one import call")
        return await self._operations.import_rows(arguments.table, arguments.rows)

    async def rows(self, arguments: asked.Rows) -> Any:
        limit = max(1, min(arguments.limit, ROWS_PER_PAGE))
        return await self._operations.rows(arguments.table, limit=limit, after=arguments.after)

    async def wait(self, arguments: asked.Wait) -> Any:
        timeout_s = min(arguments.timeout_s, asked.WAIT_SLICE_S)
        return await self._unless_stopped(self._operations.wait(timeout_s=timeout_s, live_only=arguments.live_only))

    async def discover(self, arguments: asked.Discover) -> Any:
        seconds = min(max(0.0, arguments.seconds), asked.WAIT_SLICE_S)
        return await self._unless_stopped(self._operations.discover(seconds=seconds))

    async def invited(self, arguments: asked.Invited) -> Any:
        timeout_s = min(arguments.timeout_s, asked.WAIT_SLICE_S)
        return await self._unless_stopped(
            self._operations.invited(arguments.id, seen=arguments.seen, timeout_s=timeout_s)
        )

    async def nearby(self, arguments: asked.Nearby) -> Any:
        timeout_s = min(arguments.timeout_s, asked.WAIT_SLICE_S)
        return await self._unless_stopped(self._operations.nearby(seen=arguments.seen, timeout_s=timeout_s))

    async def changes(self, request: Request) -> Response:
        """A line of JSON per change, until the client or the node goes away."""
        arguments = await _arguments(request, asked.Changes)
        changes = self._operations.changes(since=arguments.since, table=arguments.table)
        lines = _lines(changes, self._stopping)
        return StreamingResponse(lines, media_type="application/jsonl")

    async def conflict_changes(self, request: Request) -> Response:
        """A line of JSON per conflict that is recorded or changes."""
        arguments = await _arguments(request, asked.ConflictChanges)
        lines = _lines(self._operations.conflict_changes(since=arguments.since), self._stopping)
        return StreamingResponse(lines, media_type="application/jsonl")

    async def events(self, arguments: asked.Events) -> Any:
        limit = max(1, min(arguments.limit, EVENTS_PER_PAGE))
        return await self._operations.events(arguments.query, after=arguments.after, limit=limit)

    async def follow_notices(self, request: Request) -> Response:
        """A line of JSON per notice, until the client or the node goes away."""
        arguments = await _arguments(request, asked.Notices)
        notices = self._operations.follow_notices(kind=arguments.kind, everything=arguments.everything)
        return StreamingResponse(_lines(notices, self._stopping), media_type="application/jsonl")

    async def export_events(self, request: Request) -> Response:
        """A line of JSON now and then, the last one about the whole; who hangs up stops it."""
        arguments = await _arguments(request, asked.ExportEvents)
        told = self._operations.export_events(_whole(arguments.file), peer=arguments.peer, force=arguments.force)
        return StreamingResponse(_lines(told, self._stopping), media_type="application/jsonl")

    async def import_events(self, request: Request) -> Response:
        """Likewise; what was taken in stays."""
        arguments = await _arguments(request, asked.ImportEvents)
        told = self._operations.import_events(_whole(arguments.file))
        return StreamingResponse(_lines(told, self._stopping), media_type="application/jsonl")

    async def verify(self, request: Request) -> Response:
        """A line of JSON as often as there is progress, and the report at the end."""
        arguments = await _arguments(request, asked.Verify)
        lines = verify_lines.lines(self._operations, arguments, self._stopping)
        return StreamingResponse(lines, media_type="application/jsonl")

    async def metrics(self, request: Request) -> Response:
        """A GET is a scraper's, which reads Prometheus text."""
        await _arguments(request, asked.NoArguments)
        metrics = await self._operations.metrics()
        if request.method == "GET":
            return Response(exposition(metrics), media_type=CONTENT_TYPE)
        return JSONResponse(to_json_builtins(metrics))

    async def leave(self, arguments: asked.Leave) -> Any:
        timeout_s = min(arguments.timeout_s, LEAVE_S)
        return await self._unless_stopped(self._operations.leave(timeout_s=timeout_s))

    async def _unless_stopped(self, operation: Coroutine[Any, Any, T]) -> T:
        """What takes long by intention: whoever waits for it is told that the node stops, and nobody waits for that."""
        stop, answer = asyncio.ensure_future(self._stopping.wait()), asyncio.ensure_future(operation)
        try:
            await asyncio.wait({stop, answer}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise TransportError("the node was stopped while it was asked")
            return answer.result()
        finally:
            stop.cancel()
            answer.cancel()
            await asyncio.gather(stop, answer, return_exceptions=True)


def _whole(file: str) -> str:
    """A path that does not depend on where this process was started."""
    if not os.path.isabs(file):
        raise UsageError("name the file by its whole path: the node was started somewhere else")
    return file


def _answer(kind: type[A], operation: Callable[[A], Awaitable[Any]]) -> Handler:
    async def handle(request: Request) -> Response:
        result = await operation(await _arguments(request, kind))
        return JSONResponse(to_json_builtins(result))

    return handle


def _guarded(handler: Handler, token: str | None) -> Handler:
    """Check the token; turn errors into answers."""
    expected = f"Bearer {token}".encode()

    async def handle(request: Request) -> Response:
        given = request.headers.get("authorization", "").encode()
        if token is not None and not hmac.compare_digest(given, expected):
            return JSONResponse({"error": "UsageError", "message": "the control token is missing or wrong"}, 401)
        try:
            return await handler(request)
        except MeshError as error:
            return JSONResponse(to_json_builtins(failure_of(error)), http_status_of(error))
        except Exception:
            log_event(LOG, logging.ERROR, LogEvent.FAULT, trace=True, work="a control request")
            return JSONResponse(to_json_builtins(failure_of(MeshError(INTERNAL))), 500)

    return handle


async def _arguments(request: Request, kind: type[A]) -> A:
    """The request's arguments from its body, or a GET's from the query string."""
    if request.method == "GET":
        raw: Any = {name: _query_value(text) for name, text in request.query_params.items()}
        return from_json_builtins(raw, kind)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > asked.BODY_BYTES:
            raise UsageError(f"a control request is at most {asked.BODY_BYTES} bytes")
    return from_json_builtins(parse_json(bytes(body)) if body else {}, kind)


def _query_value(text: str) -> Any:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else text


async def _lines(views: AsyncIterator[T], stopping: asyncio.Event) -> AsyncIterator[str]:
    """Views as lines; an error is the last line. An empty first line tells the client that it is subscribed."""
    stop = asyncio.ensure_future(stopping.wait())
    following: asyncio.Future[T] | None = None
    try:
        yield "\n"
        while True:
            following = asyncio.ensure_future(anext(views))
            await asyncio.wait({stop, following}, return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                return
            yield to_json(following.result()) + "\n"
    except StopAsyncIteration:
        return
    except MeshError as error:
        yield json.dumps(to_json_builtins(failure_of(error))) + "\n"
    finally:
        pending = [task for task in (stop, following) if task is not None]
        for task in pending:
            task.cancel()
        await asyncio.gather(*pending, return_exceptions=True)
        close = getattr(views, "aclose", None)
        if close is not None:
            await close()


async def _no_such_route(_request: Request, _error: Exception) -> Response:
    failure = failure_of(NotFoundError("this node has no such operation: is its meshnode older?"))
    return JSONResponse(to_json_builtins(failure), 404)
