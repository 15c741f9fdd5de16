"""Apps that are attached to one node: their own schemas and files, which follow the node and are made again."""

from __future__ import annotations

import asyncio
import queue
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import aclosing, closing
from pathlib import Path

import msgspec
import pytest
from support.attached import Item, attached, serving_node, shows
from support.nodes import PATIENCE_S, free_port, linked, loopback, take
from support.verbs import call

from meshnode import Attached, BlockingAttached, Home, Node, Where, attach, join
from meshnode.control.address import control_address
from meshnode.control.attached.follower import Follower
from meshnode.control.client import ControlClient
from meshnode.errors import (
    BusyError,
    ClosedError,
    ConfigError,
    NotFoundError,
    RegistrationError,
    TransportError,
    UsageError,
)
from meshnode.node import changefeed, projecting
from meshnode.node.databases import DatabaseFile
from meshnode.node.projection import Projection
from meshnode.node.projectionviews import ProjectionPage, RowWrite


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with serving_node(tmp_path / "desk") as node:
        yield node


def follower(app: Attached) -> Follower:
    assert app._follower is not None
    return app._follower


async def rows_of(app: Attached, table: str = "items") -> dict[str, Item]:
    return {row.id: row async for row in app.table(table, Item).rows()}


async def test_two_apps_have_their_own_schemas_and_files(node: Node, tmp_path: Path) -> None:
    async with attached(tmp_path, node.home.path) as notes, attached(tmp_path, node.home.path, "tasks") as tasks:
        items = await notes.table("items", Item).create(key="id")
        await tasks.table("items", Item).create(key="id")
        receipt = await items.upsert(Item("a", "Milk"), Item("b", "Bread", 2))
        assert (receipt.table, receipt.events) == ("notes.items", 2)
        await tasks.table("items", Item).upsert(Item("c", "Dig"))
        assert await rows_of(notes) == {"a": Item("a", "Milk"), "b": Item("b", "Bread", 2)}
        assert await rows_of(tasks) == {"c": Item("c", "Dig")}
        assert [view.table for view in await tasks.tables()] == ["items"]
        assert [row.key["id"] for row in await node.rows("notes.items")] == ["a", "b"]
        with closing(sqlite3.connect(tmp_path / "notes.db")) as plain:
            assert plain.execute("SELECT id, title, number FROM items").fetchall() == [
                ("a", "Milk", 0),
                ("b", "Bread", 2),
            ]


async def test_it_has_the_tables_that_a_node_has(node: Node, tmp_path: Path) -> None:
    async with attached(tmp_path, node.home.path) as app:
        items = await app.table("items", Item).create(key="id")
        async with app.transaction() as rows:
            rows.upsert(items, Item("a"), Item("b"))
            rows.patch(items, "a", title="Milk")
        await items.patch("b", number=2)
        changes = items.changes()
        following = asyncio.ensure_future(anext(changes))
        assert await items.get("b") == Item("b", "", 2)
        assert [row.id async for row in items.rows(Where("number > ?", 1))] == ["b"]
        async for shown in app.live("SELECT title FROM items ORDER BY id"):
            assert shown == [{"title": "Milk"}, {"title": ""}]
            break
        await items.delete("a")
        assert await items.get("a") is None
        change = await asyncio.wait_for(following, PATIENCE_S)
        assert (change.key, change.exists, change.local, change.old["title"]) == ({"id": "a"}, False, True, "Milk")
        await changes.aclose()  # type: ignore[attr-defined]
        with pytest.raises(NotFoundError, match="to patch"):
            await items.patch("z", number=1)
        with pytest.raises(UsageError, match="transaction"):
            async with app.transaction():
                await items.upsert(Item("z"))
        assert await app.peers() == []
        seq = await app.seq()
        receipt = await items.upsert(Item("c", "Oat"), Item("d", "Oat"))
        assert (receipt.events, receipt.seq, await items.count({"title": "Oat"})) == (2, seq, 2)
        assert await app.query("SELECT id FROM items WHERE title = ?", ["Oat"]) == [{"id": "c"}, {"id": "d"}]
        assert (await items.delete_where({"title": "Oat"})).events == 2
        assert (await items.upsert(Item("b", "", 2))).events == 0
        assert await app.until("SELECT id FROM items", timeout_s=PATIENCE_S) == [{"id": "b"}]


