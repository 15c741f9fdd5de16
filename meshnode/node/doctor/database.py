"""The database file, the disk under it, and its WAL."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshnode.limits import MIB
from meshnode.model.wording import counted_text
from meshnode.node.doctor.findings import bytes_text, failed, or_passed, passed, warned
from meshnode.node.doctor.home import SEE_HOME
from meshnode.node.doctorviews import FindingView
from meshnode.store.database import WAL_KEPT_BYTES

DISK_FULL_BYTES = 64 * MIB  # free bytes below which the next writes may fail
DISK_LOW_BYTES = 512 * MIB  # below which somebody should make room
WAL_LONG_BYTES = 4 * WAL_KEPT_BYTES  # of a WAL that somebody keeps from being emptied


@dataclass(frozen=True, slots=True)
class DatabaseFacts:
    """What the file says when it is read through."""

    path: str
    there: bool = True
    encrypted: bool = False
    locked: bool = False  # under a key that is under a passphrase that nobody said
    error: str = ""  # why it does not open, or cannot be read
    closed: bool = False  # this user may not read it
    full: bool = False  # the disk under it is what is wrong
    denied: bool = False  # who may write there is what is wrong
    format: int = 0
    known_format: int = 0
    problems: tuple[str, ...] = ()  # of `PRAGMA quick_check`
    finished: bool = True  # whether that came to its end in its time
    seconds: float = 0.0
    bytes: int = 0
    lost: int = 0  # positions of the log that have no event, and that nothing was taken out of on purpose


def judge_database(facts: DatabaseFacts) -> list[FindingView]:
    """Whether it opens, is whole, and is of a format that this program knows."""
    check = "database"
    if not facts.there:
        return [failed(check, f"the database {facts.path} is missing", _FROM_BACKUP)]
    if facts.locked:
        todo = "run this at a terminal, or name a descriptor that the passphrase is read from: `--passphrase-fd N`"
        return [warned(check, f"{facts.path} is encrypted, its key under a passphrase: it was not opened", todo)]
    if facts.error:
        return [failed(check, facts.error, _todo(facts))]
    return or_passed(check, _contents(facts), f"{_described(facts)}: whole, as far as `PRAGMA quick_check` tells")


def _todo(facts: DatabaseFacts) -> str:
    if facts.full:
        return "make room: the check `disk` says how much is free; the database is not what is wrong"
    if facts.denied and not facts.closed:
        return "the checks `home` and `disk` say who may write there; the database is not what is wrong"
    return SEE_HOME if facts.closed else _FROM_BACKUP


def judge_damage(error: str) -> FindingView:
    """What another check met in the file."""
    return failed("database", error, _FROM_BACKUP)


_FROM_BACKUP = "stop the node, keep a copy of the file, and restore database and keys from one backup, or join again"


def _contents(facts: DatabaseFacts) -> Iterator[FindingView]:
    check = "database"
    if facts.problems:
        yield failed(check, f"{facts.path} is damaged: {'; '.join(facts.problems)}", _FROM_BACKUP)
    if facts.format > facts.known_format:
        found = f"its format is {facts.format}, and this meshnode knows {facts.known_format}"
        yield failed(check, found, "upgrade meshnode on this device")
    elif facts.format == 0:
        yield failed(check, f"{facts.path} holds no tables of a node", _FROM_BACKUP)
    elif facts.format < facts.known_format:
        found = f"its format is {facts.format}, older than {facts.known_format}"
        yield warned(check, found, "`meshnode up`, or any verb that writes, brings it up to date")
    if facts.lost and not facts.problems:
        lost = counted_text(facts.lost, "event")
        found = f"{lost} of the log gone by a hand or damage: streams that carry them stand still"
        yield failed(
            check, found, "`meshnode check --repair` goes on without them, and asks the other members for them"
        )
    if not facts.finished and not facts.problems:
        todo = f"with the node stopped, `sqlite3 {facts.path} 'PRAGMA quick_check'` looks at the rest"
        if facts.encrypted:
            todo = "nothing, unless something else points at damage: `meshnode check` reads all of it"
        found = f"{_described(facts)}: whole as far as it was read in {facts.seconds:.0f} s, which is not to its end"
        yield warned(check, found, todo)


def _described(facts: DatabaseFacts) -> str:
    kept = "encrypted" if facts.encrypted else "not encrypted"
    return f"{facts.path}, {bytes_text(facts.bytes)}, format {facts.format}, {kept}"


@dataclass(frozen=True, slots=True)
class PlaceFacts:
    """One file system that the node writes to."""

    path: str
    free: int = 0
    writable: bool = True
    error: str = ""


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """Where the home is, and where the database is if that is elsewhere."""

    places: tuple[PlaceFacts, ...]
    database_bytes: int = 0


def judge_disk(facts: DiskFacts) -> list[FindingView]:
    """Whether there is room to go on."""
    room = "; ".join(f"{bytes_text(place.free)} free at {place.path}" for place in facts.places)
    return or_passed("disk", (finding for place in facts.places for finding in _room(place, facts)), room)


def _room(place: PlaceFacts, facts: DiskFacts) -> Iterator[FindingView]:
    if place.error:
        yield failed("disk", f"the file system of {place.path} does not answer: {place.error}", "is it mounted?")
        return
    if not place.writable:
        yield failed("disk", f"{place.path} cannot be written", "is the file system read-only? is the folder yours?")
    left = f"{bytes_text(place.free)} are free at {place.path}"
    if place.free <= DISK_FULL_BYTES:
        todo = "make room: nothing is lost when the disk is full, but nothing is taken or written either"
        yield failed("disk", left, todo)
    elif place.free <= max(DISK_LOW_BYTES, facts.database_bytes):
        todo = "make room: forgetting a row and moving the device need as much again as the database has"
        yield warned("disk", left, todo)


@dataclass(frozen=True, slots=True)
class WalFacts:
    """The write-ahead log beside the database."""

    path: str
    bytes: int
    running: bool = False


def judge_wal(facts: WalFacts) -> list[FindingView]:
    """Whether somebody keeps it from being emptied."""
    if facts.bytes <= WAL_LONG_BYTES:
        return passed("wal", f"{bytes_text(facts.bytes)}")
    todo = "close programs that keep the database open for reading, or have a transaction open in it"
    if not facts.running:
        todo = "start the node: it takes the WAL into the database, unless another program reads on"
    return [warned("wal", f"{facts.path} has grown to {bytes_text(facts.bytes)}", todo)]
