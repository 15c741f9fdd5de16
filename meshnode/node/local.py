"""A node's store without its network: what verbs that write use, and what a running node is built on."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Container, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import msgspec

from meshnode.engine import identity, retention
from meshnode.engine.engine import Engine
from meshnode.engine.forget import forget, unforget
from meshnode.engine.policy import PolicyChange, classify, take_policy
from meshnode.engine.registry import TableSpec
from meshnode.engine.write import LocalChange, write_changes
from meshnode.errors import NotFoundError, UsageError
from meshnode.node import keeping, members, syncing
from meshnode.node.acknowledging import Acknowledging
from meshnode.node.api import LEAVE_S
from meshnode.node.bundling import Bundling
from meshnode.node.config import Config, policy_of
from meshnode.node.configuring import Configuring
from meshnode.node.contesting import Contesting
from meshnode.node.databases import database_of
from meshnode.node.discovering import Discovering
from meshnode.node.doctor.patient import Patient
from meshnode.node.doctorviews import DoctorView
from meshnode.node.home import INCARNATION_BYTES, Home
from meshnode.node.identity import finish_renewal
from meshnode.node.jsonvalues import checked_values
from meshnode.node.letting_in import LettingIn
from meshnode.node.memberviews import LeaveView, RecordView
from meshnode.node.moved import refuse_moved, take_back
from meshnode.node.storage import Storage, wall_ms
from meshnode.node.transaction import Transaction
from meshnode.node.verifyviews import VerifyProgress, VerifyReport
from meshnode.node.views import (
    CheckReport,
    ForgetReport,
    HistoryRequest,
    IdentityView,
    ImportReport,
    PolicyView,
    Receipt,
    RetentionReport,
    RowChange,
    SyncRequest,
    TableView,
    Values,
    parse_class,
    parse_table,
    table_text,
)
from meshnode.node.writing import Write, receipt_of, write_rows

T = TypeVar("T")


class LocalNode(LettingIn, Configuring, Discovering, Contesting, Acknowledging, Bundling):
    """Implements `node.api.Operations` over the store alone."""

    # --- asking

    async def doctor(self, checks: Sequence[str] = ()) -> DoctorView:
        """What is wrong, and what to do about it."""
        from meshnode.node.doctor.checks import diagnose  # it looks at the network, which most verbs do not

        return await diagnose(await self._patient(), checks)

    async def request_sync(self, peer: str | None = None, *, table: str | None = None) -> SyncRequest:
        """Ask, durably, and start a cycle where a node runs."""
        named = None if table is None else parse_table(table)
        members = [each for each in await self.storage.read(lambda tx: self._others(tx, peer)) if each.cutoff is None]
        linked = self._linked()
        asked = await self.storage.write(lambda engine: syncing.ask_members(engine.context, members, named, linked))
        await self._wake([each.site for each in members])
        return SyncRequest(asked=asked)

    async def verify(
        self,
        peer: str,
        *,
        table: str | None = None,
        repair: bool = False,
        tell: Callable[[VerifyProgress], None] | None = None,
    ) -> VerifyReport:
        """Only a running node has links to compare over."""
        raise NotFoundError("no node runs here: start it with `meshnode up`")

    async def check(self, *, repair: bool = False) -> CheckReport:
        """Recompute everything from the log; mend what differs where asked to."""
        if not repair:
            return await super().check()
        from meshnode.node.checking import repaired  # of no use to most verbs

        report = await repaired(self.storage, self._membership)
        await self._ask()
        return report

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

    async def adopt(self, *tables: str, own_numbers: bool = False, table_class: str | None = None) -> list[str]:
        """Make tables of the node's own database sync whoever writes them by SQL, or all that it has; their names.

        What they hold is signed soon after. Raises RegistrationError, with nothing changed, where one cannot be.
        """
        from meshnode.node.capturing import fit_tables  # of no use to most verbs

        wanted, linked = None if table_class is None else parse_class(table_class), self._linked()
        named = await fit_tables(self.storage, tables, own_numbers=own_numbers)
        specs = [TableSpec(*name, own_numbers=own_numbers, table_class=wanted) for name in named]
        await self._write(lambda engine: engine.adopt_tables(specs, linked=linked))
        if wanted is not None:
            await self._policy_changed(PolicyChange(narrowed=True, widened=True))
        return [table_text(*name) for name in named]

    async def classify(self, table: str, table_class: str) -> PolicyView:
        """Say what a table is to the mesh."""
        (schema, name), wanted, linked = parse_table(table), parse_class(table_class), self._linked()
        await self._policy_changed(
            await self.storage.write(lambda engine: classify(engine.context, schema, name, wanted, linked=linked))
        )
        return await self.policy()

    async def put(self, table: str, key: Values, columns: Values) -> Receipt:
        """Write these columns of one row."""
        return await self._author(table, [RowChange(key=key, columns=columns)])

    async def remove(self, table: str, key: Values) -> Receipt:
        """Delete one row."""
        self.refuse_in_transaction()
        schema, name = parse_table(table)
        return await self._author_changes(table, [LocalChange(schema, name, checked_values(key), None)])

    async def import_rows(self, table: str, rows: Sequence[RowChange]) -> ImportReport:
        """Write these rows in one transaction: all of them, or none and an error."""
        await self._author(table, rows)
        return ImportReport(rows=len(rows))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Transaction]:
        """Write several rows of several tables at the end of the block: all of them, or none and an error.

        An exception in the block, or one row that cannot be written, and nothing is. Meanwhile this task writes
        through the transaction alone: UsageError for another transaction, or a write beside it, which would not be
        part of it.
        """
        with self.collecting():
            transaction = Transaction()
            try:
                yield transaction
            finally:
                writes = transaction.end()
        transaction.wrote(await self.write_rows(writes))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Within, the task that is running writes nothing but by its transaction."""
        self.refuse_in_transaction()
        task = asyncio.current_task()
        self._collecting.add(task)
        try:
            yield
        finally:
            self._collecting.discard(task)

    def refuse_in_transaction(self) -> None:
        """UsageError where the running task is in the middle of a transaction."""
        if self._collecting and asyncio.current_task() in self._collecting:
            raise UsageError("this is in the middle of a transaction: write by the object that `transaction()` gave")

    async def write_rows(self, writes: Sequence[Write]) -> Receipt:
        """Write them together, or none and an error."""
        self.refuse_in_transaction()
        tables = [table_text(each.schema, each.table) for each in writes]

        def write(engine: Engine) -> Receipt:
            context = engine.context
            return context.transact(lambda tx: receipt_of(context, tables, write_rows(context, tx, writes)))

        return await self._write(write)

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
        checked, text = checked_values(key), table_text(schema, name)
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

    async def set_online(self, online: bool) -> None:
        """Only a running node has links."""
        raise NotFoundError("no node runs here: start it with `meshnode up`")

    # --- for the running node to refine

    async def _patient(self) -> Patient:
        return Patient(self.home, wall_ms(), await self._settings_now(), self, self.storage.file)

    def _invite_addresses(self) -> list[str]:
        from meshnode.node.interfaces import addresses_of  # of no use to most verbs

        return addresses_of(self.home.config, self.home.port)

    def _linked(self) -> frozenset[bytes]:
        return frozenset()

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

    # --- the rest

    async def _author(self, table: str, rows: Sequence[RowChange]) -> Receipt:
        self.refuse_in_transaction()
        schema, name = parse_table(table)
        changes = [LocalChange(schema, name, checked_values(row.key), checked_values(row.columns)) for row in rows]
        if not changes:
            raise UsageError("there is nothing to write")
        return await self._author_changes(table, changes)

    async def _author_changes(self, table: str, changes: Sequence[LocalChange]) -> Receipt:
        def write(engine: Engine) -> Receipt:
            context = engine.context
            return context.transact(lambda tx: receipt_of(context, [table], write_changes(context, tx, changes)))

        return await self._write(write)


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
    storage = await asyncio.to_thread(lambda: Storage.open(database_of(home, key), key))
    try:
        if writing:
            await keeping.finish_erasure(storage)
        yield LocalNode(home, storage)
    finally:
        await storage.close()
