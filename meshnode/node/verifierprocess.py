"""A process that verifies events for a node: it holds no key, opens no file, and ends when its input does.

It says of each event whether it passes the door's first step (profile §6), and nothing else: what does not pass is
looked at again by the node, which gives the reason. Signatures are verified without the GIL, but every one of them
gives it up and takes it back, and the writer does the same with every statement: in one process they spend their time
waking each other.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import BinaryIO, Final

import msgspec

from meshnode.errors import EnvelopeError
from meshnode.model.event import open_event_untrusted

HEAD_BYTES: Final = 4  # the length of what is asked, in network order
REFUSED: Final = 0
PASSED: Final = 1


class Asked(msgspec.Struct, frozen=True, array_like=True):
    """One batch; the answer is one byte for each event of it, PASSED or REFUSED."""

    mesh_id: bytes
    keys: list[tuple[bytes, bytes]]  # site and public key of whoever may have signed
    events: list[bytes]


def encode(asked: Asked) -> bytes:
    """What is written to the process."""
    body = msgspec.msgpack.encode(asked)
    return len(body).to_bytes(HEAD_BYTES, "big") + body


def answer(asked: Asked) -> bytes:
    """Which events pass."""
    key_of = dict(asked.keys).get
    return bytes(_passes_untrusted(data, asked.mesh_id, key_of) for data in asked.events)


def _passes_untrusted(data: bytes, mesh_id: bytes, key_of: Callable[[bytes], bytes | None]) -> int:
    try:
        open_event_untrusted(data, mesh_id=mesh_id, key_of=key_of)
    except EnvelopeError:
        return REFUSED
    return PASSED


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer batch after batch until there are no more."""
    decoder = msgspec.msgpack.Decoder(Asked)
    while len(head := requests.read(HEAD_BYTES)) == HEAD_BYTES:
        answers.write(answer(decoder.decode(requests.read(int.from_bytes(head, "big")))))
        answers.flush()


def main() -> None:
    """The process."""
    serve(sys.stdin.buffer, sys.stdout.buffer)
