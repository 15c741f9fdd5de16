"""`verify` between whole nodes over QUIC on loopback: what was planted is named and mended, and what ends it (§15)."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from support.nodes import TABLE, free_port, linked, loopback, note, pair_of_homes, until

from meshnode import Node
from meshnode.errors import CloseCode, TransportError, UsageError
from meshnode.model import comparison as words
from meshnode.model.comparison import Range
from meshnode.model.frames import Compare, CompareAsk, CompareEnd, CompareFrame, CompareTell
from meshnode.model.hlc import ZERO, Hlc
from meshnode.model.wording import key_text
from meshnode.node import compare_asking, compare_serving, verifying
from meshnode.node.drive import PeerDriver
from meshnode.node.verifyviews import VerifyProgress

ROWS = 300


@asynccontextmanager
async def two(folder: Path) -> AsyncIterator[tuple[Node, Node]]:
    """Linked nodes that hold the same rows."""
    ports = free_port(), free_port()
    homes = await pair_of_homes(folder, ports)
    with closing(sqlite3.connect(homes[0] / "meshnode.db", isolation_level=None)) as connection:
        connection.execute("DELETE FROM meshnode_addresses")  # one side dials: no link replaces another one
    a = Node(homes[0], config=loopback(port=ports[0], name="a"))
    b = Node(homes[1], config=loopback(ports[0], port=ports[1], name="b"))
    async with a, b:
        await linked(a, b)
        await a.import_rows(TABLE, [note(number) for number in range(ROWS)])
        for node in (a, b):
            assert (await node.wait(timeout_s=60)).complete
        yield a, b


def by_hand(node: Node, sql: str, *values: object) -> None:
    with closing(sqlite3.connect(node.home.database_path, isolation_level=None, timeout=10)) as connection:
        connection.execute(sql, values)


def driver(node: Node, peer: Node) -> PeerDriver:
    """This node's end of the link."""
    assert node._network is not None
    found = node._network.driver_to(peer.storage.engine.context.site)
    assert found is not None
    return found


async def test_what_was_planted_is_named_and_mended_both_ways(tmp_path: Path) -> None:
    async with two(tmp_path) as (a, b):
        told: list[VerifyProgress] = []
        equal = await a.verify("b", tell=told.append)
        assert (equal.equal, equal.fault, equal.counts, equal.exchanges) == (True, False, {}, 1)
        assert [(each.table, each.events_here, each.rows_there) for each in equal.tables] == [(TABLE, ROWS, ROWS)]
        assert {each.state for each in told} == {"waiting", "reading", "comparing"}
        assert told[-1].items == 2 * ROWS

        # Of what others wrote nothing stops: b carries no events of a to anybody here.
        by_hand(b, "DELETE FROM meshnode_log WHERE position = 77")
        by_hand(b, f"UPDATE {TABLE} SET title = 'by hand' WHERE id = ?", note(3).key["id"])
        for one, other, where in ((a, "b", "here"), (b, "a", "there")):
            report = await one.verify(other)
            assert report.counts == {"fault": 2}
            assert [(each.kind, each.key, [event.where for event in each.events]) for each in report.rows] == [
                ("fault", note(3).key, []),
                ("fault", note(76).key, [where]),
            ]
        mended = await b.verify("a", repair=True)
        assert (mended.counts, mended.asked_again, mended.sent_again) == ({"fault": 1}, 1, 0)
        assert [each.key for each in mended.rows] == [note(3).key]

        by_hand(b, "DELETE FROM meshnode_log WHERE position = 80")
        mended = await a.verify("b", repair=True)
        assert (mended.counts, mended.asked_again, mended.sent_again) == ({"fault": 1}, 0, 1)

        checked = await b.check(repair=True)  # what a hand changed, which no event mends
        assert (checked.count, [each.where for each in checked.mendings][-1]) == (0, f"row {key_text(note(3).key)}")
        assert (await a.verify("b")).equal


async def test_writes_that_come_meanwhile_are_no_differences(tmp_path: Path) -> None:
    async with two(tmp_path) as (a, b):
        stop = asyncio.Event()

        async def write() -> None:
            number = ROWS
            while not stop.is_set():
                await a.import_rows(TABLE, [note(number % 400, f"{number}"), note(number)])
                number += 1

        writing = asyncio.ensure_future(write())
        try:
            for _ in range(2):
                report = await b.verify("a")
                assert not report.fault, report
                assert report.counts.keys() <= {"pending"}
        finally:
            stop.set()
            await writing


async def test_a_member_that_cannot_be_compared_with_says_why(tmp_path: Path) -> None:
    async with two(tmp_path) as (a, b):
        await a.add_table("other", {"id": "TEXT"}, {"x": "TEXT"}, table_class="private")
        with pytest.raises(UsageError, match="does not cross whole"):
            await a.verify("b", table="other")
        assert [each.table for each in (await a.verify("b", table=TABLE)).tables] == [TABLE]
        _, refused = await asyncio.gather(a.verify("b"), a.verify("b"), return_exceptions=True)
        assert "under way already" in str(refused)
        end = driver(a, b)
        end.session._features = end.session._features - {"verify"}
        with pytest.raises(UsageError, match="does not know `verify`"):
            await a.verify("b")
        await b.set_online(False)
        await until(a, lambda: _unlinked(a))
        with pytest.raises(UsageError, match="is not linked"):
            await a.verify("b")


async def _unlinked(node: Node) -> bool:
    return not any(peer.linked for peer in await node.peers())


