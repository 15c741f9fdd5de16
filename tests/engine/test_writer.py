"""The writer's turns: nobody who fills a queue delays anybody else by more than a couple of jobs (profile §8)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.store.writer import OWN, InlineExecutor, Turns, Writer

PEERS = [bytes([number]) * 16 for number in range(1, 6)]
LANES = st.sampled_from([OWN, *PEERS])


class Stepped(Executor):
    """Runs what it was given one at a time, when a test says so; `closed` is an executor after its shutdown."""

    def __init__(self) -> None:
        self.waiting: deque[Callable[[], Any]] = deque()
        self.closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if self.closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self.waiting.append(lambda: fn(*args, **kwargs))
        return Future()

    def step(self) -> None:
        self.waiting.popleft()()

    def run(self) -> None:
        while self.waiting:
            self.step()


@pytest.fixture
def stepped() -> Stepped:
    return Stepped()


def queued(writer: Writer, done: list[str], name: str, count: int, lane: bytes | None) -> None:
    """So many jobs that note their name when they run."""
    for number in range(count):
        writer.submit(lambda name=name, number=number: done.append(f"{name}{number}"), lane)  # type: ignore[misc]


def test_a_peer_with_a_huge_backlog_delays_another_by_one_job(stepped: Stepped) -> None:
    writer, done = Writer(stepped), list[str]()
    queued(writer, done, "huge", 1000, PEERS[0])
    stepped.step()
    queued(writer, done, "small", 3, PEERS[1])
    for _ in range(7):
        stepped.step()
    assert done == ["huge0", "huge1", "small0", "huge2", "small1", "huge3", "small2", "huge4"]


def test_a_local_write_comes_before_what_peers_have_waiting(stepped: Stepped) -> None:
    writer, done = Writer(stepped), list[str]()
    for number, peer in enumerate(PEERS):
        queued(writer, done, f"peer{number}-", 1000, peer)
    stepped.step()
    queued(writer, done, "own", 1, OWN)
    stepped.step()
    assert done == ["peer0-0", "own0"]


def test_a_flood_of_local_writes_leaves_every_second_turn_to_the_peers(stepped: Stepped) -> None:
    writer, done = Writer(stepped), list[str]()
    queued(writer, done, "own", 1000, OWN)
    queued(writer, done, "a", 2, PEERS[0])
    queued(writer, done, "b", 1, PEERS[1])
    for _ in range(8):
        stepped.step()
    assert done == ["own0", "a0", "own1", "b0", "own2", "a1", "own3", "own4"]


@given(st.lists(st.one_of(LANES, st.just("next")), max_size=80))
def test_turns_keep_the_order_of_each_lane_and_bound_every_wait(actions: list[Any]) -> None:
    turns: Turns[tuple[Any, int]] = Turns()
    added: dict[Any, int] = {}
    waited: dict[Any, list[Any]] = {}  # for each lane that waits: whose jobs ran since its last one
    taken: dict[Any, int] = {}
    for action in actions + ["next"] * 80:
        if action != "next":
            turns.add((action, added.get(action, 0)), action)
            added[action] = added.get(action, 0) + 1
            waited.setdefault(action, [])
        elif len(turns):
            lane, number = turns.next()
            assert number == taken.get(lane, 0)
            taken[lane] = number + 1
            passed = waited.pop(lane)
            others = [each for each in passed if each is not OWN]
            assert len(others) <= (1 if lane is OWN else len(PEERS) - 1)
            assert all(others.count(each) <= 1 for each in PEERS)
            assert passed.count(OWN) <= len(PEERS)
            for each in waited.values():
                each.append(lane)
            if taken[lane] < added[lane]:
                waited[lane] = []
    assert taken == added
    assert len(turns) == 0


def test_a_job_gives_its_result_or_its_error_to_whoever_waits() -> None:
    writer = Writer(InlineExecutor())
    assert writer.submit(lambda: 7).result(0) == 7
    with pytest.raises(KeyError):
        writer.submit(lambda: {}["x"], PEERS[0]).result(0)


def test_a_job_that_was_cancelled_before_its_turn_does_not_run(stepped: Stepped) -> None:
    writer, done = Writer(stepped), list[str]()
    gone = writer.submit(lambda: done.append("gone"))
    queued(writer, done, "kept", 1, OWN)
    assert gone.cancel()
    stepped.run()
    assert done == ["kept0"]


@pytest.mark.parametrize("lane", [OWN, PEERS[0]])
def test_what_comes_after_the_shutdown_is_refused_and_leaves_nothing_behind(
    stepped: Stepped, lane: bytes | None
) -> None:
    writer, done = Writer(stepped), list[str]()
    queued(writer, done, "before", 2, PEERS[0])
    stepped.closed = True
    with pytest.raises(RuntimeError):
        writer.submit(lambda: done.append("after"), lane)
    stepped.run()
    assert done == ["before0", "before1"]


def test_a_shutdown_runs_what_waits_in_every_lane() -> None:
    executor = ThreadPoolExecutor(max_workers=1)
    writer, done, go = Writer(executor), list[str](), threading.Event()
    writer.submit(lambda: go.wait(10))
    queued(writer, done, "own", 2, OWN)
    queued(writer, done, "peer", 2, PEERS[0])
    go.set()
    writer.shutdown()
    assert sorted(done) == ["own0", "own1", "peer0", "peer1"]
