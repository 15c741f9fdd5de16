"""Reads the database file through, for a bounded time, and measures what is around it."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from contextlib import closing
from pathlib import Path

from meshnode.errors import LockedError, MeshError, NoRoomError, NotAllowedError
from meshnode.node.databases import is_encrypted
from meshnode.node.doctor.database import DatabaseFacts, DiskFacts, PlaceFacts, WalFacts
from meshnode.node.doctor.look_home import closed
from meshnode.node.doctor.patient import NotLookedAtError, Patient
from meshnode.store import logcounts, schema

QUICK_CHECK_S = 5.0  # seconds that the database is read for at most
PROBLEMS = 5  # that are named of a damaged database


async def look_at_database(patient: Patient) -> DatabaseFacts:
    """All of it, on a connection of its own."""
    return await asyncio.to_thread(read_through, patient, QUICK_CHECK_S)


def read_through(patient: Patient, seconds: float) -> DatabaseFacts:
    """For so many seconds at most."""
    path = patient.home.database_path
    if not path.exists() and not patient.settings_readable:
        raise NotLookedAtError("the settings cannot be read, and may name another place for it: see `config`")
    if not path.exists():
        return DatabaseFacts(str(path), there=False)
    size, encrypted = path.stat().st_size, False
    started = time.monotonic()
    try:
        encrypted = is_encrypted(path)
        file = patient.database()
        with closing(file.reader(immutable=not patient.running and file.stands_alone)) as reader:
            with reader.snapshot() as tx:
                found = schema.format_of(tx)
                lost = logcounts.lost(tx) if found == schema.FORMAT else 0
            problems, finished = reader.quick_check(PROBLEMS, lambda: time.monotonic() - started > seconds)
    except LockedError:
        return DatabaseFacts(str(path), encrypted=True, locked=True, bytes=size)
    except MeshError as error:
        begins = "it does not begin as a database that can be read without a key: " if encrypted else ""
        return DatabaseFacts(
            str(path),
            encrypted=encrypted,
            error=f"{begins}{error}",
            closed=closed(path),
            full=isinstance(error, NoRoomError),
            denied=isinstance(error, NotAllowedError),
            bytes=size,
        )
    return DatabaseFacts(
        str(path),
        encrypted=encrypted,
        format=found,
        known_format=schema.FORMAT,
        problems=tuple(problems),
        finished=finished,
        seconds=time.monotonic() - started,
        bytes=size,
        lost=lost,
    )


async def look_at_disk(patient: Patient) -> DiskFacts:
    """Room and right to write."""
    return await asyncio.to_thread(_disk, patient)


def _disk(patient: Patient) -> DiskFacts:
    home, database = patient.home.path, patient.home.database_path
    folders = [home] if database.parent == home else [home, database.parent]
    return DiskFacts(tuple(_place(folder) for folder in folders), _bytes(database))


def _place(folder: Path) -> PlaceFacts:
    try:
        return PlaceFacts(str(folder), shutil.disk_usage(folder).free, os.access(folder, os.W_OK))
    except OSError as error:
        return PlaceFacts(str(folder), error=str(error.strerror or error))


async def look_at_wal(patient: Patient) -> WalFacts:
    """Its length."""
    path = patient.home.database_path
    wal = path.with_name(path.name + "-wal")
    return WalFacts(str(wal), _bytes(wal), patient.running)


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
