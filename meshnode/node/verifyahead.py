"""What one link received is verified as it comes (`node.verifiers`), while frames before it are being committed.

Between the two steps of the door (profile §6) lies only the keyring's generation, which the second one looks at again:
so nothing that is begun early here can make an event count that would not have counted later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future

from meshnode.engine.verify import Checked
from meshnode.model.delivery import Received
from meshnode.model.frames import Batch, Live


class VerifyAhead:
    """The frames of one link that are being verified; it holds no more of them than the session holds."""

    def __init__(self, verify: Callable[[Received], Future[Sequence[Checked]]]) -> None:
        self._verify = verify
        self._begun: dict[bytes, Future[Sequence[Checked]]] = {}  # by digest: an epoch later its number is another's

    def begin(self, queued: Iterable[Received]) -> None:
        """Verify what waits to be committed; what does not wait any more is given up."""
        before, self._begun = self._begun, {}
        for frame in queued:
            if isinstance(frame.content, Batch | Live):
                self._begun[frame.digest] = self._of(frame, before)
        for gone in before.values():
            gone.cancel()

    def take(self, frames: Iterable[Received]) -> dict[int, Future[Sequence[Checked]]]:
        """The batches among the frames of one commit, by number; those that nobody began are begun now."""
        return {frame.no: self._of(frame, self._begun) for frame in frames if isinstance(frame.content, Batch | Live)}

    def _of(self, frame: Received, begun: dict[bytes, Future[Sequence[Checked]]]) -> Future[Sequence[Checked]]:
        """What was begun of a frame, or begins now."""
        return begun.pop(frame.digest) if frame.digest in begun else self._verify(frame)


async def verified(begun: dict[int, Future[Sequence[Checked]]]) -> dict[int, Sequence[Checked]]:
    """What was found, once all of it is."""
    return {no: await asyncio.wrap_future(future) for no, future in begun.items()}
