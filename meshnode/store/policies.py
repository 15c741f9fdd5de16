"""The policy that is in force: what the settings said last, and a number that grows with every change (NEOTH).

Streams were filtered by it, so it is kept beside them: what a new one widens or narrows is told by comparing the two.
"""

from __future__ import annotations

from typing import Any, Final

from meshnode.codec import cbor
from meshnode.errors import CodecError, CorruptStateError, ProtocolError
from meshnode.model.policy import Policy, TableClass
from meshnode.model.scope import Scope
from meshnode.store import meta
from meshnode.store.database import Tx
from meshnode.store.delivery import Reads

_POLICY: Final = "policy"
_GENERATION: Final = "policy_generation"


def read(tx: Reads) -> Policy:
    """What is in force; the default before anything was said."""
    row = tx.execute("SELECT value FROM meshnode_meta WHERE name = ?", (_POLICY,)).fetchone()
    if row is None:
        return Policy()
    try:
        kept: Any = cbor.decode_untrusted(row[0])
        scope, replicate, days = kept
        return Policy(Scope(tuple(scope)), bool(replicate), int(days))
    except (CodecError, ProtocolError, TypeError, ValueError) as error:
        raise CorruptStateError(
            "the policy in the database cannot be read: nothing is staged or applied. Restore it from a backup"
        ) from error


def generation(tx: Tx) -> int:
    """The number of the policy: it grows with every change, classes of tables included."""
    return meta.read_counter(tx, _GENERATION)


def write(tx: Tx, policy: Policy) -> None:
    """Put a policy in force."""
    value = [list(policy.scope.patterns), policy.replicate_raw_ingress, policy.replay_budget_days]
    meta.write(tx, _POLICY, cbor.encode(value))


def changed(tx: Tx) -> int:
    """Something that decides what crosses is another now; returns the new number."""
    number = generation(tx) + 1
    meta.write(tx, _GENERATION, number)
    return number


def classes(tx: Reads) -> dict[tuple[str, str], TableClass]:
    """The tables that are not simply shared."""
    found = tx.execute("SELECT schema, name, class FROM meshnode_tables WHERE class <> 'shared'")
    return {(schema, name): TableClass(table_class) for schema, name, table_class in found}
