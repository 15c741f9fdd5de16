"""The door's first step (profile §6, SSP/1 §4): envelope, signer, signature, then the payload's shape. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import msgspec

from meshnode.engine.keyring import Keyring
from meshnode.errors import EnvelopeError
from meshnode.model.event import Event, open_event_untrusted, reopen_event


class Verified(msgspec.Struct, frozen=True, gc=False):
    """An event whose signature holds under a key of the keyring of `generation`."""

    event: Event
    generation: int


class Refused(msgspec.Struct, frozen=True, gc=False):
    """Bytes that are dropped before anything of their payload counts; `reason` is the verdict's."""

    data: bytes
    reason: str
    detail: str
    generation: int


Checked: TypeAlias = Verified | Refused


def verify_untrusted(events: Sequence[bytes], *, mesh_id: bytes, keyring: Keyring, generation: int) -> list[Checked]:
    """Check every event by itself; never raises for what is in one. Any thread may run it."""
    key_of = keyring.key_of
    return [_verify_one_untrusted(data, mesh_id, key_of, generation) for data in events]


def accept_passed(
    events: Sequence[bytes], passed: Sequence[int], *, mesh_id: bytes, keyring: Keyring, generation: int
) -> list[Checked]:
    """What `verify_untrusted` finds, where another process found already which events pass every check of it.

    Whatever did not pass there is checked here, which gives the reason: nothing is refused on another's word.
    """
    key_of = keyring.key_of
    return [
        Verified(reopen_event(data), generation) if good else _verify_one_untrusted(data, mesh_id, key_of, generation)
        for data, good in zip(events, passed, strict=True)
    ]


def _verify_one_untrusted(
    data: bytes, mesh_id: bytes, key_of: Callable[[bytes], bytes | None], generation: int
) -> Checked:
    try:
        return Verified(open_event_untrusted(data, mesh_id=mesh_id, key_of=key_of), generation)
    except EnvelopeError as error:
        return Refused(data, error.reason, str(error), generation)