async def test_a_link_that_ends_ends_the_comparison_unless_another_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with two(tmp_path) as (a, b):
        real, reading = compare_serving.answered, asyncio.Event()

        async def never(*_: object) -> tuple[object, ...]:
            reading.set()
            await asyncio.Event().wait()
            return ()

        async def cut() -> None:
            """The link ends while the other side reads; on the next one it answers."""
            reading.clear()
            monkeypatch.setattr(compare_serving, "answered", never)
            await reading.wait()
            monkeypatch.setattr(compare_serving, "answered", real)
            driver(b, a).link.close(CloseCode.DONE, "a test")

        monkeypatch.setattr(verifying, "RELINK_S", 20.0)
        report, _ = await asyncio.gather(a.verify("b"), cut())
        assert report.equal
        monkeypatch.setattr(verifying, "RELINK_S", 0.0)
        ended, _ = await asyncio.gather(a.verify("b"), cut(), return_exceptions=True)
        assert isinstance(ended, TransportError)
        await until(b, lambda: _served(b))


async def _served(node: Node) -> bool:
    assert node._network is not None
    return not node._network.comparisons._serving


# --- A member that is hostile: it says what it likes, over its honest link.


class Heard:
    """What a node is answered while a test speaks for it."""

    def __init__(self, node: Node, peer: Node) -> None:
        assert node._network is not None
        self.driver = driver(node, peer)
        self.frames: asyncio.Queue[CompareFrame] = asyncio.Queue()
        self.ended = asyncio.Event()
        self._own = self.driver._hooks
        hooks = self.driver._hooks
        self.driver._hooks = type(hooks)(
            **{name: getattr(hooks, name) for name in hooks.__slots__ if name not in ("compared", "ended")},
            compared=lambda _driver, frame: self.frames.put_nowait(frame),
            ended=self._closed,
        )

    def _closed(self, driver: PeerDriver, ending: object) -> None:
        self.code = getattr(ending, "code", None)
        self.ended.set()
        self._own.ended(driver, ending)  # type: ignore[arg-type]

    def say(self, *frames: CompareFrame) -> None:
        for each in frames:
            self.driver.compare(each)

    async def next(self) -> CompareFrame:
        async with asyncio.timeout(60):
            return await self.frames.get()


ID = b"hostile!"
OPEN = Compare(ID, bytes(16), Hlc(2**63, 0), False, ())
FIRST = CompareAsk(ID, 1, words.TABLES, (0,))


@pytest.mark.parametrize(
    "frames",
    [
        [CompareAsk(ID, 2, words.TABLES, (0,))],
        [CompareAsk(ID, 1, words.TABLES, (9,))],
        [FIRST, CompareAsk(ID, 2, words.TABLES, (0,)), CompareAsk(ID, 3, words.TABLES, (0,))],
        [CompareTell(ID, 1, words.TABLES, ())],
    ],
    ids=["out of turn", "no such table", "two at once", "an answer"],
)
async def test_a_peer_that_breaks_the_order_of_a_comparison_loses_its_link(
    tmp_path: Path, frames: list[CompareFrame]
) -> None:
    async with two(tmp_path) as (a, b):
        heard = Heard(a, b)
        heard.say(OPEN)
        assert isinstance(await heard.next(), Compare)
        heard.say(*frames)
        async with asyncio.timeout(60):
            await heard.ended.wait()
        assert heard.code is CloseCode.PROTOCOL_ERROR


async def test_one_comparison_at_a_time_is_answered_and_what_is_unknown_is_said_to_be(tmp_path: Path) -> None:
    async with two(tmp_path) as (a, b):
        heard = Heard(a, b)
        heard.say(OPEN, Compare(b"another!", bytes(16), ZERO, False, ()))
        answers = {type(each): each.id for each in (await heard.next(), await heard.next())}
        assert answers == {CompareEnd: b"another!", Compare: ID}
        heard.say(FIRST)
        told = await heard.next()
        assert isinstance(told, CompareTell)
        assert told.of[0].sets[words.EVENTS].size == ROWS
        everything = (Range(words.EVENTS, 0, 0), Range(words.ROWS, 0, 0))
        heard.say(CompareAsk(ID, 2, words.ITEMS, everything))
        told = await heard.next()
        assert isinstance(told, CompareTell)
        assert [len(each) for each in told.of] == [ROWS * words.ITEM_BYTES, 0]  # it told of no table, so of no rows
        heard.say(CompareEnd(ID, "enough"), CompareAsk(ID, 3, words.NAMES, (bytes(16),)))
        assert await heard.next() == CompareEnd(ID, "no such comparison here")
        assert not heard.ended.is_set()
        await until(b, lambda: _served(b))


async def test_questions_without_end_are_not_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_serving, "COMPARE_WORK_S", 0.0)
    async with two(tmp_path) as (a, b):
        heard = Heard(a, b)
        heard.say(OPEN)
        assert isinstance(await heard.next(), Compare)
        heard.say(FIRST)
        assert isinstance(await heard.next(), CompareTell)
        assert await heard.next() == CompareEnd(ID, "no more is answered in one comparison")


async def test_a_peer_that_is_slow_each_time_is_not_waited_for_all_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare_asking, "COMPARE_WAIT_S", 0.0)
    async with two(tmp_path) as (a, _):
        with pytest.raises(TransportError, match="for all questions"):
            await a.verify("b")


async def test_a_peer_that_asks_nothing_more_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_serving, "COMPARE_IDLE_S", 0.05)
    async with two(tmp_path) as (a, b):
        heard = Heard(a, b)
        heard.say(OPEN)
        assert isinstance(await heard.next(), Compare)
        assert await heard.next() == CompareEnd(ID, "not asked for too long")
