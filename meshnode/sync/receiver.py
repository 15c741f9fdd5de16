"""The receiving half of a link: which frame is the next one, and what the others are answered (profile §8, "Receiver").

Pure. What is accepted goes to the store one `Commit` at a time; an ack leaves only after `committed` told that its
transaction is on disk.
"""

from __future__ import annotations

from collections import deque

from meshnode.codec.framing import frame
from meshnode.errors import CloseCode, ProtocolError
from meshnode.limits import COMMIT_EVENTS, STORED_ACK_WINDOWS, WINDOW_FRAMES
from meshnode.model.delivery import Adopt, Committed, Content, InboundStream, Received
from meshnode.model.frames import Inbound, Live, Nak, Open, encode_frame
from meshnode.sync.effects import Close, Commit, Effect, SendControl
from meshnode.sync.watermarks import HeardWatermarks


class Receiver:
    """Mirror of one inbound stream, running ahead of the disk by what is queued to be committed."""

    def __init__(self, inbound: InboundStream | None, link: int = 0) -> None:
        self._link = link
        self._epoch = inbound.epoch if inbound else None
        self._next = inbound.next if inbound else 0
        self._last_digest = inbound.digest if inbound else None
        self._acks = {ack.no: ack for ack in inbound.acks} if inbound else {}
        self._unanswered: dict[int, bytes] = {}  # accepted and not committed: number to digest
        self._sizes: dict[int, int] = {}  # of those, in bytes
        self._adopt: Adopt | None = None
        self._queue: deque[Received] = deque()
        self._gap: tuple[bytes, int] | None = None  # what the last nak said; there is one per gap
        self._busy = False

    @property
    def holds(self) -> Inbound | None:
        """What our hello says that we hold (profile §8, `inbound`); meant for before anything was received."""
        if self._epoch is None or self._last_digest is None:
            return None
        return Inbound(self._epoch, self._next, self._last_digest)

    @property
    def next_no(self) -> int:
        """The number of the next frame, 0 while no stream is open."""
        return self._next

    @property
    def uncommitted_bytes(self) -> int:
        """What is held of frames that are not on disk."""
        return sum(self._sizes.values())

    @property
    def queued(self) -> tuple[Received, ...]:
        """What is accepted and waits for its turn to be committed."""
        return tuple(self._queue)

    def release(self) -> None:
        """The link is over: nothing further is committed."""
        self._queue.clear()
        self._sizes.clear()

    def open_untrusted(self, opened: Open) -> None:
        """Another epoch becomes the current one; for the current epoch nothing changes."""
        if opened.next < 1:
            raise ProtocolError("an epoch is opened at frame 1 or later")
        self._gap = None
        if opened.epoch == self._epoch:
            return
        # What is queued of the old epoch was not acknowledged: the sender stages it again in the new one.
        self._queue.clear()
        self._unanswered.clear()
        self._sizes.clear()
        self._acks.clear()
        self._epoch, self._next = opened.epoch, opened.next
        self._adopt = Adopt(opened.epoch, opened.next, self._link)

    def frame_untrusted(self, content: Content, digest: bytes, size: int) -> list[Effect]:
        """Accept the next frame, answer a repeat with its stored ack, and anything else with one nak per gap."""
        if content.epoch != self._epoch:
            return self._nak(content.epoch, 0, "this epoch is not current")
        if content.no < self._next:
            return self._repeat(content.no, digest)
        if content.no > self._next:
            return self._nak(content.epoch, self._next, "frames are missing")
        if len(self._unanswered) >= WINDOW_FRAMES:
            raise ProtocolError(f"more than {WINDOW_FRAMES} frames without an ack", CloseCode.LIMIT)
        self._gap = None
        self._next += 1
        self._unanswered[content.no], self._sizes[content.no] = digest, size
        self._queue.append(Received(content.no, digest, content))
        return []

    def pump(self, heard: HeardWatermarks) -> list[Effect]:
        """As much of what is queued as one transaction takes, and the watermarks that count with it."""
        if self._busy or self._epoch is None:
            return []
        frames = self._take()
        claims = heard.due(self._epoch, self._next - len(self._queue))
        if not (frames or self._adopt or claims):
            return []
        self._busy = True
        job = Commit(self._adopt, self._epoch, frames, claims)
        self._adopt = None
        return [job]

    def committed(self, result: Committed | None) -> list[Effect]:
        """Send the acks of what is on disk; None means that the stored stream is another link's."""
        self._busy = False
        if result is None:
            return [Close(CloseCode.DUPLICATE, "another link carries this stream")]
        if result.epoch == self._epoch:
            for ack in result.acks:
                self._unanswered.pop(ack.no, None)
                self._sizes.pop(ack.no, None)
                self._acks[ack.no] = ack
            self._forget_old_acks()
        return [SendControl(frame(ack.cbor)) for ack in result.acks]

    def _take(self) -> tuple[Received, ...]:
        """The next frames: one at least, then no more than others can wait for; a live one waits for none after it."""
        frames: list[Received] = []
        load = 0
        while self._queue and (not frames or load + self._queue[0].load <= COMMIT_EVENTS):
            frames.append(self._queue.popleft())
            load += frames[-1].load
            if isinstance(frames[-1].content, Live):
                break
        return tuple(frames)

    def _repeat(self, no: int, digest: bytes) -> list[Effect]:
        if no in self._unanswered:
            if self._unanswered[no] == digest:
                return []  # its ack follows when it is on disk
        elif no in self._acks and self._acks[no].digest == digest:
            return [SendControl(frame(self._acks[no].cbor))]
        assert self._epoch is not None
        return self._nak(self._epoch, self._next, "a repeat with another digest")

    def _nak(self, epoch: bytes, expected: int, reason: str) -> list[Effect]:
        if self._gap == (epoch, expected):
            return []
        self._gap = (epoch, expected)
        return [SendControl(frame(encode_frame(Nak(epoch=epoch, expected=expected, reason=reason))))]

    def _forget_old_acks(self) -> None:
        for no in sorted(self._acks)[: -STORED_ACK_WINDOWS * WINDOW_FRAMES]:
            del self._acks[no]