async def test_it_reads_and_writes_no_other_schema(node: Node, tmp_path: Path) -> None:
    await node.add_table("tasks.items", {"id": "TEXT"}, {"title": "TEXT"})
    await node.put("tasks.items", {"id": "x"}, {"title": "secret"})
    await node.add_table("items", {"id": "TEXT"}, {"title": "TEXT"})
    async with attached(tmp_path, node.home.path) as app:
        assert await app.tables() == []
        with pytest.raises(NotFoundError):
            await app.table("tasks.items").get("x")
        with pytest.raises(UsageError, match="schema 'notes'"):
            await app.table("tasks.items").upsert({"id": "x"})
        with pytest.raises(UsageError, match="schema 'notes'"):
            await app.add_table("tasks.more", {"id": "TEXT"}, {})
        with pytest.raises(NotFoundError):
            await app.table("items").upsert({"id": "x"})
    address = control_address(Home(node.home.path))
    assert address is not None
    client = ControlClient(address)
    for table in ("tasks.items", "items"):
        with pytest.raises((UsageError, NotFoundError)):
            await client.write_schema("notes", [RowWrite(table=table, intent="put", key={"id": "x"})])
    for schema in ("", "a.b", "meshnode_x", "sqlite_x"):
        with pytest.raises(UsageError, match="no schema"):
            await anext(client.project(schema))
        with pytest.raises(UsageError, match="no schema"):
            await client.write_schema(schema, [RowWrite(table="t", intent="put", key={"id": "x"})])
    assert [row.columns for row in await node.rows("tasks.items")] == [{"title": "secret"}]


async def test_cleared_and_unmaterialized_columns_are_told_apart(node: Node, tmp_path: Path) -> None:
    await node.add_table("notes.items", {"id": "TEXT"}, {"title": "TEXT", "number": "INTEGER"})
    await node.put("notes.items", {"id": "a"}, {"title": "Milk"})
    await node.put("notes.items", {"id": "b"}, {"title": "Bread", "number": 1})
    await node.remove("notes.items", {"id": "b"})
    await node.put("notes.items", {"id": "b"}, {"title": "Rye"})
    async with attached(tmp_path, node.home.path) as app:
        plain = app.table("items")
        assert await plain.get("a") == {"id": "a", "title": "Milk"}
        assert await plain.get("b") == {"id": "b", "title": "Rye", "number": None}
        await node.put("notes.items", {"id": "a"}, {"number": None})
        await app.caught_up()
        await shows(app, lambda _: True)
        async with asyncio.timeout(PATIENCE_S):
            async for _ in app.changes(since=0):
                if await plain.get("a") == {"id": "a", "title": "Milk", "number": None}:
                    break


