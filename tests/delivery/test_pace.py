"""A window of a tenth of a second: what is in flight to a peer follows how fast it is, and costs it no idle time."""

from __future__ import annotations

from collections import deque

import pytest

from meshnode.limits import BATCH_EVENTS, COMMIT_EVENTS, WINDOW_FRAMES, WINDOW_MS
from meshnode.sync.pace import FIRST_EVENTS, LEAST_EVENTS, LEAST_FRAMES, SAMPLE_MS, Pace

JOB_MS = 2  # milliseconds that a transaction takes besides its events


class Peer:
    """A sender with an endless backlog and a receiver that takes so many events in a millisecond, in virtual time."""

    def __init__(self, rate: float, way_ms: int) -> None:
        self.pace, self.rate, self.way_ms = Pace(), rate, way_ms
        self.now_ms = 0
        self.settled = self.no = self.in_flight = 0
        self.worked_ms = 0.0
        self.transactions = 0
        self.waits: list[int] = []  # of each frame, from the sending to the ack
        self._arriving: deque[tuple[int, int, int]] = deque()  # when, number, load
        self._queue: deque[tuple[int, int]] = deque()
        self._done_ms = 0.0
        self._acks: deque[tuple[float, int, int]] = deque()
        self._sent_at: dict[int, int] = {}

    def run(self, ms: int) -> None:
        for _ in range(ms):
            self.now_ms += 1
            self._receive()
            while self._acks and self._acks[0][0] <= self.now_ms:
                _, no, load = self._acks.popleft()
                self.pace.settled(no, self.now_ms, more=True)
                self.waits.append(self.now_ms - self._sent_at.pop(no))
                self.settled += load
                self.in_flight -= 1
            while self.pace.room > 0 and self.in_flight < WINDOW_FRAMES:
                self.no += 1
                self.in_flight += 1
                self.pace.sent(self.no, self.pace.events, self.now_ms)
                self._sent_at[self.no] = self.now_ms
                self._arriving.append((self.now_ms + self.way_ms, self.no, self.pace.events))

    def _receive(self) -> None:
        while self._arriving and self._arriving[0][0] <= self.now_ms:
            _, no, load = self._arriving.popleft()
            self._queue.append((no, load))
        while self._queue and self._done_ms <= self.now_ms:
            job = [self._queue.popleft()]
            while self._queue and sum(load for _, load in job) + self._queue[0][1] <= COMMIT_EVENTS:
                job.append(self._queue.popleft())
            took = JOB_MS + sum(load for _, load in job) / self.rate
            self._done_ms = max(self._done_ms, self.now_ms - 1) + took
            self.worked_ms += took
            self.transactions += 1
            self._acks.extend((self._done_ms + self.way_ms, no, load) for no, load in job)


@pytest.mark.parametrize("way_ms", [1, 50])
@pytest.mark.parametrize("rate", [3.0, 5.5, 12.0, 30.0])
def test_a_peer_is_kept_busy_and_nothing_waits_there_for_long(rate: float, way_ms: int) -> None:
    peer = Peer(rate, way_ms)
    peer.run(3_000)
    peer.waits.clear()
    before = peer.worked_ms
    peer.run(5_000)
    full = BATCH_EVENTS * WINDOW_FRAMES / (2 * way_ms + 1)  # events that the plain window lets through in a millisecond
    assert peer.worked_ms - before >= 0.9 * 5_000 * min(1.0, full / rate)
    assert sorted(peer.waits)[len(peer.waits) * 95 // 100] <= 2 * way_ms + 2 * WINDOW_MS


@pytest.mark.parametrize("rate", [5.0, 6.0, 7.0, 8.0])
def test_whole_frames_fill_a_transaction_of_the_peer(rate: float) -> None:
    """A frame of a few events more than half of one would have a transaction, and an fsync, for itself."""
    peer = Peer(rate, 1)
    peer.run(3_000)
    settled, transactions = peer.settled, peer.transactions
    peer.run(5_000)
    assert (peer.settled - settled) / (peer.transactions - transactions) >= 0.9 * COMMIT_EVENTS


def test_a_slow_peer_gets_the_least_and_never_nothing() -> None:
    peer = Peer(0.1, 1)
    peer.run(60_000)
    assert peer.pace.events == LEAST_EVENTS
    assert 0 < peer.in_flight <= LEAST_FRAMES
    assert peer.settled > 0.08 * 60_000


def test_a_peer_that_stood_still_is_soon_as_fast_as_before() -> None:
    peer = Peer(12.0, 1)
    peer.run(3_000)
    peer.rate = 0.2
    peer.run(10_000)
    peer.rate = 12.0
    peer.run(3_000)
    before = peer.worked_ms
    peer.run(2_000)
    assert peer.worked_ms - before >= 0.9 * 2_000


def test_before_anything_is_known_the_window_is_one_of_frames() -> None:
    pace = Pace()
    assert (pace.events, pace.room) == (FIRST_EVENTS, WINDOW_FRAMES)


def test_single_events_say_nothing_of_how_many_a_peer_could_take() -> None:
    pace = Pace()
    for no in range(1, 100):
        pace.sent(no, 1, 10 * SAMPLE_MS * no)
        pace.settled(no, 10 * SAMPLE_MS * no + 2 * SAMPLE_MS, more=False)
    assert (pace.events, pace.room) == (FIRST_EVENTS, WINDOW_FRAMES)


def test_a_clock_that_steps_back_costs_a_sample_and_no_more() -> None:
    pace = Pace()
    for no, now_ms in enumerate((5_000, 100, 300, 200), 1):
        pace.sent(no, FIRST_EVENTS, now_ms)
    for no, now_ms in enumerate((90, 4_000, 3_000, 50), 1):
        pace.settled(no, now_ms, more=True)
    assert LEAST_EVENTS <= pace.events <= BATCH_EVENTS
    assert pace.room >= LEAST_FRAMES


def test_frames_that_are_sent_again_or_discarded_are_counted_once() -> None:
    pace = Pace()
    for no in (1, 2, 2, 1):
        pace.sent(no, 512, 0)
    pace.settled(1, 200, more=True)
    pace.settled(1, 210, more=True)
    pace.settled(7, 210, more=True)
    pace.forget(2)
    pace.forget(2)
    pace.sent(3, 1, 220)
    known = pace.room
    pace.forget_all()
    assert pace.room >= known
    assert pace.room <= WINDOW_FRAMES
