"""A fresh node for one vector case: the production engine on a database in memory, with a given clock and keyring."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from meshnode.cli.conform.values import hlc_of
from meshnode.codec.digest import blake3_256, derive_key
from meshnode.engine.commit import commit_events
from meshnode.engine.engine import Engine
from meshnode.engine.environment import Environment
from meshnode.model.hlc import Hlc
from meshnode.model.member import Member
from meshnode.model.membership import Membership
from meshnode.model.scope import Scope
from meshnode.model.site import SiteKey, site_id_of
from meshnode.model.verdict import Judgement
from meshnode.store.database import Database

_BEFORE_ALL = Hlc(-1, 0)  # below every HLC there is: a role that starts there is in force at each
_OWN_SEED = blake3_256(b"meshnode conform: this node")
_FOUNDER = SiteKey.from_seed(blake3_256(b"meshnode conform: founder"))
_PEER = bytes(16)  # who delivers


@contextmanager
def fresh_engine(vectors: dict[str, Any]) -> Iterator[Engine]:
    """An engine with the file's mesh, clock and keyring, and no table."""
    membership = _membership(vectors["keyring"])
    draws = itertools.count()
    env = Environment(
        wall_ms=lambda: int(vectors["now"]),
        random_bytes=lambda length: derive_key("meshnode conform", next(draws).to_bytes(8, "big"), length),
        sqlite=sqlite3,
    )
    engine = Engine.create(
        Database(Path(":memory:"), sqlite=sqlite3),
        env,
        key=SiteKey.from_seed(_OWN_SEED),
        mesh_id=bytes.fromhex(vectors["mesh_id"]),
        founder_public_key=_FOUNDER.public_key,
        incarnation=bytes(16),
        load=lambda _tx, _founder: membership,
    )
    try:
        yield engine
    finally:
        engine.close()


def deliver(engine: Engine, events: Sequence[bytes], scope: Scope) -> list[Judgement]:
    """Both steps of the door, as for a batch from a peer."""
    checked = engine.verify(events)
    context = engine.context
    return context.transact(
        lambda tx: commit_events(context, tx, checked, author_stream=False, scope=scope, peer=_PEER)
    )


def _membership(keyring: list[dict[str, Any]]) -> Membership:
    """The roles and cutoffs that the file states, without the records that would make them so."""
    members = [_member(entry) for entry in keyring]
    return Membership(_FOUNDER.site, _FOUNDER.public_key, frozenset(), {member.site: member for member in members})


def _member(entry: dict[str, Any]) -> Member:
    public_key = bytes.fromhex(entry["public_key"])
    retired = entry.get("retired")
    return Member(
        site=site_id_of(public_key),
        public_key=public_key,
        name="",
        admitted=bytes(32),
        vouched_by=_FOUNDER.site,
        vouched_at=Hlc(0, 0),
        role_starts=(_BEFORE_ALL,),
        roles=(entry["role"],),
        role_ids=(bytes(32),),
        cutoff=None if retired is None else hlc_of(retired),
    )
