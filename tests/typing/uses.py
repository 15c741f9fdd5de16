"""What programs write: type-checked under --strict by tests/hygiene/test_typing.py, where `error:` says it must not."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, assert_type

import msgspec

from meshnode import (
    BlockingIterator,
    BlockingNode,
    BlockingTable,
    CallQueue,
    Change,
    ChangeView,
    ConflictView,
    MeshError,
    Node,
    NoticeView,
    PeerView,
    Receipt,
    RetentionReport,
    RowError,
    Subscription,
    Table,
    Where,
    join,
)


@dataclass
class Note:
    id: str
    title: str = ""
    due: datetime | None = None
    price: Decimal | None = None


class Tag(msgspec.Struct):
    note: str
    label: str


async def asynchronously() -> None:
    async with Node.open(name="desk", peers=["nas:4747"], database="app.db") as node:
        assert_type(node, Node)
        notes = await node.table("notes", Note).create(key="id")
        assert_type(notes, Table[Note])
        assert_type(node.table("plain"), Table[dict[str, Any]])
        assert_type(await notes.upsert(Note("a"), Note("b")), Receipt)
        await notes.patch("a", title="Milk", due=datetime.now(UTC))
        note = await notes.get("a")
        assert_type(note, Note | None)
        print(note.title)  # error: union-attr
        async for each in notes.rows({"title": "Milk"}):
            assert_type(each, Note)
        async for each in notes.rows(Where("due < ?", datetime.now(UTC)), misfit=print):
            assert_type(each.due, datetime | None)
        async for change in notes.changes(since=7):
            assert_type(change, Change[Note])
            assert_type(change.row, Note | None)
            print(change.position)  # error: attr-defined
        async for view in node.changes(table="notes"):
            assert_type(view, ChangeView)
        async for rows in node.live("SELECT note, label FROM tags WHERE note = ?", ["a"], row=Tag):
            assert_type(rows, list[Tag])
        async for counts in node.live("SELECT count(*) AS n FROM notes"):
            assert_type(counts, list[dict[str, Any]])
        async with node.transaction() as together:
            together.upsert(notes, Note("c"))
            together.upsert(notes, Tag("c", "x"))  # error: misc
            together.patch(notes, "a", title="")
            together.delete(node.table("tags", Tag), {"note": "a"})
        assert_type(together.receipt, Receipt)
        assert_type(await node.query("SELECT note, label FROM tags", row=Tag), list[Tag])
        assert_type(await node.query("SELECT count(*) AS n FROM tags"), list[dict[str, Any]])
        assert_type(await node.until("SELECT * FROM tags", row=Tag, when=lambda tags: tags[0].label), list[Tag])
        assert_type((await notes.count({"title": "Milk"}), await node.seq()), tuple[int, int])
        assert_type(await notes.delete_where(Where("due < ?", datetime.now(UTC))), Receipt)
        await notes.delete_where("due < 1")  # error: arg-type
        await node.set_policy("scope", ["main.*"])
        await node.set_policy("scoop", [])  # error: arg-type
        report: RetentionReport = await node.evict("notes", before_ms=0)
        print(report.events)
        await notes.upsert(Tag("a", "x"))  # error: arg-type
        await notes.upsert({"id": "a"})  # error: arg-type
        await notes.patch(title="no key")  # error: call-arg
        await node.live("SELECT 1")  # error: misc
        assert_type(await node.peers(), list[PeerView])
        assert_type(await node.notices(), list[NoticeView])
        async for notice in node.follow_notices():
            assert_type(notice, NoticeView)
        async for conflict in node.conflict_changes():
            assert_type(conflict, ConflictView)
        await node.wait_synced("lap", timeout_s=5)
        invite = await node.invite()
        await join("other", invite.invite, name="lap")
    Node.open(naem="desk")  # error: call-arg
    Node.open(port="4747")  # error: arg-type


def blocking() -> None:
    calls = CallQueue()
    calls.put(lambda: print("a call may give anything back"))
    calls.put(lambda: 1)
    calls.put(print("called already"))  # error: arg-type
    with BlockingNode.open("home", invite="meshnode-invite:…", deliver=calls.put, mdns_enabled=False) as node:
        notes = node.table("notes", Note).create(key=["id"])
        assert_type(notes, BlockingTable[Note])
        for note in notes.rows():
            assert_type(note, Note)
        with node.changes() as changes:
            assert_type(changes, BlockingIterator[ChangeView])

        def changed(change: Change[Note]) -> None:
            print(change.old.get("title"), change.new.get("title"), change.resurrected)

        def listed(rows: list[Tag]) -> None:
            print(rows)

        subscription = notes.on_changes(changed)
        assert_type(subscription, Subscription[Change[Note]])
        subscription.cancel()
        node.on_live(listed, "SELECT note, label FROM tags", row=Tag)
        node.on_live(listed, "SELECT note, label FROM tags", row=Note)  # error: arg-type
        notes.on_changes(listed)  # error: arg-type
        with node.transaction() as together:
            together.upsert(notes, Note("c"))
            together.upsert(notes, Tag("c", "x"))  # error: misc
        assert_type(node.run(lambda each: each.peers()), list[PeerView])
        try:
            notes.upsert(Note("a", price=Decimal("1.10")))
        except RowError as error:
            print(error.table, error.column)
        except MeshError as error:
            print(error)


if __name__ == "__main__":
    asyncio.run(asynchronously())
