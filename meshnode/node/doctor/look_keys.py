"""Opens the keys and reads what the database says of itself; tells neither."""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from meshnode.engine.publishing import TWIN
from meshnode.errors import IdentityError, LockedError, MeshError
from meshnode.model.site import site_text
from meshnode.node.doctor.home import OTHERS
from meshnode.node.doctor.keys import IdentityFacts, KeyFacts, RecoveryFacts
from meshnode.node.doctor.look_home import closed
from meshnode.node.doctor.patient import Patient
from meshnode.node.keyfile import is_protected, read_key
from meshnode.node.moved import moved, moved_text
from meshnode.store import meta


@dataclass(frozen=True, slots=True)
class _Stored:
    """What the database says of whose it is; nothing where it does not open, which another check tells."""

    site: str = ""
    incarnation: str | None = None
    twin: bool = False


def _stored(patient: Patient) -> _Stored:
    try:
        file = patient.database()
        alone = not patient.running and file.stands_alone
        with closing(file.reader(immutable=alone)) as reader, reader.snapshot() as tx:
            site, incarnation = meta.read_bytes(tx, meta.SITE), meta.read_bytes(tx, meta.INCARNATION)
            return _Stored(site_text(site), incarnation.hex(), meta.read(tx, TWIN) is not None)
    except MeshError:
        return _Stored()


async def look_at_key(patient: Patient) -> KeyFacts:
    """The site key, opened by the passphrase of the home where it is under one."""
    return await asyncio.to_thread(_key, patient)


def _key(patient: Patient) -> KeyFacts:
    path, protected = patient.home.site_key_path, False
    try:
        protected = is_protected(path)
        site = site_text(read_key(path, patient.home.passphrase).site)
    except LockedError:
        return KeyFacts(str(path), locked=True, protected=True)
    except MeshError as error:
        return KeyFacts(str(path), error=str(error), modes=_modes(path), protected=protected)
    return KeyFacts(str(path), site, protected=protected, stored_site=_stored(patient).site)


def _modes(path: Path) -> bool:
    """Whether others can read a file, so that a node does not, or this user cannot."""
    try:
        return closed(path) or (os.name == "posix" and bool(path.stat().st_mode & OTHERS))
    except OSError:
        return False


async def look_at_recovery(patient: Patient) -> RecoveryFacts:
    """Whether it is still here."""
    path = patient.home.recovery_key_path
    try:
        return RecoveryFacts(str(path), path.exists(), path.exists() and is_protected(path))
    except IdentityError:  # others can read it, which another check tells
        return RecoveryFacts(str(path), True)


async def look_at_identity(patient: Patient) -> IdentityFacts:
    """Beside the key and in the database."""
    return await asyncio.to_thread(_identity, patient)


def _identity(patient: Patient) -> IdentityFacts:
    home, stored, error = patient.home, _stored(patient), ""
    mark = moved(home)
    beside: bytes | None = None
    try:
        beside = home.incarnation()
    except IdentityError as damaged:
        error = str(damaged)
    return IdentityFacts(
        None if beside is None else beside.hex(),
        error,
        closed(home.incarnation_path),
        stored.incarnation,
        stored.twin,
        "" if mark is None else moved_text(mark),
        home.renewed_key_path.exists(),
    )
