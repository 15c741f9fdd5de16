"""Epochs of the change sequence: one for each time that the database was opened for writing.

A number of the sequence says nothing by itself: a database that was restored from a backup gives numbers out again. A
reader that keeps its position outside of the database keeps the epoch with it, and the two together are in this
database's past, or are not.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from meshnode.errors import CorruptStateError
from meshnode.store import meta
from meshnode.store.database import Tx

EPOCH_BYTES: Final = 8
EPOCHS_KEPT: Final = 256  # who was away for more of them begins anew: it bounds one value of `meshnode_meta`

_NAME: Final = "change_epochs"


class Epoch(NamedTuple):
    """From when on it is."""

    id: bytes
    seq: int  # the changes up to here are older


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Epoch]).decode


def begin(tx: Tx, epoch: bytes) -> None:
    """The database was opened: what changes from here on is of this epoch."""
    newest = meta.read_counter(tx, meta.NEXT_CHANGE) - 1
    meta.write(tx, _NAME, _encode([*_read(tx), Epoch(epoch, newest)][-EPOCHS_KEPT:]))


def current(tx: Tx) -> bytes:
    """The epoch that is; empty where nobody opened this database for writing since there are any."""
    known = _read(tx)
    return known[-1].id if known else b""


def has_passed(tx: Tx, epoch: bytes, seq: int) -> bool:
    """Whether this database was, in that epoch, where all changes up to `seq` and no others had been."""
    known = _read(tx)
    ends = [*(each.seq for each in known[1:]), meta.read_counter(tx, meta.NEXT_CHANGE) - 1]
    return any(each.id == epoch and seq <= end for each, end in zip(known, ends, strict=True))


def _read(tx: Tx) -> list[Epoch]:
    stored = meta.read(tx, _NAME)
    try:
        return [] if stored is None else _decode(stored)
    except msgspec.DecodeError as error:
        raise CorruptStateError(f"the epochs of the changes cannot be read from the database: {error}") from error
