"""The streams of open pages: what is sent, how often, and what a page that does not read costs."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
from support.cases import CasesInMemory, conflict, notice
from support.dashboard import MeshInMemory, Served, large_mesh, peer

from meshnode.control.web import live
from meshnode.control.web.live import APART_S, Due, Hub, LiveResponse, Pace, Wake, event_text
from meshnode.control.web.throughput import Rate, Throughput
from meshnode.errors import BusyError
from meshnode.node.bell import Bell
from meshnode.node.metricviews import GAUGE, labelled


@contextmanager
def opened(served: Served, stream_of: str = "mesh") -> Iterator[http.client.HTTPResponse]:
    """A page's stream."""
    host, _, way_in = served.way_in().removeprefix("http://").partition("/")
    with (
        closing(http.client.HTTPConnection(host, timeout=60)) as entering,
        closing(http.client.HTTPConnection(host, timeout=60)) as stream,
    ):
        entering.request("GET", f"/{way_in}")
        entered = entering.getresponse()
        entered.read()
        cookie = str(entered.getheader("set-cookie")).partition(";")[0]
        stream.request("GET", f"/live/{stream_of}", headers={"Cookie": cookie})
        with stream.getresponse() as answer:
            yield answer


def events(stream: http.client.HTTPResponse) -> Iterator[tuple[str, str]]:
    """Each event with its data."""
    name, data = "", []
    while line := stream.readline().decode():
        field, _, value = line.rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            data.append(value)
        elif not field and name:
            yield name, "\n".join(data)
            name, data = "", []


@pytest.mark.parametrize(
    ("page", "first"), [("conflicts?page=2", "11 to 20 of 25"), ("notices?page=2", "21 to 25 of 25")], ids=str
)
def test_the_stream_of_a_second_page_goes_on_showing_it(page: str, first: str) -> None:
    node = CasesInMemory([conflict(at) for at in range(25)], [notice(at, "joined") for at in range(25)])
    with Served(node) as served, opened(served, page) as stream:
        told = events(stream)
        assert first in dict(next(told) for _ in range(3))[page.partition("?")[0]]


def test_a_stream_tells_at_once_then_what_is_otherwise_and_ends_with_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "TICK_S", 0.05)
    node = MeshInMemory([peer(0), peer(1)])
    with Served(node) as served, opened(served) as stream:
        assert stream.getheader("content-type") == "text/event-stream; charset=utf-8"
        told = events(stream)
        first = dict(next(told) for _ in range(3))
        assert set(first) == {"state", "nav", "mesh"}
        assert "2 of 2 linked, level" in first["state"]
        node.changed(0, linked=False)
        assert "1 of 2 linked" in next(html for name, html in told if name == "state")
        served.stop()
        for _ in told:
            pass


def test_so_many_pages_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "STREAMS", 2)
    with Served(MeshInMemory()) as served, opened(served) as first, opened(served) as second, opened(served) as third:
        assert (first.status, second.status, third.status) == (200, 200, 503)


async def test_a_page_that_sleeps_is_told_the_latest_and_makes_nothing_wait() -> None:
    """The first send does not return: meanwhile a thousand wakes, and then one event of the state by then."""
    hub, state, sent = Hub(large_mesh(1), asyncio.Event()), [0], []
    awake, stalled, latest = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def html() -> str:
        return str(state[0])

    async def send(message: dict[str, Any]) -> None:
        sent.append(bytes(message.get("body", b"")))
        if b"data: 0" in sent[-1]:
            stalled.set()
            await awake.wait()
        if b"data: 1000" in sent[-1]:
            latest.set()

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    response = LiveResponse(hub, [Due("count", frozenset({Wake.CHANGES}), html)])
    stream = asyncio.create_task(response({}, receive, send))  # type: ignore[arg-type]
    await stalled.wait()
    for number in range(1, 1001):
        state[0] = number
        hub.wake(Wake.CHANGES)
        await asyncio.sleep(0)
    awake.set()
    async with asyncio.timeout(60):
        await latest.wait()
    assert len(sent) == 4  # the head, the wait before a new connection, the first state and the last
    hub.stopping.set()
    await stream


async def test_followers_live_while_a_page_is_open() -> None:
    hub = Hub(MeshInMemory(), asyncio.Event())
    before = asyncio.all_tasks()
    async with hub.watching(), hub.watching():
        assert len(asyncio.all_tasks() - before) == 4
    assert asyncio.all_tasks() == before


async def test_a_flood_of_changes_is_taken_to_its_end_and_rung_for_twice() -> None:
    """Whoever takes one of them at a time is still told of a flood an hour later."""
    taken, ended = [0], asyncio.Event()

    class Flooded(MeshInMemory):
        async def changes(self, *, since: int | None = None, table: str | None = None) -> AsyncIterator[Any]:
            for number in range(10_000):
                taken[0] = number + 1
                yield number
                if number == 5_000:
                    await asyncio.sleep(0.01)
            ended.set()
            await asyncio.Event().wait()

    hub = Hub(Flooded(), asyncio.Event())
    async with hub.watching():
        async with asyncio.timeout(60):
            await ended.wait()
        assert taken == [10_000]
        assert hub.seen[Wake.CHANGES] == 1
        async with asyncio.timeout(60):
            while hub.seen[Wake.CHANGES] < 2:
                await hub.bell.wait(hub.bell.listen(), 1.0)


