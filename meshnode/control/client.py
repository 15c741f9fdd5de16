"""`Operations` of a node that runs in another process, through its control API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

from meshnode.control import requests as asked
from meshnode.control.address import ControlAddress, control_address
from meshnode.control.dashboardview import DashboardView
from meshnode.control.failures import error_of
from meshnode.control.http import LOST, Exchange
from meshnode.control.operation import A, Operation, T
from meshnode.control.operations import apps, conflicts, log, members, node, pairing, tables
from meshnode.errors import BusyError, TransportError, UsageError
from meshnode.limits import INVITE_TTL_MS, NEARBY_TTL_MS
from meshnode.node.api import ALL_EVENTS, CONFLICTS_PER_PAGE, LEAVE_S, ROWS_PER_PAGE
from meshnode.node.bundleviews import ExportView, IntakeView
from meshnode.node.config import PolicyName, PolicyValue
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
from meshnode.node.pairing_views import CandidateView, InvitedView, InviteView, NearbyView, OpenInviteView
from meshnode.node.projectionviews import ProjectionPage, RowWrite, WrittenView
from meshnode.node.syncviews import FrontierView, SyncRequest, SyncStateView
from meshnode.node.verifyviews import VerifyProgress, VerifyReport
from meshnode.node.views import (
    AcknowledgedView,
    ChangeView,
    CheckReport,
    ForgetReport,
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
    TableDigest,
    TableView,
    Values,
    WaitResult,
)

PING_S = 10.0  # seconds in which a running node answers at all


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
                await client._finish(exchange, node.PING, asked.NoArguments())
        except TransportError:
            return None  # it went away just now
        except TimeoutError as error:
            raise BusyError(f"the node does not answer; {busy_text(home.lock_path)}") from error
        return client

    async def open_dashboard(self) -> DashboardView:
        """A way into the dashboard of the running node; no operation of a node that is embedded."""
        return await self._call(node.OPEN_DASHBOARD, asked.NoArguments())

    async def status(self) -> Status:
        return await self._call(node.STATUS, asked.NoArguments())

    async def metrics(self) -> list[MetricView]:
        return await self._call(node.METRICS, asked.NoArguments())

    async def peers(self) -> list[PeerView]:
        return await self._call(node.PEERS, asked.NoArguments())

    async def discover(self, *, seconds: float) -> DiscoverView:
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            slice_s = min(max(0.0, end - loop.time()), asked.WAIT_SLICE_S)
            view = await self._call(node.DISCOVER, asked.Discover(seconds=slice_s))
            if loop.time() >= end:
                return view

    async def doctor(self, checks: Sequence[str] = ()) -> DoctorView:
        return await self._call(node.DOCTOR, asked.Doctor(checks=list(checks)))

    async def tables(self) -> list[TableView]:
        return await self._call(tables.TABLES, asked.NoArguments())

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
        return await self._call(tables.ADD_TABLE, arguments)

    async def classify(self, table: str, table_class: str) -> PolicyView:
        return await self._call(tables.CLASSIFY, asked.Classify(table=table, table_class=table_class))

    async def policy(self) -> PolicyView:
        return await self._call(node.POLICY, asked.NoArguments())

    async def set_policy(self, setting: PolicyName, value: PolicyValue) -> PolicyView:
        return await self._call(node.SET_POLICY, asked.SetPolicy(setting=setting, value=value))

    async def config(self) -> ConfigView:
        return await self._call(node.CONFIG, asked.NoArguments())

    async def set_config(self, values: Mapping[str, Any]) -> ConfigReceipt:
        return await self._call(node.SET_CONFIG, asked.SetConfig(values=dict(values)))

    async def apply_config(self, text: str) -> ConfigReceipt:
        return await self._call(node.APPLY_CONFIG, asked.ApplyConfig(text=text))

    async def reload(self) -> ReloadView:
        return await self._call(node.RELOAD, asked.NoArguments())

    async def put(self, table: str, key: Values, columns: Values) -> Receipt:
        return await self._call(tables.PUT, asked.Put(table=table, key=key, columns=columns))

    async def remove(self, table: str, key: Values) -> Receipt:
        return await self._call(tables.REMOVE, asked.RowKey(table=table, key=key))

    async def import_rows(self, table: str, rows: Sequence[RowChange]) -> ImportReport:
        return await self._call(tables.IMPORT_ROWS, asked.ImportRows(table=table, rows=list(rows)))

    async def get(self, table: str, key: Values) -> RowView | None:
        return await self._call(tables.GET, asked.RowKey(table=table, key=key))

    async def explain(self, table: str, key: Values) -> RowExplanation | None:
        return await self._call(tables.EXPLAIN, asked.RowKey(table=table, key=key))

    async def rows(
        self,
        table: str,
        *,
        limit: int = ROWS_PER_PAGE,
        after: Values | None = None,
        before: Values | None = None,
    ) -> list[RowView]:
        return await self._call(tables.ROWS, asked.Rows(table=table, limit=limit, after=after, before=before))

    async def evict(self, table: str, *, before_ms: int, everything: bool = False) -> RetentionReport:
        arguments = asked.Evict(table=table, before_ms=before_ms, everything=everything)
        return await self._call(tables.EVICT, arguments)

    async def rehydrate(self, table: str) -> HistoryRequest:
        return await self._call(tables.REHYDRATE, asked.TableName(table=table))

    async def compact(self, table: str | None = None) -> RetentionReport:
        return await self._call(tables.COMPACT, asked.SomeTable(table=table))

    async def forget(self, table: str, key: Values, *, undo: bool = False) -> ForgetReport:
        return await self._call(tables.FORGET, asked.Forget(table=table, key=key, undo=undo))

    def changes(self, *, since: int | None = None, table: str | None = None) -> AsyncIterator[ChangeView]:
        return self._stream(tables.CHANGES, asked.Changes(since=since, table=table))

    def project(self, schema: str, *, epoch: str = "", since: int = 0) -> AsyncGenerator[ProjectionPage]:
        return self._stream(apps.PROJECT, asked.Project(schema=schema, epoch=epoch, since=since))

    async def write_schema(self, schema: str, writes: Sequence[RowWrite]) -> WrittenView:
        return await self._call(apps.WRITE_SCHEMA, asked.WriteSchema(schema=schema, writes=list(writes)))

    async def events(
        self, query: EventQuery = ALL_EVENTS, *, after: int = 0, before: int | None = None, limit: int = EVENTS_PER_PAGE
    ) -> EventPage:
        return await self._call(log.EVENTS, asked.Events(query=query, after=after, before=before, limit=limit))

    async def notices(self, *, kind: str | None = None, everything: bool = False) -> list[NoticeView]:
        return await self._call(log.NOTICES, asked.Notices(kind=kind, everything=everything))

    def follow_notices(self, *, kind: str | None = None, everything: bool = False) -> AsyncIterator[NoticeView]:
        return self._stream(log.FOLLOW_NOTICES, asked.Notices(kind=kind, everything=everything))

    async def acknowledge(self, ids: Sequence[int] | None = None) -> AcknowledgedView:
        arguments = asked.Acknowledge(ids=None if ids is None else list(ids))
        return await self._call(log.ACKNOWLEDGE, arguments)

    def export_events(
        self, file: str | Path, *, peer: str | None = None, force: bool = False
    ) -> AsyncIterator[ExportView]:
        arguments = asked.ExportEvents(file=str(Path(file).absolute()), peer=peer, force=force)
        return self._stream(log.EXPORT_EVENTS, arguments)

    def import_events(self, file: str | Path) -> AsyncIterator[IntakeView]:
        return self._stream(log.IMPORT_EVENTS, asked.ImportEvents(file=str(Path(file).absolute())))

    async def invite(self, ttl_ms: int = INVITE_TTL_MS, *, confirm: bool = False) -> InviteView:
        return await self._call(pairing.INVITE, asked.Invite(ttl_ms=ttl_ms, confirm=confirm))

    async def invited(self, invite_id: str, *, seen: str = "open", timeout_s: float = 0.0) -> InvitedView:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while True:
            slice_s = min(max(0.0, end - loop.time()), asked.WAIT_SLICE_S)
            arguments = asked.Invited(id=invite_id, seen=seen, timeout_s=slice_s)
            view = await self._call(pairing.INVITED, arguments)
            if view.state != seen or loop.time() >= end:
                return view

    async def invites(self) -> list[OpenInviteView]:
        return await self._call(pairing.INVITES, asked.NoArguments())

    async def withdraw_invite(self, invite_id: str) -> OpenInviteView:
        return await self._call(pairing.WITHDRAW_INVITE, asked.WithdrawInvite(id=invite_id))

    async def decide(self, named: str, *, approve: bool) -> CandidateView:
        return await self._call(pairing.DECIDE, asked.Decide(named=named, approve=approve))

    async def nearby_open(self, ttl_ms: int = NEARBY_TTL_MS) -> NearbyView:
        return await self._call(pairing.NEARBY_OPEN, asked.NearbyOpen(ttl_ms=ttl_ms))

    async def nearby(self, *, seen: str = "", timeout_s: float = 0.0) -> NearbyView:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while True:
            slice_s = min(max(0.0, end - loop.time()), asked.WAIT_SLICE_S)
            view = await self._call(pairing.NEARBY, asked.Nearby(seen=seen, timeout_s=slice_s))
            if view.state != seen or loop.time() >= end:
                return view

    async def nearby_answer(self, code: str, *, yes: bool) -> NearbyView:
        return await self._call(pairing.NEARBY_ANSWER, asked.NearbyAnswer(code=code, yes=yes))

    async def nearby_close(self) -> NearbyView:
        return await self._call(pairing.NEARBY_CLOSE, asked.NoArguments())

    async def sync_state(self, peer: str | None = None) -> list[SyncStateView]:
        return await self._call(node.SYNC_STATE, asked.SomePeer(peer=peer))

    async def frontier(self, peer: str | None = None) -> list[FrontierView]:
        return await self._call(node.FRONTIER, asked.SomePeer(peer=peer))

    async def conflicts(
        self, table: str | None = None, *, everything: bool = False, limit: int = CONFLICTS_PER_PAGE
    ) -> list[ConflictView]:
        arguments = asked.Conflicts(table=table, everything=everything, limit=limit)
        return await self._call(conflicts.CONFLICTS, arguments)

    async def resolve_conflict(self, conflict_id: str, *, prefer: str) -> ConflictReceipt:
        arguments = asked.ResolveConflict(id=conflict_id, prefer=prefer)
        return await self._call(conflicts.RESOLVE_CONFLICT, arguments)

    async def acknowledge_conflict(self, conflict_id: str) -> ConflictReceipt:
        return await self._call(conflicts.ACKNOWLEDGE_CONFLICT, asked.OneConflict(id=conflict_id))

    def conflict_changes(self, *, since: int | None = None) -> AsyncIterator[ConflictView]:
        return self._stream(conflicts.CONFLICT_CHANGES, asked.ConflictChanges(since=since))

    async def request_sync(self, peer: str | None = None, *, table: str | None = None) -> SyncRequest:
        return await self._call(node.REQUEST_SYNC, asked.RequestSync(peer=peer, table=table))

    async def verify(
        self,
        peer: str,
        *,
        table: str | None = None,
        repair: bool = False,
        tell: Callable[[VerifyProgress], None] | None = None,
    ) -> VerifyReport:
        arguments = asked.Verify(peer=peer, table=table, repair=repair)
        async with aclosing(self._stream(node.VERIFY, arguments)) as lines:
            async for line in lines:
                if line.report is not None:
                    return line.report
                if line.progress is not None and tell is not None:
                    tell(line.progress)
        raise TransportError("the node went away while it compared")

    async def resume(self) -> IdentityView:
        return await self._call(node.RESUME, asked.NoArguments())

    async def members(self) -> list[MemberView]:
        return await self._call(members.MEMBERS, asked.NoArguments())

    async def vouch(
        self, subject: str, *, name: str = "", recovery: str | None = None, passphrase: str | None = None
    ) -> RecordView:
        return await self._call(
            members.VOUCH, asked.Vouch(subject=subject, name=name, recovery=recovery, passphrase=passphrase)
        )

    async def set_role(
        self, subject: str, role: str, *, recovery: str | None = None, passphrase: str | None = None
    ) -> RecordView:
        return await self._call(
            members.SET_ROLE, asked.SetRole(subject=subject, role=role, recovery=recovery, passphrase=passphrase)
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
            members.RETIRE,
            asked.Retire(subject=subject, at_ms=at_ms, alone=alone, recovery=recovery, passphrase=passphrase),
        )

    async def leave(self, *, timeout_s: float = LEAVE_S) -> LeaveView:
        return await self._call(members.LEAVE, asked.Leave(timeout_s=timeout_s))

    async def wait(self, *, timeout_s: float, live_only: bool = False) -> WaitResult:
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        while True:
            started = loop.time()
            slice_s = min(max(0.0, end - started), asked.WAIT_SLICE_S)
            result = await self._call(node.WAIT, asked.Wait(timeout_s=slice_s, live_only=live_only))
            gave_up = loop.time() - started < slice_s / 2  # waiting longer would not help
            if result.complete or gave_up or loop.time() >= end:
                return result

    async def digest(self, table: str | None = None) -> list[TableDigest]:
        return await self._call(tables.DIGEST, asked.SomeTable(table=table))

    async def check(self, *, repair: bool = False) -> CheckReport:
        return await self._call(node.CHECK, asked.Check(repair=repair))

    async def set_online(self, online: bool) -> None:
        await self._call(node.SET_ONLINE, asked.SetOnline(online=online))

    async def _call(self, operation: Operation[A, T], arguments: A) -> T:
        return await self._finish(await self._open(), operation, arguments)

    async def _open(self) -> Exchange:
        exchange = await Exchange.open(self._address)
        if exchange is None:
            raise TransportError(LOST)
        return exchange

    async def _finish(self, exchange: Exchange, operation: Operation[A, T], arguments: A) -> T:
        try:
            await self._head(exchange, operation, arguments)
            return _converted(await exchange.body(), operation.gives)
        finally:
            await exchange.close()

    async def _stream(self, operation: Operation[A, T], arguments: A) -> AsyncGenerator[T]:
        """An answer that goes on, a line of JSON each."""
        exchange = await self._open()
        try:
            await self._head(exchange, operation, arguments)
            async for line in _lines(exchange.chunks()):
                raw = parse_json(line)
                if "error" in raw:
                    raise error_of(from_json_builtins(raw, asked.Failure))
                yield from_json_builtins(raw, operation.gives)
        finally:
            await exchange.close()

    async def _head(self, exchange: Exchange, operation: Operation[A, T], arguments: A) -> None:
        """Ask, and raise what the answer says if it is an error."""
        body = to_json(asked.arguments_builtins(arguments)).encode()
        if await exchange.ask(operation.path, body) != 200:
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
