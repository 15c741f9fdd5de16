"""A node's store without its network: what verbs use when no node runs, and what a running node is built on."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Container, Mapping, Sequence
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Any, TypeVar

import msgspec

from meshnode.engine import identity, retention
from meshnode.engine.engine import Engine
from meshnode.engine.forget import forget, unforget
from meshnode.engine.membership import load_membership
from meshnode.engine.policy import PolicyChange, classify, take_policy
from meshnode.engine.registry import TableSpec
from meshnode.engine.write import LocalChange
from meshnode.errors import IdentityError, NotFoundError, UsageError
from meshnode.model.event import Event
from meshnode.model.member import Member
from meshnode.model.membership import Membership
from meshnode.node import following, keeping, members, reading, syncing
from meshnode.node.api import LEAVE_S, ROWS_PER_PAGE
from meshnode.node.bundling import Bundling
from meshnode.node.checking import check_report
from meshnode.node.config import Config, policy_of
from meshnode.node.databases import database_of
from meshnode.node.explaining import explanation
from meshnode.node.home import INCARNATION_BYTES, Home
from meshnode.node.identity import finish_renewal
from meshnode.node.jsonvalues import checked_value
from meshnode.node.letting_in import LettingIn
from meshnode.node.logbook import Logbook
from meshnode.node.memberviews import LeaveView, MemberView, RecordView
from meshnode.node.moved import refuse_moved, take_back
from meshnode.node.overview import status_of
from meshnode.node.peering import Heard, Mesh, peer_views, read_mesh, wait_result
from meshnode.node.storage import Storage, wall_ms
from meshnode.node.transaction import Transaction
from meshnode.node.views import (
    ChangeView,
    CheckReport,
    ForgetReport,
    FrontierView,
    HistoryRequest,
    IdentityView,
    ImportReport,
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
    parse_class,
    parse_table,
    table_text,
)
from meshnode.store import meta
from meshnode.store.database import Tx

T = TypeVar("T")

CHANGE_PAGE = 256  # changes, or rows, read at a time for one subscriber
POLL_S = 0.2  # between two looks at a database that another process writes


class LocalNode(LettingIn, Logbook, Bundling):
    """Implements `node.api.Operations` over the store alone."""

    def __init__(self, home: Home, storage: Storage | None) -> None:
        self.home = home
        self._storage = storage

    @property
    def storage(self) -> Storage:
        """The node's database; UsageError before the node was entered."""
        if self._storage is None:
            raise UsageError("enter the node first: `async with Node(...) as node:`")
        return self._storage

    # --- reading

    async def status(self) -> Status:
        """How the node is; `running` is false here."""
        heard = self._heard()  # of the event loop: what is read runs on another thread
        return await self.storage.read(lambda tx: self._status(tx, heard))

    async def peers(self) -> list[PeerView]:
        """The other members."""
        heard = self._heard()
        return await self.storage.read(lambda tx: peer_views(self._mesh(tx, heard)))

    async def tables(self) -> list[TableView]:
        """The registered tables, by name."""
        return await self.storage.read(reading.table_views)

    async def get(self, table: str, key: Values) -> RowView | None:
        """One live row."""
        schema, name = parse_table(table)
        return await self.storage.read(lambda tx: reading.one_row(tx, schema, name, _checked(key)))

    async def explain(self, table: str, key: Values) -> RowExplanation | None:
        """Why one row is as it is."""
        schema, name = parse_table(table)
        return await self.storage.read(lambda tx: explanation(tx, schema, name, _checked(key)))

    async def rows(self, table: str, *, limit: int = ROWS_PER_PAGE, after: Values | None = None) -> list[RowView]:
        """Live rows in key-bytes order."""
        schema, name = parse_table(table)
        beyond = None if after is None else _checked(after)
        return await self.storage.read(lambda tx: reading.row_page(tx, schema, name, limit, beyond))

    async def digest(self, table: str | None = None) -> list[TableDigest]:
        """The digest of one table, or of every one."""

        def read(tx: Tx) -> list[TableDigest]:
            names = reading.table_names(tx) if table is None else [parse_table(table)]
            return [reading.table_digest(tx, schema, name) for schema, name in names]

        return await self.storage.read(read)

    async def check(self) -> CheckReport:
        """Everything recomputed from the log, on a connection of its own: other reads go on meanwhile."""
        return await self.storage.read_apart(
            lambda tx: check_report(tx, self.storage.file.sqlite, self._membership(tx))
        )

    async def changes(self, *, since: int | None = None, table: str | None = None) -> AsyncIterator[ChangeView]:
        """Changes beyond `since` as they happen; a subscriber that was away too long gets every row first."""
        if self._ended():
            return
        named = None if table is None else table_text(*parse_table(table))
        if named is not None and named not in {view.table for view in await self.tables()}:
            raise NotFoundError(f"table {named!r} is not registered: add it first")
        place = await self.storage.read(lambda tx: following.begin(tx, since))
        while not self._ended():
            rung, before = self.storage.changed.listen(), place
            page, place = await self.storage.read(
                lambda tx, at=place: following.read_on(tx, at, named, CHANGE_PAGE)  # type: ignore[misc]
            )
            for change in page:
                yield change
            if place == before:
                await self.storage.changed.wait(rung, self._poll_s())

    async def sync_state(self, peer: str | None = None) -> list[SyncStateView]:
        """Both streams to each other member, or to one."""
        heard = self._heard()  # of the event loop
        return await self.storage.read(lambda tx: syncing.sync_states(tx, self._others(tx, peer), heard, wall_ms()))

    async def frontier(self, peer: str | None = None) -> list[FrontierView]:
        """The causal frontier, or one member's slot."""

        def read(tx: Tx) -> list[FrontierView]:
            own, wanted = meta.read_bytes(tx, meta.SITE), None if peer is None else self._others(tx, peer)
            return syncing.frontier_views(tx, self._membership(tx), own, wanted)

        return await self.storage.read(read)

    async def request_sync(self, peer: str | None = None, *, table: str | None = None) -> SyncRequest:
        """Ask, durably, and start a cycle where a node runs."""
        named = None if table is None else parse_table(table)
        members = [each for each in await self.storage.read(lambda tx: self._others(tx, peer)) if each.cutoff is None]
        linked = self._linked()
        asked = await self.storage.write(lambda engine: syncing.ask_members(engine.context, members, named, linked))
        await self._wake([each.site for each in members])
        return SyncRequest(asked=asked)

    # --- writing

    async def add_table(
        self,
        table: str,
        key: Mapping[str, str],
        columns: Mapping[str, str],
        *,
        own_numbers: bool = False,
        table_class: str | None = None,
    ) -> TableView:
        """Create and register a table, or register one that exists."""
        schema, name = parse_table(table)
        wanted = None if table_class is None else parse_class(table_class)
        spec = TableSpec(schema, name, dict(key), dict(columns), own_numbers, wanted)
        linked = self._linked()

        def register(engine: Engine) -> bool:
            before = engine.context.policy_generation
            engine.register_table(spec, linked=linked)
            return engine.context.policy_generation != before

        if await self._write(register):
            await self._policy_changed(PolicyChange(narrowed=True, widened=True))
        text = table_text(schema, name)
        return next(view for view in await self.tables() if view.table == text)

    async def classify(self, table: str, table_class: str) -> PolicyView:
        """Say what a table is to the mesh."""
        (schema, name), wanted, linked = parse_table(table), parse_class(table_class), self._linked()
        await self._policy_changed(
            await self.storage.write(lambda engine: classify(engine.context, schema, name, wanted, linked=linked))
        )
        return await self.policy()

    async def policy(self) -> PolicyView:
        """The policy as the settings say it, and the classes of tables."""
        config, classes = self._settings_now(), await self.storage.read(reading.table_classes)
        return PolicyView(
            scope=config.scope,
            replicate_raw_ingress=config.replicate_raw_ingress,
            replay_budget_days=config.replay_budget_days,
            classes=classes,
        )

    async def set_policy(self, setting: str, value: Any) -> PolicyView:
        """Change a setting in `config.toml`, and put it in force."""
        await asyncio.to_thread(self.home.change_policy, setting, value)
        await self._put_in_force(self.home.config)
        return await self.policy()

    async def put(self, table: str, key: Values, columns: Values) -> Receipt:
        """Write these columns of one row."""
        return await self._author(table, [RowChange(key=key, columns=columns)])

    async def remove(self, table: str, key: Values) -> Receipt:
        """Delete one row."""
        schema, name = parse_table(table)
        deletion = LocalChange(schema, name, _checked(key), None)
        return _receipt(table, await self._write(lambda engine: engine.write([deletion])))

    async def import_rows(self, table: str, rows: Sequence[RowChange]) -> ImportReport:
        """Write these rows in one transaction: all of them, or none and an error."""
        await self._author(table, rows)
        return ImportReport(rows=len(rows))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Write several rows of several tables at the end of the block: all of them, or none and an error."""
        transaction = Transaction()
        try:
            yield transaction
        finally:
            changes = transaction.end()
        if changes:
            transaction.written(await self._write(lambda engine: engine.write(changes)))

    # --- retention

    async def evict(self, table: str, *, before_ms: int, everything: bool = False) -> RetentionReport:
        """Set the table's horizon, then reclaim what is below it."""
        return await keeping.evict(self.storage, table, before_ms, everything=everything)

    async def rehydrate(self, table: str) -> HistoryRequest:
        """Drop the horizon and ask for the history."""
        schema, name = parse_table(table)
        asked = await self._write(lambda engine: retention.rehydrate(engine.context, schema, name))
        await self._ask()
        return HistoryRequest(table=table_text(schema, name), asked=asked)

    async def compact(self, table: str | None = None) -> RetentionReport:
        """Take out what no row can need any more."""
        return await keeping.compact(self.storage, table)

    async def forget(self, table: str, key: Values, *, undo: bool = False) -> ForgetReport:
        """Forget one row on this device, or take it again."""
        schema, name = parse_table(table)
        checked, text = _checked(key), table_text(schema, name)
        if not undo:
            events = await self._write(lambda engine: forget(engine.context, schema, name, checked))
            return ForgetReport(table=text, events=events)
        asked = await self._write(lambda engine: unforget(engine.context, schema, name, checked))
        await self._ask()
        return ForgetReport(table=text, undone=True, asked=asked)

    async def resume(self) -> IdentityView:
        """This copy is the device."""
        incarnation = secrets.token_bytes(INCARNATION_BYTES)
        asked = await self.storage.write(lambda engine: identity.resume(engine.context, incarnation))
        await asyncio.to_thread(self.home.write_incarnation, incarnation)
        take_back(self.home)
        await self._resumed()
        status = await self.status()
        return IdentityView(
            site=status.site, short=status.short, name=status.name, publishing=status.publishing, asked=asked
        )

    # --- who is in

    async def members(self) -> list[MemberView]:
        """Every device that is or was a member."""
        heard = self._heard()
        return await self.storage.read(lambda tx: members.member_views(self._mesh(tx, heard)))

    async def vouch(
        self, subject: str, *, name: str = "", recovery: str | None = None, passphrase: str | None = None
    ) -> RecordView:
        """Let a device in by its public key, or in again."""
        key = await members.recovery_signer(recovery, passphrase)
        return await self._sign(lambda engine: members.vouch(engine, subject, name, key))

    async def set_role(
        self, subject: str, role: str, *, recovery: str | None = None, passphrase: str | None = None
    ) -> RecordView:
        """Say what a member may do from now on."""
        key = await members.recovery_signer(recovery, passphrase)
        return await self._sign(lambda engine: members.set_role(engine, subject, role, key))

    async def retire(
        self,
        subject: str,
        *,
        at_ms: int | None = None,
        alone: bool = True,
        recovery: str | None = None,
        passphrase: str | None = None,
    ) -> RecordView:
        """End a member."""
        key = await members.recovery_signer(recovery, passphrase)
        return await self._sign(lambda engine: members.retire(engine, subject, at_ms, key, alone=alone))

    async def leave(self, *, timeout_s: float = LEAVE_S) -> LeaveView:
        """Retire this very device; without a running node nobody hears of it yet."""
        left = await self._sign(members.leave)
        return msgspec.structs.replace(left, untold=await self._untold())

    async def wait(self, *, timeout_s: float, live_only: bool = False) -> WaitResult:
        """What is open now: without a running node nothing moves, so there is nothing to wait for."""
        result = wait_result(await self.peers(), live_only=live_only)
        return result if result.complete else _with_reason(result, "no node runs here: start it with `meshnode up`")

    async def set_online(self, online: bool) -> None:
        """Only a running node has links."""
        raise UsageError("no node runs here: start it with `meshnode up`")

    # --- for the running node to refine

    def _membership(self, tx: Tx) -> Membership:
        return load_membership(tx, meta.read_bytes(tx, meta.FOUNDER))

    def _heard(self) -> Mapping[bytes, Heard]:
        return {}

    def _poll_s(self) -> float | None:
        return POLL_S

    def _ended(self) -> bool:
        return False

    def _invite_addresses(self) -> list[str]:
        return addresses_of(self.home.config.listen, self.home.port)

    def _settings_now(self) -> Config:
        return self.home.config

    def _linked(self) -> frozenset[bytes]:
        return frozenset()

    def _own_name(self) -> str:
        return self.home.config.name

    async def _policy_changed(self, change: PolicyChange) -> None:
        """What follows from it for peers is stored: a running node tells its links."""

    async def _put_in_force(self, config: Config) -> None:
        policy, linked = policy_of(config), self._linked()
        await self._policy_changed(
            await self.storage.write(lambda engine: take_policy(engine.context, policy, linked=linked))
        )

    async def _resumed(self) -> None:
        """Only a running node publishes."""

    async def _sign(self, job: Callable[[Engine], T]) -> T:
        """Records are stored: a running node tells them now, and judges its links by them."""
        return await self._write(job)

    async def _untold(self, told: Container[str] = ()) -> tuple[str, ...]:
        waiting = [view for view in await self.peers() if not view.retired and view.site not in told]
        return tuple(view.name or view.short for view in waiting)

    async def _wake(self, sites: Sequence[bytes]) -> None:
        """Only a running node has cycles."""

    async def _ask(self) -> None:
        """New requests are stored: a running node sends them now, any other at its next links."""

    async def _write(self, job: Callable[[Engine], T]) -> T:
        return await self.storage.write(job)

    # --- the rest

    async def _author(self, table: str, rows: Sequence[RowChange]) -> Receipt:
        schema, name = parse_table(table)
        changes = [LocalChange(schema, name, _checked(row.key), _checked(row.columns)) for row in rows]
        if not changes:
            raise UsageError("there is nothing to write")
        return _receipt(table, await self._write(lambda engine: engine.write(changes)))

    def _mesh(self, tx: Tx, heard: Mapping[bytes, Heard]) -> Mesh:
        return read_mesh(tx, self._membership(tx), meta.read_bytes(tx, meta.SITE), heard, wall_ms())

    def _incarnation(self) -> bytes | None:
        try:
            return self.home.incarnation()
        except IdentityError:
            return None  # `up` says what is wrong with the file

    def _others(self, tx: Tx, named: str | None) -> list[Member]:
        return syncing.others_named(tx, self._membership(tx), meta.read_bytes(tx, meta.SITE), named)

    def _status(self, tx: Tx, heard: Mapping[bytes, Heard]) -> Status:
        return status_of(
            self._mesh(tx, heard), self.home, self._incarnation(), encrypted=self.storage.file.key is not None
        )


