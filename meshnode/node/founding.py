"""Making a home: founding a mesh, or settling in one that this device was paired into (profile §9, §10)."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass

from meshnode.engine.authority import found_mesh
from meshnode.engine.engine import Engine
from meshnode.engine.membership import add_records
from meshnode.errors import PairingError, UsageError
from meshnode.limits import LABEL_BYTES
from meshnode.model.site import SiteKey, mesh_tag, short_text, site_text
from meshnode.node.background import to_the_end
from meshnode.node.config import Config
from meshnode.node.databases import DatabaseFile, create_private, database_of, encrypted_file, is_encrypted
from meshnode.node.home import INCARNATION_BYTES, Home, choose_port
from meshnode.node.homepath import DATABASE
from meshnode.node.storage import environment
from meshnode.node.views import FoundView
from meshnode.store import meta, peers, schema

SEED_BYTES = 32
MESH_ID_BYTES = 16  # profile §3


async def found(home: Home, *, name: str) -> FoundView:
    """Found a mesh in a home that is locked and not founded: keys, database, records, settings, in that order."""
    check_name(name)
    if home.passphrase.may_ask:
        return _found(home, name)
    return await to_the_end(lambda: _found(home, name))


def _found(home: Home, name: str) -> FoundView:
    home.begin()
    recovery = home.write_recovery_key(secrets.token_bytes(SEED_BYTES))
    key = home.write_site_key(secrets.token_bytes(SEED_BYTES))
    mesh_id = secrets.token_bytes(MESH_ID_BYTES)

    def first_records(engine: Engine) -> None:
        with engine.context.transaction() as tx:
            found_mesh(engine.context, tx, recovery, name)

    settled = settle(home, key, mesh_id, recovery.public_key, name, first_records)
    return FoundView(
        site=site_text(key.site),
        short=short_text(key.site),
        name=name,
        mesh_tag=mesh_tag(mesh_id).hex(),
        home=str(home.path),
        recovery_key=str(home.recovery_key_path),
        port=settled,
    )


@dataclass(frozen=True, slots=True)
class Found:
    """The mesh that lets this device in, as the ceremony ended."""

    mesh_id: bytes
    founder: bytes  # its public key
    inviter: bytes
    records: tuple[bytes, ...]
    address: str  # where the inviter answers (profile §11)


def settle_joined(home: Home, key: SiteKey, mesh: Found, name: str) -> int:
    """Settle in a mesh with the records that the inviter gave."""

    def brought(engine: Engine) -> None:
        with engine.context.transaction() as tx:
            add_records(engine.context, tx, mesh.records, peer=mesh.inviter)
            if not engine.context.membership.is_peer(key.site, key.public_key):
                raise PairingError("the inviter's records do not make this device a member: ask for another invite")
            peers.worked(tx, mesh.inviter, mesh.address, engine.context.env.wall_ms())

    return settle(home, key, mesh.mesh_id, mesh.founder, name, brought)


def settle(home: Home, key: SiteKey, mesh_id: bytes, founder: bytes, name: str, fill: Callable[[Engine], None]) -> int:
    """Make the database of a home that was begun, fill it, and finish the home; returns its port."""
    _remove_unfinished(home, key)
    incarnation = secrets.token_bytes(INCARNATION_BYTES)
    file = _new_database(home, key)
    database = file.writer()
    try:
        engine = Engine.create(
            database,
            environment(file),
            key=key,
            mesh_id=mesh_id,
            founder_public_key=founder,
            incarnation=incarnation,
        )
        fill(engine)
    finally:
        database.close()
    port = choose_port()
    home.write_config(Config(name=name, port=port))
    home.write_port(port)
    home.write_incarnation(incarnation)
    home.finish()
    return home.port


def check_name(name: str) -> None:
    """UsageError for a device name that a record could not carry."""
    if not name or len(name.encode("utf-8", "replace")) > LABEL_BYTES or not name.isprintable():
        raise UsageError(f"a device name has 1 to {LABEL_BYTES} bytes and no control characters")


def _remove_unfinished(home: Home, key: SiteKey) -> None:
    """What an earlier attempt at this home left in its database: nobody was told of any of it.

    A database of the application's own keeps everything that is not the node's.
    """
    if home.database_path == home.path / DATABASE:
        for suffix in ("", "-wal", "-shm"):
            home.database_path.with_name(home.database_path.name + suffix).unlink(missing_ok=True)
    elif home.database_path.exists():
        database = database_of(home).writer()
        try:
            with database.transaction() as tx:
                if schema.is_present(tx) and meta.read(tx, meta.SITE) in (None, key.site):
                    schema.remove(tx)
        finally:
            database.close()


def _new_database(home: Home, key: SiteKey) -> DatabaseFile:
    """The file that the node's tables are made in: a new one, or the application's as that is."""
    path = home.database_path
    if home.encrypt and path.exists() and not is_encrypted(path):
        raise UsageError(f"the database {path} is there already and not encrypted: encrypt it first, or take a new one")
    create_private(path)
    return encrypted_file(path, key) if home.encrypt else database_of(home)
