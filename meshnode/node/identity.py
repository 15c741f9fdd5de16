"""The owner says which copy this is: the device itself, or another one from now on (profile §8).

To become another site takes an invite, like joining: the new key is vouched for before anything here changes. It is
kept as `site.key.new` until the database has changed over, so that a crash at any moment leaves the one or the other,
and the same invite may be tried again.
"""

from __future__ import annotations

import secrets
from contextlib import closing
from typing import TYPE_CHECKING

from meshnode.engine.engine import Engine
from meshnode.engine.identity import become
from meshnode.errors import PairingError, UsageError
from meshnode.model.invite import Invite, parse_invite_untrusted
from meshnode.model.site import short_text, site_text
from meshnode.node.databases import database_of
from meshnode.node.founding import SEED_BYTES, check_name
from meshnode.node.home import INCARNATION_BYTES, Home
from meshnode.node.moved import take_back
from meshnode.node.pairing import Joined
from meshnode.node.storage import environment, wall_ms
from meshnode.node.views import IdentityView
from meshnode.store import meta, peers

if TYPE_CHECKING:
    from meshnode.node.joining import Tell


async def renew(
    home: Home, invite: str, *, name: str = "", timeout_s: float = 60.0, tell: Tell = lambda _text: None
) -> IdentityView:
    """Become another site of the same mesh; the home is locked and no node runs. Rows and log stay.

    Raises InviteError, PairingError as joining does, UsageError where the invite is of another mesh.
    """
    from meshnode.node.joining import pair  # QUIC, of no use to the verbs that only open the store

    asked, called = parse_invite_untrusted(invite), name or home.config.name
    check_name(called)
    if asked.expired(wall_ms()):
        raise PairingError("this invite has expired: make a new one with `meshnode invite`, or set this device's clock")
    finish_renewal(home)
    if _read(home, meta.MESH_ID) != asked.mesh_id:
        raise UsageError("the invite is of another mesh: a device of two meshes has a home for each")
    former = _read(home, meta.SITE)
    key = home.write_renewed_key(secrets.token_bytes(SEED_BYTES))
    joined, address = await pair(asked, key, home.config, called, timeout_s, tell)
    _change_over(home, asked, joined, address)
    finish_renewal(home)
    if name:
        home.change_setting("name", name)
    waited_for = "" if joined.membership.retired(former) is not None else site_text(former)
    return IdentityView(
        site=site_text(key.site), short=short_text(key.site), name=called, publishing=True, former=waited_for
    )


def finish_renewal(home: Home) -> None:
    """Where the database is another site's already, its key takes its place; a renewal that got no further is undone.

    Called before the site key is read, by whoever holds the lock; what else was cut short left drafts, which go first.
    """
    home.sweep()
    if not home.renewed_key_path.exists() or not home.database_path.exists():
        return
    key, file = home.renewed_key(), database_of(home)
    if _read(home, meta.SITE) == key.site:
        if file.key not in (None, key.database_key()):
            with closing(file.writer()) as database:
                database.rekey(key.database_key())
        home.write_incarnation(_read(home, meta.INCARNATION))
        take_back(home)
        home.renewed_key_path.replace(home.site_key_path)


def _read(home: Home, name: str) -> bytes:
    with closing(database_of(home).reader()) as reader, reader.snapshot() as tx:
        return meta.read_bytes(tx, name)


def _change_over(home: Home, invite: Invite, joined: Joined, address: str) -> None:
    file = database_of(home)
    database = file.writer()
    try:
        context = Engine.open(database, environment(file), None).context
        key = home.renewed_key()
        become(context, key, invite.site, joined.records, secrets.token_bytes(INCARNATION_BYTES))
        with database.transaction() as tx:
            peers.worked(tx, invite.site, address, wall_ms())
    finally:
        database.close()