def test_a_fragment_is_looked_at_twice_a_second_at_most_and_sent_when_it_differs() -> None:
    async def html() -> str:
        return ""

    fragment = Due("rows", frozenset({Wake.CHANGES}), html)
    pace, seen = Pace([fragment]), dict.fromkeys(Wake, 0)
    assert pace.due(seen, 0.0) == [fragment]
    assert pace.news(fragment, "a", 0.0)
    assert pace.due(seen, 10.0) == []
    seen[Wake.TICK] += 1
    assert pace.due(seen, 10.0) == []
    seen[Wake.CHANGES] += 1
    assert pace.due(seen, APART_S / 2) == []
    assert pace.wait_s(seen, APART_S / 2) == APART_S / 2
    assert pace.due(seen, APART_S) == [fragment]
    assert not pace.news(fragment, "a", APART_S)
    assert pace.news(fragment, "b", APART_S)


def test_lines_of_a_fragment_cannot_end_its_event() -> None:
    assert event_text("x", "a\r\n\n\rb") == "event: x\ndata: a\ndata: \ndata: \ndata: b\n\n"


def test_throughput_is_what_a_counter_grew_by() -> None:
    def reading(sent: float, received: float) -> list[object]:
        values = {("aa", "sent"): sent, ("aa", "received"): received}
        return [labelled("meshnode_link_bytes", GAUGE, "", ["peer", "direction"], values)]

    passing = Throughput()
    passing.take(reading(1000, 0), 10.0)  # type: ignore[arg-type]
    assert passing.of("aa") == Rate()
    passing.take(reading(3000, 50), 12.0)  # type: ignore[arg-type]
    assert passing.of("aa") == Rate(1000.0, 25.0)
    assert not passing.due(12.5)
    passing.take(reading(10, 50), 13.0)  # type: ignore[arg-type]
    assert passing.of("aa") == Rate(10.0, 0.0)
    passing.take([], 14.0)
    assert passing.of("aa") == Rate()


async def test_a_stream_lets_its_session_live_on_and_ends_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "ALIVE_S", 0.0)
    monkeypatch.setattr(live, "TICK_S", 0.01)
    answers: Iterator[bool] = iter([True, True, False])
    sent: list[bytes] = []

    async def send(message: dict[str, Any]) -> None:
        sent.append(bytes(message.get("body", b"")))

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    hub = Hub(MeshInMemory(), asyncio.Event())
    async with asyncio.timeout(60):
        await LiveResponse(hub, [], lambda: next(answers))({}, receive, send)  # type: ignore[arg-type]
    assert b"event: ended\ndata: \n\n" in sent
    assert next(answers, None) is None


def test_a_source_that_failed_once_is_followed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The node was busy for a moment: pages that stay open go on being true."""
    monkeypatch.setattr(live, "AGAIN_S", 0.01)

    class Busy(MeshInMemory):
        failures = 2

        async def changes(self, *tables: str, **_options: Any) -> AsyncIterator[Any]:
            if self.failures:
                self.failures -= 1
                raise BusyError("another program holds the database")
            yield None
            await asyncio.Event().wait()

    async def scenario() -> None:
        hub = Hub(node := Busy(), asyncio.Event())
        async with hub.watching(), asyncio.timeout(60):
            while node.failures or hub.seen[Wake.CHANGES] < 3:  # two failures, then one change
                await Bell.wait(hub.bell.listen(), 0.05)

    asyncio.run(scenario())


async def test_streams_that_show_the_same_are_drawn_once_for_all() -> None:
    """Else sixteen open pages of one kind draw each change sixteen times, and writes wait for that."""
    hub, drawn = Hub(MeshInMemory(), asyncio.Event()), [0]

    async def html() -> str:
        drawn[0] += 1
        return str(hub.seen[Wake.CHANGES])

    async def looks(fragment: Due, *, first: bool = False) -> set[str | None]:
        return set(await asyncio.gather(*(hub.html(fragment, first=first) for _ in range(16))))

    shared = Due("count", frozenset({Wake.CHANGES}), html, ("count", "page"))
    assert (await looks(shared, first=True), drawn) == ({"0"}, [16])  # each page may be of another moment
    hub.wake(Wake.CHANGES)
    assert (await looks(shared), drawn) == ({"1"}, [17])
    hub.wake(Wake.TICK)  # nothing that it shows
    assert (await looks(shared), drawn) == ({"1"}, [17])
    other = Due("count", frozenset({Wake.CHANGES}), html, ("count", "page", ("table", "notes")))
    assert (await looks(other), drawn) == ({"1"}, [18])
    assert (await looks(Due("count", frozenset({Wake.CHANGES}), html)), drawn) == ({"1"}, [34])
