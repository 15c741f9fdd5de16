"""Frames of a link are verified while they wait, and no more of them than wait."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future

from meshnode.engine.verify import Checked
from meshnode.model.delivery import Received
from meshnode.model.frames import Answered, Batch
from meshnode.node.verifyahead import VerifyAhead, verified


def frame(no: int, epoch: bytes = b"epoch..1") -> Received:
    """A batch of no events."""
    return Received(no, epoch + bytes([no]), Batch(epoch=epoch, no=no, clock={}, events=[]))


class Pool:
    """Notes what it is given, and finds nothing in it until a test says so."""

    def __init__(self) -> None:
        self.begun: list[tuple[Received, Future[Sequence[Checked]]]] = []

    def verify(self, frame: Received) -> Future[Sequence[Checked]]:
        future: Future[Sequence[Checked]] = Future()
        self.begun.append((frame, future))
        return future


async def test_a_frame_is_verified_once_however_often_it_is_looked_at() -> None:
    pool = Pool()
    ahead = VerifyAhead(pool.verify)
    ahead.begin([frame(1)])
    ahead.begin([frame(1), frame(2)])
    taken = ahead.take([frame(1), frame(2)])
    assert [each.no for each, _ in pool.begun] == [1, 2]
    assert list(taken.values()) == [future for _, future in pool.begun]
    for _, future in pool.begun:
        future.set_result([])
    assert await verified(taken) == {1: [], 2: []}


def test_what_nobody_looked_at_is_verified_when_it_is_taken() -> None:
    pool = Pool()
    answered = Received(2, b"two", Answered(epoch=b"epoch..1", no=2, id=bytes(16)))
    assert VerifyAhead(pool.verify).take([frame(1), answered]).keys() == {1}
    assert [each.no for each, _ in pool.begun] == [1]


def test_a_frame_of_an_epoch_that_was_replaced_is_given_up() -> None:
    """A peer that opens epoch after epoch makes nothing pile up."""
    pool = Pool()
    ahead = VerifyAhead(pool.verify)
    ahead.begin([frame(1), frame(2)])
    ahead.begin([frame(1, b"epoch..2")])
    assert [future.cancelled() for _, future in pool.begun] == [True, True, False]
    ahead.begin(())
    assert pool.begun[2][1].cancelled()
