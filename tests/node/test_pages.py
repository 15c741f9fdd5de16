"""Pages of rows, changes and events are bounded by bytes, and go both ways."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.nodes import loopback

from meshnode.errors import UsageError
from meshnode.node import following
from meshnode.node.api import PAGE_BYTES
from meshnode.node.eventviews import EventPage, EventQuery
from meshnode.node.local import LocalNode, open_local
from meshnode.node.node import Node
from meshnode.node.views import RowChange, RowView

LARGE, ROWS = PAGE_BYTES // 4, 11  # bytes of a value, and how many rows have one
IDS = [f"n{number:02}" for number in range(ROWS)]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[LocalNode]:
    config = loopback(name="desk")
    async with Node(tmp_path / "n", config=config) as running:
        home = running.home
    async with open_local(home, writing=True) as found:
        await found.add_table("notes", {"id": "TEXT"}, {"text": "TEXT", "raw": "BLOB"})
        for each in IDS:
            value = {"text": each * (LARGE // 3)} if each[-1] in "02468" else {"raw": b"\xff" * LARGE}
            await found.import_rows("notes", [RowChange(key={"id": each}, columns=value)])
        yield found


def ids(page: list[RowView]) -> list[str]:
    return [row.key["id"] for row in page]


async def test_a_page_of_rows_holds_so_many_bytes_and_an_empty_one_is_the_end(node: LocalNode) -> None:
    page, seen = await node.rows("notes"), []
    while page:
        assert len(page) <= 4
        seen += ids(page)
        page = await node.rows("notes", after=page[-1].key)
    assert seen == IDS


async def test_rows_go_back_from_a_key(node: LocalNode) -> None:
    assert ids(await node.rows("notes", before={"id": "n05"}, limit=2)) == ["n03", "n04"]
    assert ids(await node.rows("notes", before={"id": "zzz"})) == IDS[-4:]
    assert await node.rows("notes", before={"id": "n00"}) == []
    with pytest.raises(UsageError, match="not both"):
        await node.rows("notes", before={"id": "n05"}, after={"id": "n01"})


async def test_changes_and_rows_in_their_stead_are_read_so_many_bytes_at_a_time(node: LocalNode) -> None:
    for since in (0, -2):  # from the changes; as one who was away for too long
        place, sizes, told = following.Place(since), [], []
        if since < 0:
            place = following.Place(0, following.RowPlace(0, 0, b""))
        for _ in range(20):
            page, after = await node.storage.read(lambda tx, at=place: following.read_on(tx, at, lambda _: True, 256))  # type: ignore[misc]
            sizes.append(len(page))
            told += [change.key["id"] for change in page]
            if after == place or (after.rows is None and since < 0):
                break
            place = after
        assert max(sizes) <= 5
        assert told[:ROWS] == IDS


async def test_events_go_back_from_a_position_the_newest_first(node: LocalNode) -> None:
    newest = (await node.events(before=2**62, limit=1)).position
    pages: list[EventPage] = []
    at = newest + 1
    while not pages or pages[-1].more:
        pages.append(await node.events(before=at, limit=100))
        at = pages[-1].position
    positions = [event.position for page in pages for event in page.events]
    assert positions == sorted(positions, reverse=True)
    assert len(positions) == ROWS
    assert max(len(page.events) for page in pages) <= 5
    forth = [event for page in pages[::-1] for event in page.events[::-1]]
    assert [event.id for event in forth] == [event.id for event in await everything(node)]
    with pytest.raises(UsageError, match="not both"):
        await node.events(before=5, after=1)
    assert (await node.events(EventQuery(verdict="held"), before=2**62)).events == []


async def everything(node: LocalNode) -> list[object]:
    found, after = [], 0
    for _ in itertools.count():
        page = await node.events(after=after)
        found += page.events
        after = page.position
        if not page.more:
            break
    return found
