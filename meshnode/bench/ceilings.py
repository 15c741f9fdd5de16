"""The ceilings: what libsodium, BLAKE3, SQLite and the disk do by themselves, on the bytes and rows that are used."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from statistics import median

import nacl.bindings
from blake3 import blake3

from meshnode.bench.durability import fsyncs, wal_sequence
from meshnode.bench.figures import Ceilings
from meshnode.bench.workload import COLUMNS, KEY, TABLE, key, signed, values
from meshnode.codec.cose import signature_input
from meshnode.limits import BATCH_EVENTS
from meshnode.model.event import split_event_untrusted
from meshnode.model.site import SiteKey
from meshnode.store.database import Database

_EVENTS = 2 * BATCH_EVENTS
_PAGE = 4096
_SINGLE_LOOKS = 64  # calls between two looks at the clock
_ORDER = (*KEY, *COLUMNS)

Call = Callable[[int], object]
"""Does the work once; the number tells which of the inputs to take."""


def ceilings(folder: Path, seconds: float, now_ms: int) -> Ceilings:
    """Each measured for so many seconds, files in `folder`."""
    seed = bytes(range(32))
    author, mesh_id = SiteKey.from_seed(seed), bytes(16)
    data = signed(author, mesh_id, 0, _EVENTS, now_ms)
    inputs = [signature_input(split_event_untrusted(each), mesh_id) for each in data]
    verify = verifying(data, mesh_id, author.public_key)
    _, secret = nacl.bindings.crypto_sign_seed_keypair(seed)
    cores = os.cpu_count() or 1

    def sign(number: int) -> object:
        return nacl.bindings.crypto_sign(inputs[number % _EVENTS], secret)

    def digest(number: int) -> object:
        return blake3(data[number % _EVENTS]).digest()

    upserts_per_s, upsert_fsyncs = _upserts(folder / "upserts.db", seconds)
    return Ceilings(
        verify_per_s=rate(verify, seconds),
        verify_all_cores_per_s=_on_all_cores(verify, seconds, cores),
        sign_per_s=rate(sign, seconds),
        sign_all_cores_per_s=_on_all_cores(sign, seconds, cores),
        blake3_per_s=rate(digest, seconds),
        upserts_per_s=upserts_per_s,
        upsert_fsyncs_per_1000=upsert_fsyncs,
        fsync_ms=_fsync_ms(folder / "fsync", seconds),
        event_bytes=sum(map(len, data)) / len(data),
    )


def verifying(data: Sequence[bytes], mesh_id: bytes, public_key: bytes) -> Call:
    """Verifies one of these events' signatures, over the very bytes that it covers; nothing else is done then."""
    envelopes = [split_event_untrusted(each) for each in data]
    signed_messages = [each.signature + signature_input(each, mesh_id) for each in envelopes]
    count = len(signed_messages)

    def verify(number: int) -> object:
        return nacl.bindings.crypto_sign_open(signed_messages[number % count], public_key)

    return verify


def rate(call: Call, seconds: float) -> float:
    """Calls a second of one thread."""
    done, begun = 0, time.perf_counter()
    while (taken := time.perf_counter() - begun) < seconds:
        for number in range(done, done + _SINGLE_LOOKS):
            call(number)
        done += _SINGLE_LOOKS
    return done / taken


def _on_all_cores(call: Call, seconds: float, cores: int) -> float:
    """Of a thread a core: libsodium works without the interpreter's lock."""
    with ThreadPoolExecutor(cores) as threads:
        return sum(threads.map(lambda _: rate(call, seconds), range(cores)))


def _upserts(path: Path, seconds: float) -> tuple[float, float]:
    """Plain upserts of the same rows a second, a transaction a batch as the node has them; and its fsyncs per 1,000."""
    with closing(Database(path, sqlite=sqlite3)) as database:  # the pragmas are the node's
        columns = ", ".join(f"{name} {kind}" for name, kind in {**KEY, **COLUMNS}.items())
        with database.transaction() as tx:
            tx.execute(f"CREATE TABLE {TABLE} ({columns}, PRIMARY KEY ({', '.join(KEY)}))")
        places = ", ".join("?" for _ in _ORDER)
        changes = ", ".join(f"{name} = excluded.{name}" for name in COLUMNS)
        upsert = f"INSERT INTO {TABLE} VALUES ({places}) ON CONFLICT DO UPDATE SET {changes}"  # noqa: S608  # our own
        done = commits = 0
        before, spent = wal_sequence(path), 0.0
        while spent < seconds:
            numbers = range(done, done + BATCH_EVENTS)
            rows = [(*key(number).values(), *values(number).values()) for number in numbers]
            begun = time.perf_counter()
            with database.transaction() as tx:
                tx.executemany(upsert, rows)
            spent += time.perf_counter() - begun
            done, commits = done + BATCH_EVENTS, commits + 1
        return done / spent, fsyncs(commits, before, wal_sequence(path)) / done * 1000


def _fsync_ms(path: Path, seconds: float) -> float:
    """A page at the end of a file, and fsync: the median, at least of three."""
    taken: list[float] = []
    end = time.perf_counter() + seconds
    with path.open("wb", buffering=0) as file:
        while len(taken) < 3 or time.perf_counter() < end:
            file.write(bytes(_PAGE))
            begun = time.perf_counter()
            os.fsync(file.fileno())
            taken.append((time.perf_counter() - begun) * 1000)
    return median(taken)
