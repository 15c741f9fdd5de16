"""Rows of the bundles that this node wrote, and where each peer stands by what it said of them (`model.bundle`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from meshnode.codec.digest import DIGEST_BYTES
from meshnode.errors import CorruptStateError
from meshnode.limits import BUNDLES_KEPT
from meshnode.model.bundle import BUNDLE_PATH
from meshnode.model.frames import EPOCH_BYTES, REQUEST_ID_BYTES
from meshnode.store import delivery, meta, reoffers
from meshnode.store.database import Tx
from meshnode.store.delivery import Outbound, Stream

ANY: Final = 0  # the site number of a bundle for any member
_COLUMNS: Final = "site_no, epoch, last_no, digest, start, cursor, record_cursor, answers"


@dataclass(frozen=True, slots=True)
class Written:
    """One bundle: with all before it, it carries everything up to its cursors."""

    site_no: int
    epoch: bytes
    last_no: int
    digest: bytes  # of its last frame, empty where it has none
    start: int
    cursor: int
    record_cursor: int
    answers: tuple[bytes, ...] = ()


def add(tx: Tx, written: Written) -> None:
    """Keep one more, and only the last ones for the same peer."""
    tx.execute(
        f"INSERT INTO meshnode_bundles ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608  # our own names
        (
            written.site_no,
            written.epoch,
            written.last_no,
            written.digest,
            written.start,
            written.cursor,
            written.record_cursor,
            b"".join(written.answers),
        ),
    )
    tx.execute(
        "DELETE FROM meshnode_bundles WHERE no IN (SELECT no FROM meshnode_bundles WHERE site_no = ?"
        " ORDER BY no DESC LIMIT -1 OFFSET ?)",
        (written.site_no, BUNDLES_KEPT),
    )
    may_be_out(tx, written.cursor)


def may_be_out(tx: Tx, position: int) -> None:
    """Up to `position` anybody may have the events: a bundle brought them, or a copy that this one was restored over.

    A value that cannot be read stays: whoever reads it says so.
    """
    known = meta.read(tx, meta.BUNDLED_TO)
    if known is None or (type(known) is int and known < position):
        meta.write(tx, meta.BUNDLED_TO, position)


def bundled_to(tx: Tx) -> int:
    """The log position up to which events may have left where no stream tells of it, whoever has them; 0: none."""
    known = meta.read(tx, meta.BUNDLED_TO)
    if known is None:
        return 0
    if type(known) is not int:
        raise CorruptStateError("how far bundles reached cannot be read from the database")
    return known


def for_peer(tx: Tx, site_no: int) -> list[Written]:
    """Those that a peer may hold, the oldest first; CorruptStateError where one cannot be read."""
    rows = tx.execute(
        f"SELECT {_COLUMNS} FROM meshnode_bundles WHERE site_no IN (?, ?) ORDER BY no",  # noqa: S608  # our own names
        (site_no, ANY),
    )
    return [_read(row) for row in rows.fetchall()]


def stand(tx: Tx, stream: Stream, written: Written) -> None:
    """The peer holds this one to its end: what it answered is answered, and the next one goes on from there."""
    delivery.write_outbound(
        tx,
        stream,
        Outbound(
            written.epoch,
            cursor=written.cursor,
            record_cursor=written.record_cursor,
            settled_no=written.last_no,
            settled_digest=written.digest,
        ),
    )
    for request_id in written.answers:
        reoffers.remove_answer(tx, stream, request_id)


def begin_anew(tx: Tx, stream: Stream, now_ms: int) -> bool:
    """The next bundle for this peer begins at the start of the log; whether any had not."""
    before = delivery.read_outbound(tx, stream)
    if before is None or not (before.cursor or before.record_cursor):
        return False
    delivery.write_outbound(tx, stream, Outbound(before.epoch, rewound_ms=now_ms))
    return True


def begin_all_anew(tx: Tx, now_ms: int) -> bool:
    """Every next bundle begins at the start, whatever is said of those there are: they lack something."""
    voided = "UPDATE meshnode_bundles SET start = 0, cursor = 0, record_cursor = 0 WHERE cursor > 0"
    written = tx.execute(voided).rowcount
    streams = [each for each in delivery.streams(tx) if each.path == BUNDLE_PATH]
    moved = [each for each in streams if begin_anew(tx, each, now_ms)]
    return bool(moved) or written > 0


def _read(row: tuple[Any, ...]) -> Written:
    site_no, epoch, last_no, digest, start, cursor, record_cursor, answers = row
    if (
        type(epoch) is not bytes
        or len(epoch) != EPOCH_BYTES
        or type(digest) is not bytes
        or len(digest) != (DIGEST_BYTES if last_no else 0)
        or type(answers) is not bytes
        or len(answers) % REQUEST_ID_BYTES
        or any(type(number) is not int or number < 0 for number in (last_no, start, cursor, record_cursor))
    ):
        raise CorruptStateError(
            "what is kept of a bundle that this node wrote cannot be read: restore the database from a backup"
        )
    ids = [answers[at : at + REQUEST_ID_BYTES] for at in range(0, len(answers), REQUEST_ID_BYTES)]
    return Written(site_no, epoch, last_no, digest, start, cursor, record_cursor, tuple(ids))