@asynccontextmanager
async def open_local(home: Home, *, writing: bool, taking_back: bool = False) -> AsyncIterator[LocalNode]:
    """The store of a node that does not run; whoever writes holds the home's lock.

    IdentityError for writing where the device was moved elsewhere, unless it is taken back.
    """
    if writing:
        finish_renewal(home)
    if writing and not taking_back:
        refuse_moved(home)
    key = home.site_key() if writing else None
    storage = await asyncio.to_thread(Storage.open, database_of(home, key), key)
    try:
        if writing:
            await keeping.finish_erasure(storage)
        yield LocalNode(home, storage)
    finally:
        await storage.close()


def addresses_of(listen: str, port: int) -> list[str]:
    """Where others can reach a node that listens there: every address of this device, or the one."""
    from meshnode.net.addresses import Address, invite_addresses, local_interfaces  # of no use to most verbs

    if not ip_address(listen).is_unspecified:
        return [Address(listen, port).text()]
    return [each.text() for each in invite_addresses(local_interfaces(), port)]


def _checked(values: Values) -> Values:
    if not isinstance(values, Mapping):
        raise UsageError(f"columns are given as a mapping of names to values, not as {type(values).__name__}")
    return {name: checked_value(value) for name, value in values.items()}


def _receipt(table: str, events: Sequence[Event]) -> Receipt:
    return Receipt(
        table=table,
        events=len(events),
        hlc=events[-1].hlc[:],
        event_ids=[event.event_id.hex() for event in events],
    )


def _with_reason(result: WaitResult, reason: str) -> WaitResult:
    return WaitResult(complete=False, members=result.members, behind=result.behind, reason=reason)
