"""`Operations` of a node that runs in another process, through its control API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from meshnode.control import requests as asked
from meshnode.control.address import ControlAddress, control_address
from meshnode.control.dashboardview import DashboardView
from meshnode.control.failures import error_of
from meshnode.control.http import LOST, Exchange
from meshnode.control.verify_lines import report_of
from meshnode.errors import BusyError, TransportError, UsageError
from meshnode.limits import INVITE_TTL_MS, NEARBY_TTL_MS
from meshnode.node.api import ALL_EVENTS, CONFLICTS_PER_PAGE, LEAVE_S, ROWS_PER_PAGE
from meshnode.node.bundleviews import ExportView, IntakeView
from meshnode.node.configviews import ConfigReceipt, ConfigView, ReloadView
from meshnode.node.conflict_views import ConflictReceipt, ConflictView
from meshnode.node.discoverviews import DiscoverView
from meshnode.node.doctorviews import DoctorView
from meshnode.node.eventviews import EVENTS_PER_PAGE, EventPage, EventQuery
from meshnode.node.home import Home
from meshnode.node.jsonvalues import from_json_builtins, parse_json, to_json
from meshnode.node.lock import busy_text
from meshnode.node.memberviews import LeaveView, MemberView, RecordView
from meshnode.node.metricviews import MetricView
from meshnode.node.pairing_views import CandidateView, InvitedView, InviteView, NearbyView
from meshnode.node.verifyviews import VerifyProgress, VerifyReport
from meshnode.node.views import (
    AcknowledgedView,
    ChangeView,
    CheckReport,
    ForgetReport,
    FrontierView,
    HistoryRequest,
    IdentityView,
    ImportReport,
    NoticeView,
    PeerView,
    PolicyView,
    Receipt,
    RetentionReport,
    RowChange,
    RowExplanation,
    RowView,
    Status,
    SyncRequest,
    SyncStateView,
    TableDigest,
    TableView,
    Values,
    WaitResult,
)

PING_S = 10.0  # seconds in which a running node answers at all

T = TypeVar("T")


class ControlClient:
    """Implements `node.api.Operations`; each call is one request on its own connection."""

    def __init__(self, address: ControlAddress) -> None:
        self._address = address

    @classmethod
    async def connect(cls, home: Home) -> ControlClient | None:
        """The running node of this home, or None. One that listens and does not answer raises BusyError."""
        address = control_address(home)
        if address is None:
            return None
        client = cls(address)
        try:
            async with asyncio.timeout(PING_S):
                exchange = await Exchange.open(address)
                if exchange is None:
                    return None
                await client._finish(exchange, "ping", asked.NoArguments(), dict[str, Any])
        except TransportError:
            return None  # it went away just now
        except TimeoutError as error:
            raise BusyError(f"the node does not answer; {busy_text(home.lock_path)}") from error
        return client

    async def open_dashboard(self) -> DashboardView:
        """A way into the dashboard of the running node; no operation of a node that is embedded."""
        return await self._call("open-dashboard", asked.NoArguments(), DashboardView)

    async def status(self) -> Status:
        return await self._call("status", asked.NoArguments(), Status)

    async def metrics(self) -> list[MetricView]:
        return await self._call("metrics", asked.NoArguments(), list[MetricView])

    async def peers(self) -> list[PeerView]:
        return await self._call("peers", asked.NoArguments(), list[PeerView])

    async def discover(self, *, seconds: float) -> DiscoverView:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            slice_s = min(max(0.0, end - loop.time()), asked.WAIT_SLICE_S)
            view = await self._call("discover", asked.Discover(seconds=slice_s), DiscoverView)
            if loop.time() >= end:
                return view

    async def doctor(self, checks: Sequence[str] = ()) -> DoctorView:
        return await self._call("doctor", asked.Doctor(checks=list(checks)), DoctorView)

    async def tables(self) -> list[TableView]:
        return await self._call("tables", asked.NoArguments(), list[TableView])

    async def add_table(
        self,
        table: str,
        key: Mapping[str, str],
        columns: Mapping[str, str],
        *,
        own_numbers: bool = False,
        table_class: str | None = None,
    ) -> TableView:
        arguments = asked.AddTable(
            table=table, key=dict(key), columns=dict(columns), own_numbers=own_numbers, table_class=table_class
        )
        return await self._call("add-table", arguments, TableView)

    async def classify(self, table: str, table_class: str) -> PolicyView:
        return await self._call("classify", asked.Classify(table=table, table_class=table_class), PolicyView)

    async def policy(self) -> PolicyView:
        return await self._call("policy", asked.NoArguments(), PolicyView)

    async def set_policy(self, setting: str, value: Any) -> PolicyView:
        return await self._call("set-policy", asked.SetPolicy(setting=setting, value=value), PolicyView)

    async def config(self) -> ConfigView:
        return await self._call("config", asked.NoArguments(), ConfigView)

    async def set_config(self, values: Mapping[str, Any]) -> ConfigReceipt:
        return await self._call("set-config", asked.SetConfig(values=dict(values)), ConfigReceipt)

    async def apply_config(self, text: str) -> ConfigReceipt:
        return await self._call("apply-config", asked.ApplyConfig(text=text), ConfigReceipt)

    async def reload(self) -> ReloadView:
        return await self._call("reload", asked.NoArguments(), ReloadView)

    async def put(self, table: str, key: Values, columns: Values) -> Receipt:
        return await self._call("put", asked.Put(table=table, key=key, columns=columns), Receipt)

    async def remove(self, table: str, key: Values) -> Receipt:
        return await self._call("remove", asked.RowKey(table=table, key=key), Receipt)

    async def import_rows(self, table: str, rows: Sequence[RowChange]) -> ImportReport:
        return await self._call("import-rows", asked.ImportRows(table=table, rows=list(rows)), ImportReport)

    async def get(self, table: str, key: Values) -> RowView | None:
        kind: Any = RowView | None
        row: RowView | None = await self._call("get", asked.RowKey(table=table, key=key), kind)
        return row

    async def explain(self, table: str, key: Values) -> RowExplanation | None:
        kind: Any = RowExplanation | None
        found: RowExplanation | None = await self._call("explain", asked.RowKey(table=table, key=key), kind)
        return found

    async def rows(self, table: str, *, limit: int = ROWS_PER_PAGE, after: Values | None = None) -> list[RowView]:
        return await self._call("rows", asked.Rows(table=table, limit=limit, after=after), list[RowView])

    async def evict(self, table: str, *, before_ms: int, everything: bool = False) -> RetentionReport:
        arguments = asked.Evict(table=table, before_ms=before_ms, everything=everything)
        return await self._call("evict", arguments, RetentionReport)

    async def rehydrate(self, table: str) -> HistoryRequest:
        return await self._call("rehydrate", asked.TableName(table=table), HistoryRequest)

    async def compact(self, table: str | None = None) -> RetentionReport:
        return await self._call("compact", asked.SomeTable(table=table), RetentionReport)

    async def forget(self, table: str, key: Values, *, undo: bool = False) -> ForgetReport:
        return await self._call("forget", asked.Forget(table=table, key=key, undo=undo), ForgetReport)

    def changes(self, *, since: int | None = None, table: str | None = None) -> AsyncIterator[ChangeView]:
        return self._stream("changes", asked.Changes(since=since, table=table), ChangeView)

    async def events(
        self, query: EventQuery = ALL_EVENTS, *, after: int = 0, limit: int = EVENTS_PER_PAGE
    ) -> EventPage:
        return await self._call("events", asked.Events(query=query, after=after, limit=limit), EventPage)

    async def notices(self, *, kind: str | None = None, everything: bool = False) -> list[NoticeView]:
        return await self._call("notices", asked.Notices(kind=kind, everything=everything), list[NoticeView])

    def follow_notices(self, *, kind: str | None = None, everything: bool = False) -> AsyncIterator[NoticeView]:
        return self._stream("follow-notices", asked.Notices(kind=kind, everything=everything), NoticeView)

    async def acknowledge(self, ids: Sequence[int] | None = None) -> AcknowledgedView:
        arguments = asked.Acknowledge(ids=None if ids is None else list(ids))
        return await self._call("acknowledge", arguments, AcknowledgedView)

    def export_events(
        self, file: str | Path, *, peer: str | None = None, force: bool = False
    ) -> AsyncIterator[ExportView]:
        arguments = asked.ExportEvents(file=str(Path(file).absolute()), peer=peer, force=force)
        return self._stream("export-events", arguments, ExportView)

    def import_events(self, file: str | Path) -> AsyncIterator[IntakeView]:
        return self._stream("import-events", asked.ImportEvents(file=str(Path(file).absolute())), IntakeView)

    async def invite(self, ttl_ms: int = INVITE_TTL_MS, *, confirm: bool = False) -> InviteView:
        return await self._call("invite", asked.Invite(ttl_ms=ttl_ms, confirm=confirm), InviteView)

    async def invited(self, invite_id: str, *, seen: str = "open", timeout_s: float = 0.0) -> InvitedView:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while True:
            slice_s = min(max(0.0, end - loop.time()), asked.WAIT_SLICE_S)
            arguments = asked.Invited(id=invite_id, seen=seen, timeout_s=slice_s)
            view = await self._call("invited", arguments, InvitedView)
            if view.state != seen or loop.time() >= end:
                return view

    async def decide(self, named: str, *, approve: bool) -> CandidateView:
        return await self._call("decide", asked.Decide(named=named, approve=approve), CandidateView)

    async def nearby_open(self, ttl_ms: int = NEARBY_TTL_MS) -> NearbyView:
        return await self._call("nearby-open", asked.NearbyOpen(ttl_ms=ttl_ms), NearbyView)

    async def nearby(self, *, seen: str = "", timeout_s: float = 0.0) -> NearbyView:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while True:
            slice_s = min(max(0.0, end - loop.time()), asked.WAIT_SLICE_S)
            view = await self._call("nearby", asked.Nearby(seen=seen, timeout_s=slice_s), NearbyView)
            if view.state != seen or loop.time() >= end:
                return view

    async def nearby_answer(self, code: str, *, yes: bool) -> NearbyView:
        return await self._call("nearby-answer", asked.NearbyAnswer(code=code, yes=yes), NearbyView)

    async def nearby_close(self) -> NearbyView:
        return await self._call("nearby-close", asked.NoArguments(), NearbyView)

    async def sync_state(self, peer: str | None = None) -> list[SyncStateView]:
        return await self._call("sync-state", asked.SomePeer(peer=peer), list[SyncStateView])

    async def frontier(self, peer: str | None = None) -> list[FrontierView]:
        return await self._call("frontier", asked.SomePeer(peer=peer), list[FrontierView])

    async def conflicts(
        self, table: str | None = None, *, everything: bool = False, limit: int = CONFLICTS_PER_PAGE
    ) -> list[ConflictView]:
        arguments = asked.Conflicts(table=table, everything=everything, limit=limit)
        return await self._call("conflicts", arguments, list[ConflictView])

    async def resolve_conflict(self, conflict_id: str, *, prefer: str) -> ConflictReceipt:
        arguments = asked.ResolveConflict(id=conflict_id, prefer=prefer)
        return await self._call("resolve-conflict", arguments, ConflictReceipt)

    async def acknowledge_conflict(self, conflict_id: str) -> ConflictReceipt:
        return await self._call("acknowledge-conflict", asked.OneConflict(id=conflict_id), ConflictReceipt)

    def conflict_changes(self, *, since: int | None = None) -> AsyncIterator[ConflictView]:
        return self._stream("conflict-changes", asked.ConflictChanges(since=since), ConflictView)

    async def request_sync(self, peer: str | None = None, *, table: str | None = None) -> SyncRequest:
        return await self._call("request-sync", asked.RequestSync(peer=peer, table=table), SyncRequest)

    async def verify(
        self,
        peer: str,
        *,
        table: str | None = None,
        repair: bool = False,
        tell: Callable[[VerifyProgress], None] | None = None,
    ) -> VerifyReport:
        exchange = await self._open()
        try:
            await self._head(exchange, "verify", asked.Verify(peer=peer, table=table, repair=repair))
            return await report_of(_lines(exchange.chunks()), tell)
        finally:
            await exchange.close()

    async def resume(self) -> IdentityView:
        return await self._call("resume", asked.NoArguments(), IdentityView)

    async def members(self) -> list[MemberView]:
        return await self._call("members", asked.NoArguments(), list[MemberView])

    async def vouch(
        self, subject: str, *, name: str = "", recovery: str | None = None, passphrase: str | None = None
    ) -> RecordView:
        return await self._call(
            "vouch", asked.Vouch(subject=subject, name=name, recovery=recovery, passphrase=passphrase), RecordView
        )

    async def set_role(
        self, subject: str, role: str, *, recovery: str | None = None, passphrase: str | None = None
    ) -> RecordView:
        return await self._call(
            "set-role", asked.SetRole(subject=subject, role=role, recovery=recovery, passphrase=passphrase), RecordView
        )

    async def retire(
        self,
        subject: str,
        *,
        at_ms: int | None = None,
        alone: bool = True,
        recovery: str | None = None,
        passphrase: str | None = None,
    ) -> RecordView:
        return await self._call(
            "retire",
            asked.Retire(subject=subject, at_ms=at_ms, alone=alone, recovery=recovery, passphrase=passphrase),
            RecordView,
        )

    async def leave(self, *, timeout_s: float = LEAVE_S) -> LeaveView:
        return await self._call("leave", asked.Leave(timeout_s=timeout_s), LeaveView)

    async def wait(self, *, timeout_s: float, live_only: bool = False) -> WaitResult:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while True:
            started = loop.time()
            slice_s = min(max(0.0, end - started), asked.WAIT_SLICE_S)
            result = await self._call("wait", asked.Wait(timeout_s=slice_s, live_only=live_only), WaitResult)
            gave_up = loop.time() - started < slice_s / 2  # waiting longer would not help
            if result.complete or gave_up or loop.time() >= end:
                return result

    async def digest(self, table: str | None = None) -> list[TableDigest]:
        return await self._call("digest", asked.Digest(table=table), list[TableDigest])

    async def check(self) -> CheckReport:
        return await self._call("check", asked.NoArguments(), CheckReport)

    async def set_online(self, online: bool) -> None:
        kind: Any = None
        await self._call("set-online", asked.SetOnline(online=online), kind)

    async def _call(self, operation: str, arguments: asked.Arguments, kind: type[T]) -> T:
        return await self._finish(await self._open(), operation, arguments, kind)

    async def _open(self) -> Exchange:
        exchange = await Exchange.open(self._address)
        if exchange is None:
            raise TransportError(LOST)
        return exchange

    async def _finish(self, exchange: Exchange, operation: str, arguments: asked.Arguments, kind: type[T]) -> T:
        try:
            await self._head(exchange, operation, arguments)
            return _converted(await exchange.body(), kind)
        finally:
            await exchange.close()

    async def _stream(self, operation: str, arguments: asked.Arguments, kind: type[T]) -> AsyncIterator[T]:
        """An answer that goes on, a line of JSON each."""
        exchange = await self._open()
        try:
            await self._head(exchange, operation, arguments)
            async for line in _lines(exchange.chunks()):
                raw = parse_json(line)
                if "error" in raw:
                    raise error_of(from_json_builtins(raw, asked.Failure))
                yield from_json_builtins(raw, kind)
        finally:
            await exchange.close()

    async def _head(self, exchange: Exchange, operation: str, arguments: asked.Arguments) -> None:
        """Ask, and raise what the answer says if it is an error."""
        body = to_json(asked.arguments_builtins(arguments)).encode()
        if await exchange.ask(f"{asked.API}/{operation}", body) != 200:
            raise error_of(_converted(await exchange.body(), asked.Failure))


def _converted(body: bytes, kind: type[T]) -> T:
    try:
        return from_json_builtins(parse_json(body), kind)
    except UsageError as error:
        raise TransportError(f"the node answered in a way this meshnode does not know: {error}") from error


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The non-empty lines of a stream."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line
