"""One bundle on its way in: its frames in the one order that they may have, what became of them (`model.bundle`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from meshnode.engine.bundle_in import Begun, Outcome, verify_frame
from meshnode.engine.context import Context
from meshnode.engine.verify import Checked
from meshnode.errors import BundleError, ProtocolError
from meshnode.limits import FRONTIER_SITES
from meshnode.model.bundle import Asks, Bundle
from meshnode.model.bundle_untrusted import Part, decode_part_untrusted
from meshnode.model.delivery import Received
from meshnode.model.frames import Answered, Batch, Introduce, Open, Records, Watermarks, digest
from meshnode.model.site import short_text, site_text
from meshnode.node.bundlefile import BundleReader, Sealed
from meshnode.node.bundleviews import IntakeView

Read: TypeAlias = tuple[Part, Received | None, Sequence[Checked]]
"""A frame, as the store takes it where it is a numbered one, and its events verified."""


@dataclass(slots=True)
class Intake:
    """One bundle on its way in; what reads the file runs on another thread, one call at a time."""

    context: Context
    reader: BundleReader
    sealed: Sealed
    total: Outcome = field(default_factory=Outcome)
    begun: Begun = field(default_factory=lambda: Begun(1, False, False))
    epoch: bytes = b""
    number: int = 0  # of the last numbered frame that was read
    frames: int = 0
    repeated: int = 0
    _ended: bool = False  # watermarks came: no frame may follow them
    _parts: Iterator[bytes] = field(init=False)

    def __post_init__(self) -> None:
        self._parts = self.reader.parts()

    @property
    def head(self) -> Bundle:
        """Who wrote it, and what it says first."""
        return self.sealed.head

    def preamble(self) -> tuple[Sequence[bytes], list[Asks], Open]:
        """Everything before the first numbered frame."""
        shown: tuple[bytes, ...] = ()
        asks: list[Asks] = []
        for data in self._parts:
            part = self._decoded(data)
            if isinstance(part, Introduce):
                shown = part.records
            elif isinstance(part, Asks) and len(asks) < FRONTIER_SITES:
                asks.append(part)
            elif isinstance(part, Open):
                return shown, asks, part
            else:
                break
        raise self.fault("its frames are not in the order of a bundle")

    def read(self) -> Read | None:
        """The next frame, verified; None at the end, and no `Received` for watermarks."""
        data = next(self._parts, None)
        if data is None:
            return None
        self.frames += 1
        part = self._decoded(data)
        if isinstance(part, Watermarks) and (part.after.epoch, part.after.no) == (self.epoch, self.number):
            self._ended = True
            return part, None, ()
        if self._ended or not isinstance(part, Batch | Records | Answered):
            raise self.fault("its frames are not in the order of a bundle")
        if (part.epoch, part.no) != (self.epoch, self.number + 1):
            raise self.fault("its frames are not numbered one after the other")
        self.number = part.no
        frame = Received(part.no, digest(data), part)
        known = frame.no < self.begun.next
        return part, frame, () if known else verify_frame(self.context, frame)

    def repeat(self, frame: Received) -> None:
        """A frame that was committed before: by an earlier import of this bundle."""
        self.repeated += 1
        if isinstance(frame.content, Batch):
            self.total.verdicts["duplicate"] += len(frame.content.events)

    def _decoded(self, data: bytes) -> Part:
        try:
            return decode_part_untrusted(data)
        except ProtocolError as error:
            raise self.fault(str(error)) from error

    def fault(self, what: str) -> BundleError:
        """One line about the file, which its writer sealed as it is."""
        used = "nothing of it was" if not self.frames else f"the {self.frames - 1} frames before that were"
        return BundleError(f"the bundle {self.reader.path.name} cannot be used to its end, and {used}: {what}")

    def view(self, *, done: bool = False) -> IntakeView:
        """How far it is."""
        total, head = self.total, self.head
        return IntakeView(
            file=str(self.reader.path),
            done=done,
            site=site_text(head.site),
            short=short_text(head.site),
            name=head.name,
            events=total.verdicts.total(),
            verdicts=dict(sorted(total.verdicts.items())),
            records=total.records,
            records_dropped=total.records_dropped,
            records_rejected=total.records_rejected,
            frames=self.number,
            repeated=self.repeated,
            settled=total.settled,
            gap=self.begun.gap,
            bytes=self.reader.size if done else self.reader.tell(),
            size=self.reader.size,
        )
