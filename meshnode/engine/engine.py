"""The engine: what the node asks of the store, one transaction per call (SSP/1 §12: one door for every event)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from meshnode.codec import cbor
from meshnode.engine import capture, growth, registry, takeback, untried
from meshnode.engine.adopt import adopt_rows
from meshnode.engine.context import Context, LoadMembership
from meshnode.engine.environment import Environment
from meshnode.engine.membership import load_membership
from meshnode.engine.policy import NOBODY
from meshnode.engine.registry import TableSpec
from meshnode.engine.verify import Checked, verify_untrusted
from meshnode.engine.write import LocalChange, write_changes
from meshnode.errors import StoreError
from meshnode.model.event import Event, KeyValue
from meshnode.model.hlc import Hlc
from meshnode.model.site import SiteKey, site_id_of
from meshnode.store import held, meta, schema
from meshnode.store.database import Database, Tx
from meshnode.store.names import TableEntry
from meshnode.store.tables import Destination


class Engine:
    """One node's database and all that may be done to it. Every method but `verify` runs on the writer thread."""

    def __init__(self, context: Context) -> None:
        self.context = context

    @classmethod
    def create(
        cls,
        database: Database,
        env: Environment,
        *,
        key: SiteKey,
        mesh_id: bytes,
        founder_public_key: bytes,
        incarnation: bytes,
        load: LoadMembership = load_membership,
    ) -> Engine:
        """Make the node's tables in a database that has none yet, for this site in this mesh."""
        with database.transaction() as tx:
            schema.migrate(tx)
            if meta.read(tx, meta.SITE) is not None:
                raise StoreError(
                    f"the database {database.path} already belongs to a node: open the home of that one, or give "
                    "this one a database of its own"
                )
            meta.write(tx, meta.MESH_ID, mesh_id)
            meta.write(tx, meta.FOUNDER, founder_public_key)
            meta.write(tx, meta.SITE, key.site)
            meta.write(tx, meta.INCARNATION, incarnation)
        return cls._start(database, env, key, load)

    @classmethod
    def open(
        cls, database: Database, env: Environment, key: SiteKey | None, *, load: LoadMembership = load_membership
    ) -> Engine:
        """Open what `create` made, bring its format up to date, and look at every destination again."""
        with database.transaction() as tx:
            schema.migrate(tx)
            site = meta.read(tx, meta.SITE)
        if site is None:
            raise StoreError(f"the database {database.path} holds no node: restore it from a backup")
        if key is not None and site != site_id_of(key.public_key):
            raise StoreError(f"the database {database.path} belongs to another site than the key beside it")
        return cls._start(database, env, key, load)

    @classmethod
    def _start(cls, database: Database, env: Environment, key: SiteKey | None, load: LoadMembership) -> Engine:
        context = Context(database, env, key, load)
        context.settle = lambda tx, keys: capture.settle(context, tx, keys)
        context.on_schema_change = lambda tx: _follow(context, tx)
        context.transact(lambda tx: _follow(context, tx))
        return cls(context)

    @property
    def incarnation(self) -> bytes:
        """What was made with this database (profile §8)."""
        return self.context.incarnation

    def verify(self, events: Sequence[bytes]) -> list[Checked]:
        """The door's first step, over bytes from anywhere; any thread may run it."""
        snapshot = self.context.snapshot
        assert snapshot is not None
        return verify_untrusted(
            events, mesh_id=snapshot.mesh_id, keyring=snapshot.membership, generation=snapshot.generation
        )

    def write(self, changes: Sequence[LocalChange]) -> list[Event]:
        """Author, apply and keep local changes; on disk when this returns."""
        return self.context.transact(lambda tx: write_changes(self.context, tx, changes))

    def register_table(self, spec: TableSpec, *, linked: Collection[bytes] = NOBODY) -> Destination:
        """Create or check a table, make it a destination, apply what was held for it, adopt the rows that it has."""
        destination = self.context.transact(lambda tx: registry.register(self.context, tx, spec, linked=linked))
        adopt_rows(self.context, spec.schema, spec.name)
        return destination

    def adopt_tables(self, specs: Sequence[TableSpec], *, linked: Collection[bytes] = NOBODY) -> None:
        """Make destinations of tables, and events of what anybody writes into them by SQL; all of them or none.

        What they hold now is signed by `sign_captured`, some rows at a time.
        """
        context = self.context

        def work(tx: Tx) -> None:
            for spec in specs:
                registry.register(
                    context, tx, spec, linked=linked, adopt=lambda table: capture.begin(context, tx, table)
                )

        context.transact(work)

    def sign_captured(self) -> bool:
        """Sign some of what was written by SQL; whether there may be more."""
        return self.context.transact(lambda tx: capture.step(self.context, tx))

    def follow_schema(self) -> bool:
        """One step of bringing rows up to a changed membership or schema; whether there may be more (SSP/1 §13.6)."""
        context = self.context
        more = context.transact(
            lambda tx: capture.step(context, tx) or takeback.step(context, tx) or growth.step(context, tx)
        )
        if more or not context.untried:
            return more
        return context.transact(lambda tx: untried.step(context, tx))

    def tables(self) -> list[tuple[TableEntry, Destination | None]]:
        """Every registered table, with the destination where it can be used."""
        context = self.context
        with context.transaction() as tx:
            return [(entry, context.destination(tx, entry)) for entry in context.tables.registered(tx)]

    def set_horizon(self, schema_name: str, table: str, horizon: Hlc) -> None:
        """Freeze a table below `horizon` (profile §5)."""
        context = self.context
        with context.transaction() as tx:
            context.tables.set_horizon(tx, context.tables.entry(tx, schema_name, table), horizon)

    def forget_row(self, schema_name: str, table: str, key: dict[str, KeyValue]) -> None:
        """Drop events of this row from now on."""
        context = self.context
        with context.transaction() as tx:
            entry = context.tables.entry(tx, schema_name, table)
            held.forget(tx, context.tables.number(tx, entry), cbor.encode(key))
            entry.forgotten = True

    def close(self) -> None:
        """Close the writing connection."""
        self.context.db.close()


def _follow(context: Context, tx: Tx) -> None:
    """The schema may be another: watch adopted tables again and sign what they say before their rows follow it."""
    if context.adopted:
        capture.watch_again(context, tx)
        capture.step(context, tx)
    registry.refresh(context, tx)