async def test_what_one_app_writes_shows_in_the_other_device_s(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    async with serving_node(tmp_path / "a", loopback(port=ports[0], name="a")) as a:
        await join(tmp_path / "b", (await a.invite()).invite, name="b")
        async with (
            serving_node(tmp_path / "b", loopback(ports[0], port=ports[1], name="b")) as b,
            attached(tmp_path / "of-a", a.home.path) as here,
            attached(tmp_path / "of-b", b.home.path) as there,
        ):
            await linked(a, b)
            for app in (here, there):
                await app.table("items", Item).create(key="id")
            await here.table("items", Item).upsert(Item("a", "Milk"))
            await shows(there, lambda found: found == {"a": Item("a", "Milk")})
            await there.table("items", Item).patch("a", number=3)
            await shows(here, lambda found: found == {"a": Item("a", "Milk", 3)})
            assert [peer.name for peer in await here.peers()] == ["b"]


async def test_a_file_that_is_lost_is_made_again(node: Node, tmp_path: Path) -> None:
    async with attached(tmp_path, node.home.path) as app:
        items = await app.table("items", Item).create(key="id")
        await items.upsert(*(Item(f"{number:04}", "Milk", number) for number in range(700)))
        await items.delete("0001")
        before, seq = await rows_of(app), follower(app).at.seq
        newest = [change.seq async for change in _so_far(app)][-1]
    _lose(tmp_path)
    async with attached(tmp_path, node.home.path) as app:
        assert follower(app).rebuilds == 1
        assert (await rows_of(app), follower(app).at.seq) == (before, seq)
        # Whoever followed the changes of the lost file is told every row, and misses nothing.
        told = {change.key["id"] async for change in _so_far(app, since=newest)}
        assert told >= before.keys()
    async with attached(tmp_path, node.home.path) as app:
        assert follower(app).rebuilds == 0


def _lose(folder: Path) -> None:
    for file in folder.glob("notes.db*"):
        file.unlink()


async def _so_far(app: Attached, since: int = 0) -> AsyncIterator[changefeed.ChangeView]:
    """The changes that there are."""
    async with aclosing(app.change_pages(since=since, table=None)) as pages:  # type: ignore[type-var]
        async for page in pages:
            for change, _ in page:
                yield change
            if len(page) < changefeed.CHANGE_PAGE:
                return


async def test_an_app_that_lags_too_far_is_told_every_row(node: Node, tmp_path: Path) -> None:
    async with attached(tmp_path, node.home.path) as app:
        items = await app.table("items", Item).create(key="id")
        await items.upsert(Item("gone"), Item("same", "Rye"), Item("other", "Milk"))
        newest = [change.seq async for change in _so_far(app)][-1]
    await node.remove("notes.items", {"id": "gone"})
    await node.put("notes.items", {"id": "other"}, {"title": "Soy"})
    await node.put("notes.items", {"id": "new"}, {"title": "Oat", "number": 1})
    await node.storage.write(
        lambda engine: engine.context.transact(lambda tx: tx.execute("DELETE FROM meshnode_changes"))
    )
    async with attached(tmp_path, node.home.path) as app:
        assert follower(app).rebuilds == 1
        assert await rows_of(app) == {
            "same": Item("same", "Rye"),
            "other": Item("other", "Soy"),
            "new": Item("new", "Oat", 1),
        }
        told = [(each.op, each.key["id"], each.columns) async for each in _so_far(app, since=newest)]
        assert sorted(told) == [
            ("delete", "gone", {}),
            ("upsert", "new", {"title": "Oat", "number": 1}),
            ("upsert", "other", {"title": "Soy"}),
        ]  # what is as it was is no change


async def test_it_finds_a_node_that_was_restarted(tmp_path: Path) -> None:
    home = tmp_path / "desk"
    async with serving_node(home):
        app = await attached(tmp_path, home).__aenter__()
        items = await app.table("items", Item).create(key="id")
        await items.upsert(Item("a"))
    async with asyncio.timeout(PATIENCE_S):
        while app.connected:
            await app.storage.changed.wait(app.storage.changed.listen(), 0.1)
    assert await items.get("a") == Item("a")  # reading goes on
    writing = asyncio.create_task(items.upsert(Item("b")))
    async with serving_node(home) as node:
        await asyncio.wait_for(writing, PATIENCE_S)
        await node.put("notes.items", {"id": "c"}, {"title": "Milk", "number": 0})
        await shows(app, lambda found: found.keys() == {"a", "b", "c"})
        assert follower(app).rebuilds == 1  # the first one, of nothing
        await app.close()


async def test_a_node_that_was_restored_makes_it_again(tmp_path: Path) -> None:
    """Also where the restored one gave the same numbers out to other changes meanwhile."""
    home, backup = tmp_path / "desk", tmp_path / "backup"
    async with serving_node(home), attached(tmp_path, home) as app:
        await (await app.table("items", Item).create(key="id")).upsert(Item("a"))
    shutil.copytree(home, backup)
    async with serving_node(home), attached(tmp_path, home) as app:
        await app.table("items", Item).upsert(Item("b"), Item("c"))
    shutil.rmtree(home)
    backup.rename(home)
    async with serving_node(home) as node:
        for name in ("x", "y", "z"):
            await node.put("notes.items", {"id": name}, {"title": name, "number": 0})
        async with attached(tmp_path, home) as app:
            assert follower(app).rebuilds == 1
            assert (await rows_of(app)).keys() == {"a", "x", "y", "z"}
    async with serving_node(home), attached(tmp_path, home) as app:
        assert follower(app).rebuilds == 0


async def test_a_device_that_became_another_makes_it_again(node: Node, tmp_path: Path) -> None:
    """As by `meshnode identity renew`: whose writes are this device's own is another question then."""
    await node.add_table("notes.items", {"id": "TEXT"}, {"title": "TEXT"})
    await node.put("notes.items", {"id": "a"}, {"title": "Milk"})
    pages = node.project("notes")
    page = await anext(pages)
    projection = Projection(DatabaseFile(tmp_path / "notes.db"), "notes", lambda: 1)
    try:
        assert projection.apply(page)
        renewed = msgspec.structs.replace(page, site="77" * 16, rows="", changes=[])
        assert not projection.apply(renewed)
        assert (projection.at.epoch, projection.at.site) == ("", "77" * 16)
        assert projection.apply(msgspec.structs.replace(page, site="77" * 16))
        assert projection.at.epoch == page.epoch
    finally:
        projection.close()


async def test_another_mesh_or_schema_or_a_node_s_own_file_is_refused(node: Node, tmp_path: Path) -> None:
    async with attached(tmp_path, node.home.path):
        with pytest.raises(BusyError, match="attached"):
            await attached(tmp_path, node.home.path, patience_s=0).__aenter__()
    with pytest.raises(ConfigError, match="schema 'notes'"):
        await attach(tmp_path / "notes.db", schema="tasks", home=node.home.path).__aenter__()
    with pytest.raises(ConfigError, match="a node's own"):
        await attach(node.home.database_path, schema="notes", home=node.home.path).__aenter__()
    async with serving_node(tmp_path / "other"):
        with pytest.raises(ConfigError, match="another mesh"):
            await attached(tmp_path, tmp_path / "other").__aenter__()
    with pytest.raises(TransportError, match="meshnode up"):
        await attached(tmp_path, tmp_path / "nobody", patience_s=0).__aenter__()


@pytest.mark.parametrize("verb", ["adopt", "release"])
async def test_its_file_is_neither_adopted_nor_released(verb: str, tmp_path: Path) -> None:
    home, file = tmp_path / "n", tmp_path / "notes.db"
    async with serving_node(home), attached(tmp_path, home) as app:
        await (await app.table("items", Item).create(key="id")).upsert(Item("a", "Milk"))
    refused = await asyncio.to_thread(call, home, verb, str(file))
    assert refused.code == 1
    assert "attached app" in refused.err
    async with serving_node(home), attached(tmp_path, home) as app:
        assert await rows_of(app) == {"a": Item("a", "Milk")}


async def test_a_table_of_the_app_s_own_is_not_taken(node: Node, tmp_path: Path) -> None:
    await node.add_table("notes.items", {"id": "TEXT"}, {"title": "TEXT"})
    with closing(sqlite3.connect(tmp_path / "notes.db")) as plain:
        plain.execute("CREATE TABLE items (id TEXT PRIMARY KEY, mine TEXT)")
        plain.execute("CREATE TABLE settings (name TEXT)")
        plain.execute("INSERT INTO items VALUES ('a', 'kept')")
        plain.commit()
        with pytest.raises(RegistrationError, match="of its own"):
            await attached(tmp_path, node.home.path).__aenter__()
        assert plain.execute("SELECT * FROM items").fetchall() == [("a", "kept")]
        plain.execute("DROP TABLE items")
    async with attached(tmp_path, node.home.path) as app:
        async for shown in app.live("SELECT count(*) AS n FROM settings"):
            assert shown == [{"n": 0}]
            break


async def test_columns_that_the_node_gains_and_tables_that_the_app_lost_come_here(node: Node, tmp_path: Path) -> None:
    async with attached(tmp_path, node.home.path) as app:
        items = await app.table("items", Item).create(key="id")
        await items.upsert(Item("a", "Milk"))
        with closing(sqlite3.connect(node.home.database_path)) as plain:
            plain.execute('ALTER TABLE "notes.items" ADD COLUMN due TEXT')
        await node.put("notes.items", {"id": "a"}, {"due": "today"})
        async with asyncio.timeout(PATIENCE_S):
            while await app.table("items").get("a") != {"id": "a", "title": "Milk", "number": 0, "due": "today"}:
                await app.storage.changed.wait(app.storage.changed.listen(), 0.1)
    with closing(sqlite3.connect(tmp_path / "notes.db")) as plain:
        plain.execute("DROP TABLE items")
    async with attached(tmp_path, node.home.path) as app:
        assert await rows_of(app) == {"a": Item("a", "Milk")}


async def test_values_are_kept_as_the_node_keeps_them(node: Node, tmp_path: Path) -> None:
    with closing(sqlite3.connect(node.home.database_path)) as plain:
        plain.execute(
            'CREATE TABLE "notes.strict" (id INT NOT NULL, k ANY NOT NULL, v ANY, r REAL, PRIMARY KEY (id, k)) STRICT'
        )
        plain.execute('CREATE TABLE "notes.loose" (id INT NOT NULL PRIMARY KEY, v NUMERIC, b)')
        plain.execute('CREATE TABLE "notes.own" (id INTEGER PRIMARY KEY, v TEXT)')
        plain.commit()
    for name in ("strict", "loose"):
        await node.add_table(f"notes.{name}", {}, {})
    await node.add_table("notes.own", {}, {}, own_numbers=True)
    await node.put("notes.strict", {"id": 1, "k": "1"}, {"v": "2", "r": 3.0})
    await node.put("notes.loose", {"id": "text"}, {"v": 1.5, "b": b"\0\xff"})
    await node.put("notes.loose", {"id": 7}, {"v": "x", "b": "1"})
    await node.put("notes.own", {"id": 2**62}, {"v": "x"})
    async with attached(tmp_path, node.home.path) as app:
        for name in ("strict", "loose", "own"):
            here = sorted([repr(row) async for row in app.table(name).rows()])
            assert here == sorted(repr(row.key | row.columns) for row in await node.rows(f"notes.{name}"))


async def test_a_row_that_is_forgotten_leaves_the_copy(node: Node, tmp_path: Path) -> None:
    async with attached(tmp_path, node.home.path) as app:
        items = await app.table("items", Item).create(key="id")
        await items.upsert(Item("a", "unforgettable-title"), Item("b"))
        await node.forget("notes.items", {"id": "a"})
        await shows(app, lambda found: found.keys() == {"b"})
        assert [change.key async for change in _so_far(app)] == [{"id": "b"}]
    assert b"unforgettable-title" not in (tmp_path / "notes.db").read_bytes()


async def test_an_app_that_hangs_costs_the_node_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads nothing: pages are made as they are read, peers get their acknowledgements, other apps their rows."""
    told: list[int] = []
    page_of = projecting._next_page

    def counted(*arguments: object) -> tuple[ProjectionPage | None, object]:
        page, reached = page_of(*arguments)  # type: ignore[arg-type]
        told.append(0 if page is None else len(page.changes))
        return page, reached

    ports = free_port(), free_port()
    async with serving_node(tmp_path / "a", loopback(port=ports[0], name="a")) as a:
        await join(tmp_path / "b", (await a.invite()).invite, name="b")
        async with Node(tmp_path / "b", config=loopback(ports[0], port=ports[1], name="b")) as b:
            await linked(a, b)
            for node in (a, b):
                await node.add_table("notes.items", {"id": "TEXT"}, {"title": "TEXT", "number": "INTEGER"})
            monkeypatch.setattr(projecting, "_next_page", counted)
            reader, writer = await asyncio.open_unix_connection(str(a.home.socket_path))
            body = b'{"schema": "notes"}'
            writer.write(
                b"POST /v1/project HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
                % len(body)
            )
            writer.write(body)
            await reader.readuntil(b'"current":true')  # the first page; from here on it hangs
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            before = len(told)
            for number in range(40):
                await b.put("notes.items", {"id": f"{number:03}"}, {"title": "x" * 200_000, "number": number})
            await b.wait_synced("a", timeout_s=PATIENCE_S)
            assert sum(told[before:]) < 20  # what the buffers of a socket take, and a page
            monkeypatch.setattr(projecting, "_next_page", page_of)
            async with attached(tmp_path, a.home.path) as app:
                assert len(await rows_of(app)) == 40
                await app.table("items", Item).upsert(Item("one more"))
            writer.close()


async def test_what_is_not_attached_says_so(node: Node, tmp_path: Path) -> None:
    app = attached(tmp_path, node.home.path)
    with pytest.raises(ClosedError, match="not attached"):
        await app.tables()
    async with app:
        changes = app.changes()
        following = asyncio.ensure_future(take(changes, 1))
        await asyncio.sleep(0)
    with pytest.raises((ClosedError, StopAsyncIteration, RuntimeError)):
        await asyncio.wait_for(following, PATIENCE_S)
    with pytest.raises(ClosedError, match="once"):
        await app.__aenter__()


async def test_threads_have_it_too(node: Node, tmp_path: Path) -> None:
    await asyncio.to_thread(_from_a_thread, node.home.path, tmp_path / "notes.db")


def _from_a_thread(home: Path, database: Path) -> None:
    with BlockingAttached.open(database, schema="notes", home=home) as app:
        items = app.table("items", Item).create(key="id")
        with app.transaction() as rows:
            rows.upsert(items, Item("a", "Milk"))
        assert items.get("a") == Item("a", "Milk")
        with app.live("SELECT id FROM items") as shown:
            assert next(shown) == [{"id": "a"}]
        told: queue.SimpleQueue[str] = queue.SimpleQueue()
        items.on_changes(lambda change: told.put(change.key["id"]), since=0)
        assert told.get(timeout=PATIENCE_S) == "a"
        items.upsert(Item("b"))
        assert told.get(timeout=PATIENCE_S) == "b"
        app.caught_up()
        assert ([view.table for view in app.tables()], app.peers()) == (["items"], [])
    with pytest.raises(ClosedError):
        items.get("a")
