"""`node.table(…)`: rows as dataclasses, Structs and dicts, mapped as SSP/1 §2 says; a misfit names its column."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.embedded import embedded

from meshnode.errors import NotFoundError, RegistrationError, RowError, UsageError
from meshnode.node.embedding import Embedding
from meshnode.node.table import Table
from meshnode.node.where import Where

NOON = datetime(2026, 12, 1, 12, 0, tzinfo=UTC)


@dataclass
class Note:
    id: str
    title: str = ""
    done: bool = False
    due: datetime | None = None
    price: Decimal | None = None
    blob: bytes = b""
    rank: int = 0
    weight: float = 0.0


class Tag(msgspec.Struct):
    note: str
    no: int
    label: str | None = None


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Embedding]:
    async with embedded(tmp_path / "n") as node:
        yield node


@pytest.fixture
async def notes(node: Embedding) -> Table[Note]:
    return await node.table("notes", Note).create(key="id")


async def all_of(table: Table[Any], where: Any = None) -> list[Any]:
    return [row async for row in table.rows(where)]


def sql(node: Embedding, text: str, *parameters: Any) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(node.storage.file.path, isolation_level=None)) as connection:
        return connection.execute(text, parameters).fetchall()


async def test_every_type_comes_back_as_it_went_and_lies_there_as_the_spec_says(
    node: Embedding, notes: Table[Note]
) -> None:
    tokyo = timezone(timedelta(hours=9))
    row = Note("a", "Mühe", True, NOON.astimezone(tokyo), Decimal("1.10"), b"\0\xff", 2**63 - 1, 0.1)
    receipt = await notes.upsert(row)
    assert (receipt.table, receipt.events, len(receipt.event_ids)) == ("notes", 1, 1)
    back = await notes.get("a")
    assert back == row
    assert back is not None
    assert back.due is not None
    assert (back.due.tzinfo, str(back.price), type(back.done)) == (UTC, "1.10", bool)
    (kept,) = sql(node, "SELECT title, done, due, price, blob, rank, weight FROM notes")
    assert kept == ("Mühe", 1, "2026-12-01T12:00:00.000000Z", "1.10", b"\0\xff", 2**63 - 1, 0.1)
    assert [each.type for each in (await node.tables())[0].columns] == [
        "TEXT", "INTEGER", "TEXT", "TEXT", "BLOB", "INTEGER", "REAL",
    ]  # fmt: skip
    assert await notes.get("b") is None
    assert await notes.get({"id": "a"}) == row


UNFIT = [
    ("due", datetime(2026, 12, 1), "no time zone"),  # noqa: DTZ001
    ("due", "2026-12-01T12:00:00Z", "is no datetime"),
    ("price", Decimal("NaN"), "no number that can be kept"),
    ("price", 1.5, "is no Decimal"),
    ("weight", float("nan"), "no number that can be kept"),
    ("weight", float("-inf"), "no number that can be kept"),
    ("weight", 2**53 + 1, "no 64-bit float"),
    ("weight", 10**400, "too large for a 64-bit float"),
    ("title", "half \ud800", "surrogate"),
    ("title", 5, "is no str"),
    ("rank", 2**63, "64-bit integer"),
    ("rank", True, "is no int"),
    ("done", 1, "is no bool"),
    ("blob", "text", "is no bytes"),
]


async def test_what_cannot_be_kept_names_table_and_column(notes: Table[Note]) -> None:
    await notes.upsert(Note("a"))
    for column, value, why in UNFIT:
        named = f"column '{column}' of table 'notes': .*{why}"
        with pytest.raises(RowError, match=named) as caught:
            await notes.patch("a", **{column: value})
        assert (caught.value.table, caught.value.column) == ("notes", column)
        with pytest.raises(RowError, match=named):
            await notes.upsert(Note("c"), Note(**{"id": "b", column: value}))
        with pytest.raises(RowError, match=named):
            await all_of(notes, {column: value})
    with pytest.raises(RowError, match="column 'title' of table 'notes': it is str, and None is no value"):
        await notes.patch("a", title=None)
    with pytest.raises(RowError, match="column 'nothing' of table 'notes': Note has no such field"):
        await notes.patch("a", nothing=1)
    assert await all_of(notes) == [Note("a")]


async def test_types_of_fields_and_rows_that_no_column_has_are_refused_at_once(node: Embedding) -> None:
    @dataclass
    class Day:
        id: str
        day: date

    @dataclass
    class Either:
        id: str
        what: str | int

    for python, named in ((Day, "'day' of Day is date"), (Either, "'what' of Either is")):
        with pytest.raises(UsageError, match=named):
            node.table("days", python)
    with pytest.raises(UsageError, match=r"a dataclass, a msgspec.Struct or a dict, not int"):
        node.table("days", int)
    with pytest.raises(UsageError, match="names no table"):
        node.table("a.b.c")
    with pytest.raises(RowError, match="a row is a Note, not a Tag"):
        await node.table("notes", Note).upsert(Tag("a", 1))  # type: ignore[arg-type]


async def test_an_upsert_writes_what_differs_and_a_patch_what_is_named(node: Embedding, notes: Table[Note]) -> None:
    first = await notes.upsert(Note("a", "one", price=Decimal(1)), Note("b"))
    assert first.events == 2
    changes = notes.changes(since=0)
    assert [(await anext(changes)).new["title"] for _ in range(2)] == ["one", ""]
    assert (await notes.upsert(Note("a", "one", price=Decimal(1)))).events == 0
    await notes.upsert(Note("a", "two", price=Decimal(1)))
    assert (await anext(changes)).new == {"title": "two"}
    await notes.patch("a", price=None)
    change = await anext(changes)
    assert (change.old, change.new) == ({"price": Decimal(1)}, {"price": None})
    with pytest.raises(NotFoundError, match=r"no row .* to patch"):
        await notes.patch("zzz", title="x")
    with pytest.raises(UsageError, match="nothing to patch"):
        await notes.patch("a")
    with pytest.raises(UsageError, match="part of the key"):
        await notes.patch("a", id="b")
    await notes.delete("a")
    with pytest.raises(NotFoundError):
        await notes.delete("a")
    with pytest.raises(RowError, match="is no key"):
        await notes.get(None)
    assert [row.id for row in await all_of(notes)] == ["b"]


async def test_rows_of_several_key_columns_and_structs(node: Embedding) -> None:
    tags = await node.table("app.tags", Tag).create(key=["note", "no"])
    assert tags.name == "app.tags"
    await tags.upsert(*(Tag("a", number) for number in (3, -1, 2)), Tag("B", 1, "x"))
    assert [(row.note, row.no) for row in await all_of(tags)] == [("B", 1), ("a", -1), ("a", 2), ("a", 3)]
    assert await tags.get({"note": "B", "no": 1}) == Tag("B", 1, "x")
    await tags.patch({"note": "a", "no": 3}, label="three")
    assert await all_of(tags, {"label": "three"}) == [Tag("a", 3, "three")]
    with pytest.raises(UsageError, match="has the columns note, no: give a mapping"):
        await tags.get("a")


async def test_rows_without_a_type_are_dicts(node: Embedding) -> None:
    await node.add_table("t", {"id": "TEXT"}, {"at": "TEXT", "n": "INTEGER"})
    table = node.table("t")
    await table.upsert({"id": "a", "at": NOON}, {"id": "b", "n": True})
    assert await all_of(table) == [{"id": "a", "at": "2026-12-01T12:00:00.000000Z"}, {"id": "b", "n": 1}]
    with pytest.raises(RowError, match=r"column 'n' of table 't': .* is a list"):
        await table.upsert({"id": "a", "n": [1]})
    with pytest.raises(UsageError, match="without a type"):
        await table.create(key="id")


async def test_rows_are_chosen_by_equals_or_sql_and_read_page_by_page(notes: Table[Note]) -> None:
    await notes.upsert(*(Note(f"n{number:03}", rank=number, done=number % 2 == 0) for number in range(600)))
    assert [row.rank for row in await all_of(notes)] == list(range(600))
    assert len(await all_of(notes, {"done": True})) == 300
    assert [row.id for row in await all_of(notes, {"done": False, "rank": 3})] == ["n003"]
    assert len(await all_of(notes, {"due": None})) == 600
    assert [row.rank for row in await all_of(notes, Where("rank > ? AND done -- and", 595))] == [596, 598]
    await notes.patch("n001", due=NOON)
    assert [row.id for row in await all_of(notes, Where("due <= ?", NOON))] == ["n001"]
    for where, why in (
        ({"colour": 1}, "column 'colour' of table 'notes'"),
        (Where("colour = 1"), "no such column: colour"),
        (Where("rank = ?"), "'rank = \\?' on table 'notes'"),
        (Where("1); DELETE FROM notes; --"), "on table 'notes'"),
        ("rank = 1", "by a mapping"),
    ):
        with pytest.raises(UsageError, match=why):
            await all_of(notes, where)
    with pytest.raises(UsageError, match="no time zone"):
        Where("due = ?", datetime(2026, 1, 1))  # noqa: DTZ001


async def test_a_row_that_the_type_has_no_place_for_ends_the_rows_or_is_told(
    node: Embedding, notes: Table[Note]
) -> None:
    await notes.upsert(Note("a"), Note("c"))
    await node.put("notes", {"id": "b"}, {"due": "tomorrow"})
    with pytest.raises(RowError, match="column 'due' of table 'notes': 'tomorrow' is no ISO-8601 time"):
        await all_of(notes)
    told: list[RowError] = []
    assert [row.id async for row in notes.rows(misfit=told.append)] == ["a", "c"]
    assert [each.column for each in told] == ["due"]
    change = await anext(notes.changes(since=2))
    assert change.new == {"due": "tomorrow"}  # a change is told all the same
    with pytest.raises(RowError):
        _ = change.row


async def test_nothing_and_null_become_the_default_or_are_named(node: Embedding) -> None:
    @dataclass
    class Whole:
        id: str
        n: int
        tag: str = "none"
        at: datetime | None = field(default_factory=lambda: NOON)

    await node.add_table("t", {"id": "TEXT"}, {"n": "INTEGER", "tag": "TEXT", "at": "TEXT"})
    whole = node.table("t", Whole)
    await node.put("t", {"id": "a"}, {"n": 1})
    assert await whole.get("a") == Whole("a", 1)
    await node.put("t", {"id": "a"}, {"tag": None, "at": None})
    assert await whole.get("a") == Whole("a", 1, at=None)
    await node.put("t", {"id": "b"}, {})
    with pytest.raises(RowError, match="column 'n' of table 't': it holds nothing that anybody wrote"):
        await whole.get("b")


async def test_a_table_that_does_not_keep_what_the_type_has_is_named_when_it_is_used(node: Embedding) -> None:
    @dataclass
    class Priced:
        id: str
        price: Decimal

    await node.add_table("t", {"id": "TEXT"}, {"price": "NUMERIC"})
    with pytest.raises(RowError, match=r"'price' of table 't': it is declared NUMERIC, .* declare it TEXT"):
        await node.table("t", Priced).get("a")
    with pytest.raises(RowError, match=r'ALTER TABLE main."t" ADD COLUMN "title" TEXT'):
        await all_of(node.table("t", Note))
    with pytest.raises(RegistrationError):
        await node.table("t", Priced).create(key="id")
    with pytest.raises(RowError, match="no such field to be a key"):
        await node.table("u", Priced).create(key="no")
    with pytest.raises(NotFoundError, match="'u' is not registered"):
        await node.table("u", Priced).upsert(Priced("a", Decimal(1)))


async def test_a_change_says_what_became_of_a_row_and_what_it_was(node: Embedding, notes: Table[Note]) -> None:
    await notes.upsert(Note("a", "one", due=NOON))
    await notes.delete("a")
    await node.put("notes", {"id": "a"}, {"title": "two"})
    changes = notes.changes(since=0)
    written, deleted, back = [await anext(changes) for _ in range(3)]
    assert (written.key, written.old, written.new["due"], written.local) == ({"id": "a"}, {}, NOON, True)
    assert written.row == Note("a", "two")  # as it is now
    assert (deleted.op, deleted.exists, deleted.row, deleted.new) == ("delete", False, None, {})
    assert deleted.old == written.new
    assert (back.resurrected, back.exists, back.old, back.new["title"]) == (True, True, {}, "two")
    assert back.cleared == ["done", "due", "price", "blob", "rank", "weight"]
    assert (back.withheld, back.taken_back, back.partial, back.unmaterialized) == (False, False, False, [])
    assert back.site == (await node.status()).site
    assert [change.seq for change in (written, deleted, back)] == [1, 2, 3]
    assert repr(deleted) == "Change(2, delete notes {'id': 'a'}, here, {})"
