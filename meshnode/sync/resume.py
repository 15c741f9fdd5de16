"""Whether a stream goes on where it was, from what the peer holds of it (profile §8, "Resuming"). Pure decisions."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from meshnode.limits import GENESIS_REWIND_MS
from meshnode.model.delivery import OutboundStream, Replaced, Staged
from meshnode.model.frames import Inbound


def same_stream(
    inbound: Inbound | None,
    epoch: bytes,
    settled_no: int,
    settled_digest: bytes,
    unsettled: Sequence[Staged],
    replaces: Collection[Replaced] = (),
) -> bool:
    """True where the peer's last frame is our last settled or a staged one; every other state starts from genesis.

    An epoch that was begun at the settled cursor and of which the peer may not have heard yet goes on where the peer
    stands at what was settled or staged before it. The answer settles nothing: a cursor never moves on what a peer
    claims.
    """
    if inbound is None:
        return False
    last = inbound.next - 1
    if inbound.epoch != epoch:
        return settled_no == 0 and Replaced(inbound.epoch, last, inbound.digest) in replaces
    if last == 0:
        return settled_no == 0 and inbound.digest == b""
    if last == settled_no:
        return inbound.digest == settled_digest
    return any(staged.no == last and staged.digest == inbound.digest for staged in unsettled)


def holds_more(inbound: Inbound | None, stream: OutboundStream | None, past_epochs: Mapping[bytes, int]) -> bool:
    """Whether the peer holds a part of our stream that we know nothing of: what we sent then is lost here.

    `past_epochs` has the last frame of each: a stream may have begun anew between the loss and the link that tells it.
    """
    if inbound is None:
        return False
    last_no = past_epochs.get(inbound.epoch)
    if stream is not None and inbound.epoch == stream.epoch:
        last_no = stream.staged[-1].no if stream.staged else stream.settled_no
    return last_no is None or inbound.next - 1 > last_no


def rewind_wait_ms(rewound_ms: int, now_ms: int) -> int:
    """How long a peer that keeps forgetting waits for the log from genesis: once a minute (profile §8).

    A wall clock that stepped back behind the last rewind costs one full wait, not the hour that it stepped.
    """
    if not rewound_ms:
        return 0
    return min(max(rewound_ms + GENESIS_REWIND_MS - now_ms, 0), GENESIS_REWIND_MS)
