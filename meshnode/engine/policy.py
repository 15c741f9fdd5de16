"""A policy takes effect: what it narrows leaves what is staged, what it widens is brought (profile §8; NEOTH).

One transaction with the change itself, at whichever end it is made. What this node takes from now on is asked of every
peer, durably; what it lets out from now on is offered again to every peer that its stream has passed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from meshnode.engine.asking import ask_anew, withdraw
from meshnode.engine.context import Context
from meshnode.engine.outbox import offer_again, reopen
from meshnode.errors import CorruptStateError, NotFoundError
from meshnode.model.policy import Policy, TableClass
from meshnode.model.scope import gained
from meshnode.store import delivery, policies
from meshnode.store.database import Tx
from meshnode.store.names import TableEntry

NOBODY: Final[frozenset[bytes]] = frozenset()


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """What a change means for links that are up."""

    narrowed: bool = False  # something staged may not go out any more
    widened: bool = False  # something that was passed over is offered, or asked for, now
    scope: bool = False  # hellos say another scope from now on: it takes a new link (profile §8)

    @property
    def any(self) -> bool:
        """Whether links have to hear of it."""
        return self.narrowed or self.widened or self.scope


def take_policy(context: Context, policy: Policy, *, linked: Collection[bytes] = NOBODY) -> PolicyChange:
    """Put a policy in force; `linked` are the peers whose sessions are told, and stage again themselves."""
    with context.transaction() as tx:
        before = context.policy
        if policy == before:
            return PolicyChange()
        policies.write(tx, policy)
        context.policy = policy
        known = context.tables.known(tx)
        spans = [(each, before.days(each.table_class), policy.days(each.table_class)) for each in known]
        return _take_effect(context, tx, spans, gained(before.scope, policy.scope), linked, before)


def classify(
    context: Context, schema: str, name: str, table_class: TableClass, *, linked: Collection[bytes] = NOBODY
) -> PolicyChange:
    """Say what a table is to the mesh; NotFoundError for one that nobody ever named."""
    with context.transaction() as tx:
        entry = context.tables.entry(tx, schema, name)
        if entry.no is None:
            raise NotFoundError(f"nothing is known of a table {entry.text!r}: add it first")
        return set_class(context, tx, entry, table_class, linked=linked)


def set_class(
    context: Context, tx: Tx, entry: TableEntry, table_class: TableClass, *, linked: Collection[bytes] = NOBODY
) -> PolicyChange:
    """The same within a transaction."""
    before = entry.table_class
    if table_class is before:
        return PolicyChange()
    context.tables.set_class(tx, entry, table_class)
    spans = [(entry, context.policy.days(before), context.policy.days(table_class))]
    return _take_effect(context, tx, spans, [], linked, context.policy)


def _take_effect(
    context: Context,
    tx: Tx,
    spans: Sequence[tuple[TableEntry, float, float]],
    scope_gains: list[tuple[str, str]],
    linked: Collection[bytes],
    before: Policy,
) -> PolicyChange:
    """`spans` says of each table how many days of it crossed until now, and from now on."""
    context.policy_generation = policies.changed(tx)
    narrower = [entry for entry, old, new in spans if new < old]
    wider = [entry for entry, old, new in spans if new > old]
    for entry in narrower:
        if not context.policy.days(entry.table_class):
            withdraw(tx, entry.schema, entry.name)  # nor does its name leave any more
    if narrower:
        _discard_staged(context, tx, linked)
    offered = [entry for entry in wider if offer_again(context, tx, entry.schema, entry.name)]
    takes = context.policy.takes
    tables = [(each.schema, each.name) for each in wider if takes(each.schema, each.name, each.table_class)]
    classes = policies.classes(tx)
    tables += [pair for pair in scope_gains if context.policy.days(classes.get(pair, TableClass.SHARED))]
    asked = ask_anew(context, tx, list(dict.fromkeys(tables)), covering=True)
    return PolicyChange(
        bool(narrower), bool(offered) or asked > 0, before.scope.patterns != context.policy.scope.patterns
    )


def _discard_staged(context: Context, tx: Tx, linked: Collection[bytes]) -> None:
    """Frames in flight to peers that have no link: they begin anew at the settled cursor, without what is narrowed."""
    for stream in delivery.streams(tx, "meshnode_staged"):
        if stream.peer not in linked:
            try:
                reopen(context, tx, stream)
            except CorruptStateError:
                continue  # it stands still; once it can be read, its frames show another policy and are discarded
