"""An encrypted database: without the key no byte of an event or a row is in any file, and all else is as ever."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlcipher3 import dbapi2 as sqlcipher
from support.command import meshnode, meshnode_afresh, run_code
from support.nodes import PATIENCE_S, TABLE, add_notes, free_port, linked, loopback, until

from meshnode import Home, Node, join, open_database
from meshnode.errors import IdentityError, NotFoundError, StoreError
from meshnode.model.site import SiteKey
from meshnode.node import identity
from meshnode.node.databases import database_of, is_encrypted
from meshnode.node.moving import export_device, import_device
from meshnode.store.database import Database

WORD = "correct horse"
pytestmark = pytest.mark.usefixtures("cheap_passphrases")
MARK = "marked-text"  # in every value and key of every row here


def secrets_of(home: Home) -> list[bytes]:
    """What must not be readable: names, values, and pieces of every event, row state and record."""
    pieces = [MARK.encode(), TABLE.encode(), b"meshnode_log", b"SQLite format"]
    with closing(open_database(home)) as connection:
        for sql in (
            "SELECT event FROM meshnode_log",
            "SELECT state FROM meshnode_rows",
            "SELECT key FROM meshnode_rows",
            "SELECT record FROM meshnode_records",
            "SELECT secret FROM meshnode_invites",
            "SELECT frame FROM meshnode_staged",
        ):
            for (data,) in connection.execute(sql).fetchall():
                pieces += [data[at : at + 16] for at in range(0, len(data) - 15, max(16, len(data) // 4))]
    return pieces


def leaks(home: Home, pieces: list[bytes]) -> list[str]:
    """Files beside the keys and settings in which one of the pieces can be read."""
    files = {file: file.read_bytes() for file in home.path.iterdir() if file.name.startswith(("meshnode.db", "."))}
    assert files
    return [f"{file.name}: {piece!r}" for file, data in files.items() for piece in pieces if piece in data]


async def worked(node: Node, peer: Node) -> None:
    """Everything that writes: own rows, a peer's, an import, an invite, a deletion, an eviction, forgetting."""
    await add_notes(node, peer)
    await linked(node, peer)
    for number in range(40):
        async with node.transaction() as rows:
            rows.put(TABLE, {"id": f"{MARK}-{number}"}, {"title": f"{MARK} {number}" * 9})
    await peer.put(TABLE, {"id": f"{MARK}-peer"}, {"title": MARK})
    await node.remove(TABLE, {"id": f"{MARK}-7"})
    await node.invite()
    assert (await node.wait(timeout_s=PATIENCE_S)).complete
    assert (await peer.wait(timeout_s=PATIENCE_S)).complete


@pytest.mark.parametrize("encrypt", [True, False])
async def test_no_file_has_a_byte_of_an_event_or_a_row(tmp_path: Path, encrypt: bool) -> None:
    """The home that is not encrypted shows that the search finds what is there."""
    ports = free_port(), free_port()
    home = Home(tmp_path / "n", encrypt=encrypt)
    async with Node(home, config=loopback(port=ports[0], name="n")) as node:
        await join(tmp_path / "plain", (await node.invite()).invite, name="plain")
        async with Node(tmp_path / "plain", config=loopback(ports[0], port=ports[1])) as peer:
            await worked(node, peer)
            assert (home.path / "meshnode.db-wal").stat().st_size > 0
            assert bool(leaks(home, secrets_of(home))) != encrypt, "while it runs"
            await node.forget(TABLE, {"id": f"{MARK}-8"})
            await peer.forget(TABLE, {"id": f"{MARK}-8"})
            pieces = secrets_of(home)
            assert bool(leaks(home, pieces)) != encrypt, "after the file was written anew"
            assert (await node.check()).count == 0
            assert (await node.digest())[0].digest == (await peer.digest())[0].digest
    with closing(database_of(home).writer()) as database:
        (home.path / ".copy").touch()
        database.copy_into(home.path / ".copy")
    assert bool(leaks(home, pieces)) != encrypt, "in a backup, and at rest"
    assert is_encrypted(home.database_path) == encrypt
    again = await meshnode("check", home=home.path)
    assert (again.code, "clean" in again.out) == (0, True), again
    assert ("(encrypted)" in (await meshnode("status", home=home.path)).out) == encrypt


def temporary_files() -> set[str]:
    """SQLite's temporary files that this process has open; they have no name any more."""
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except OSError:
            continue
    return {link for link in links if "etilqs" in link}


def spilled(connection: Any) -> bool:
    """Whether sorting, a savepoint or VACUUM put something into a temporary file."""
    seen: set[str] = set()

    def look() -> int:
        seen.update(temporary_files())
        return 0

    connection.execute("CREATE TABLE much (a, b)")
    numbers = "WITH RECURSIVE n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 40000)"
    connection.execute(f"{numbers} INSERT INTO much SELECT i, hex(randomblob(200)) FROM n")
    connection.set_progress_handler(look, 50_000)
    connection.execute("PRAGMA cache_size = 50")
    connection.execute("SELECT count(*) FROM (SELECT * FROM much ORDER BY b LIMIT -1 OFFSET 1)").fetchall()
    connection.execute("BEGIN")
    connection.execute("SAVEPOINT s")
    connection.execute("UPDATE much SET b = b || 'x'")
    seen.update(temporary_files())
    connection.execute("ROLLBACK TO s")
    connection.execute("COMMIT")
    connection.execute("VACUUM")
    return bool(seen)


def test_what_sqlite_puts_aside_stays_in_memory(tmp_path: Path) -> None:
    key = SiteKey.from_seed(bytes(32)).database_key()
    with closing(Database(tmp_path / "e.db", sqlite=sqlcipher, key=key)) as database:
        assert not spilled(database._connection)
    with closing(Database(tmp_path / "p.db", sqlite=sqlite3)) as database:
        database._connection.execute("PRAGMA temp_store = FILE")
        assert spilled(database._connection), "nothing of this needed a temporary file"


async def test_reading_takes_the_key_where_no_node_runs(tmp_path: Path) -> None:
    home = tmp_path / "n"
    fd, word = ("--passphrase-fd", "0"), WORD.encode()
    assert (await meshnode("init", "--encrypt", *fd, home=home, stdin=word)).code == 0
    table = ("table", "add", "notes", "--key", "id:TEXT", "--column", "t:TEXT")
    assert (await meshnode(*table, *fd, home=home, stdin=word)).code == 0
    assert (await meshnode("put", "notes", "id=1", "t=x", *fd, home=home, stdin=word)).code == 0
    shown = await meshnode("rows", "notes", "--output", "json", *fd, home=home, stdin=word)
    assert shown.json == [{"id": "1", "t": "x"}]
    for stdin, says in ((b"", "no passphrase to read"), (b"wrong", "another passphrase")):
        refused = await meshnode("rows", "notes", *fd, home=home, stdin=stdin)
        assert (refused.code > 0, says in refused.err, refused.out) == (True, True, ""), refused
    refused = await meshnode("status", home=home)
    assert (refused.code, "--passphrase-fd" in refused.err) == (1, True), refused


async def test_a_verb_that_reads_before_it_writes_takes_the_passphrase_once(tmp_path: Path) -> None:
    home = tmp_path / "n"
    fd, word = ("--passphrase-fd", "0"), WORD.encode()
    assert (await meshnode("init", "--name", "desk", "--encrypt", *fd, home=home, stdin=word)).code == 0
    table = ("table", "add", "notes", "--key", "id:TEXT", "--column", "t:TEXT")
    assert (await meshnode(*table, *fd, home=home, stdin=word)).code == 0
    for verb in (("table", "class", "notes", "private"), ("leave", "--yes")):
        done = await meshnode(*verb, *fd, home=home, stdin=word)
        assert (done.code, "no passphrase" in done.err) == (0, False), done
    retired = await meshnode("retire", "desk", "--yes", *fd, home=home, stdin=word)
    assert "retired" in retired.err, retired


async def test_another_key_opens_nothing_and_says_so(tmp_path: Path) -> None:
    for name in ("a", "b"):
        assert (await meshnode("init", "--encrypt", home=tmp_path / name)).code == 0
    os.replace(tmp_path / "a" / "site.key", tmp_path / "b" / "site.key")
    for verb in (["status"], ["invite"], ["up"]):
        refused = await meshnode(*verb, home=tmp_path / "b")
        assert (refused.code, "another key" in refused.err) == (1, True), refused
        assert refused.err.count("\n") == 1, refused  # nothing of the library's own
    (tmp_path / "b" / "meshnode.db").write_bytes(bytes(range(256)) * 16)
    damaged = await meshnode("status", home=tmp_path / "b")
    assert (damaged.code, "damaged" in damaged.err) == (1, True), damaged


async def test_the_missing_extra_is_named(tmp_path: Path) -> None:
    (tmp_path / "without" / "sqlcipher3").mkdir(parents=True)
    (tmp_path / "without" / "sqlcipher3" / "__init__.py").write_text("raise ImportError('not installed')")
    env = {"PYTHONPATH": os.pathsep.join(filter(None, [str(tmp_path / "without"), os.environ.get("PYTHONPATH")]))}
    refused = await meshnode_afresh("init", "--encrypt", home=tmp_path / "n", env=env)
    assert (refused.code, "meshnode[encrypted]" in refused.err) == (2, True), refused
    assert not Home(tmp_path / "n").founded
    assert (await meshnode("init", "--encrypt", home=tmp_path / "n")).code == 0
    refused = await meshnode_afresh("status", home=tmp_path / "n", env=env)
    assert (refused.code, "meshnode[encrypted]" in refused.err) == (1, True), refused


async def test_an_application_opens_its_tables_through_the_package(tmp_path: Path) -> None:
    for name, encrypt, module in (("e", True, sqlcipher), ("p", False, sqlite3)):
        home = Home(tmp_path / name, passphrase=WORD, encrypt=encrypt)
        async with Node(home, config=loopback()) as node:
            await add_notes(node)
            await node.put(TABLE, {"id": "1"}, {"title": "x"})
            with closing(open_database(home)) as connection:
                assert isinstance(connection, module.Connection)
                connection.execute("CREATE TABLE own (a)")
                connection.execute("INSERT INTO own VALUES (1)")
                connection.commit()
                assert connection.execute(f"SELECT title FROM {TABLE}").fetchall() == [("x",)]
            with (
                closing(open_database(Home(home.path, passphrase=WORD), read_only=True)) as connection,
                pytest.raises(module.OperationalError, match="readonly"),
            ):
                connection.execute("INSERT INTO own VALUES (2)")
    with pytest.raises(NotFoundError, match="meshnode init"):
        open_database(tmp_path / "nowhere")
    with pytest.raises(IdentityError, match="another passphrase"):
        open_database(Home(tmp_path / "e", passphrase="other"))
    with closing(open_database(tmp_path / "p")) as connection:  # nothing is opened by a key
        assert connection.execute("SELECT a FROM own").fetchall() == [(1,)]


# Ends the process before, or behind, the one moment in which the database gets its other key.
DIES = """
import os, sys, asyncio
from meshnode import Home
from meshnode.node import identity
from meshnode.store.database import Database
when, folder, invite = sys.argv[1:]
wanted = Database.rekey
def dies(database, key):
    if when == "behind":
        wanted(database, key)
    os._exit(9)
Database.rekey = dies
asyncio.run(identity.renew(Home(folder), invite))
"""


@pytest.mark.parametrize("when", ["before", "behind", "never"])
async def test_another_device_has_another_key(tmp_path: Path, when: str) -> None:
    port = free_port()
    async with Node(tmp_path / "a", config=loopback(port=port, name="a")) as a:
        await add_notes(a)
        home = Home(tmp_path / "b", encrypt=True)
        await join(home, (await a.invite()).invite, name="b")
        before, invite = home.site_key(), (await a.invite()).invite
        if when == "never":
            await identity.renew(home, invite)
        else:
            assert (await run_code(DIES, when, str(home.path), invite)).code == 9
            assert (await meshnode("status", home=home.path)).code == 0  # reading settles nothing, and reads
        async with Node(home, config=loopback(port)) as b:
            assert (await b.status()).publishing
            await add_notes(b)
            await b.put(TABLE, {"id": "1"}, {"title": MARK})
            await linked(b, a)

            async def arrived() -> bool:
                return await a.get(TABLE, {"id": "1"}) is not None

            await until(a, arrived)
    assert home.site_key() != before
    assert database_of(home).key == home.site_key().database_key() != before.database_key()
    assert not leaks(home, secrets_of(home))


def taken(folder: Path, file: Path, *, encrypt: bool = False) -> Home:
    """Import as the verb does."""
    home = Home(folder, passphrase=WORD, encrypt=encrypt)
    home.prepare()
    import_device(home, file)
    return home


def kept() -> Iterator[tuple[str, str]]:
    yield from ((MARK, MARK), ("2", "new"))


@pytest.mark.parametrize(("encrypted", "encrypt"), [(True, False), (True, True), (False, True)])
async def test_a_device_moves_encrypted_or_becomes_so(tmp_path: Path, encrypted: bool, encrypt: bool) -> None:
    old = Home(tmp_path / "old", encrypt=encrypted)
    async with Node(old, config=loopback(name="old")) as node:
        await add_notes(node)
        await node.put(TABLE, {"id": MARK}, {"title": MARK})
    with closing(open_database(old)) as connection:
        connection.execute("PRAGMA user_version = 7")
    export_device(old, tmp_path / "file", WORD)
    new = taken(tmp_path / "new", tmp_path / "file", encrypt=encrypt)
    assert is_encrypted(new.database_path)
    async with Node(new, config=loopback()) as node:
        assert (await node.status()).publishing
        await node.put(TABLE, {"id": "2"}, {"title": "new"})
        assert sorted((row.key["id"], row.columns["title"]) for row in await node.rows(TABLE)) == sorted(kept())
        assert (await node.check()).count == 0
        assert not leaks(new, secrets_of(new))
    with closing(open_database(new)) as connection:
        assert connection.execute("PRAGMA user_version").fetchall() == [(7,)]
    assert sorted(file.name for file in new.path.glob("*mov*")) == []


async def test_an_applications_plain_database_is_not_encrypted_behind_its_back(tmp_path: Path) -> None:
    (tmp_path / "n").mkdir(mode=0o700)
    (tmp_path / "n" / "config.toml").write_text('database = "../app.db"\n')
    with closing(sqlite3.connect(tmp_path / "app.db")) as app:
        app.execute("CREATE TABLE own (a)")
    refused = await meshnode("init", "--encrypt", home=tmp_path / "n")
    assert (refused.code, "not encrypted" in refused.err) == (2, True), refused
    with closing(sqlite3.connect(tmp_path / "app.db")) as app:
        assert app.execute("SELECT name FROM sqlite_master").fetchall() == [("own",)]


async def test_a_home_that_was_made_plain_is_not_taken_for_encrypted(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=loopback()):
        pass
    home = Home(tmp_path / "n", encrypt=True)
    with pytest.raises(StoreError, match="without encryption"):
        async with Node(home, config=loopback()):
            pass
    with pytest.raises(StoreError, match="without encryption"):
        open_database(home)


def test_a_backup_is_opened_by_the_key_and_by_nothing_else(tmp_path: Path) -> None:
    key = SiteKey.from_seed(bytes(32)).database_key()
    with closing(Database(tmp_path / "e.db", sqlite=sqlcipher, key=key)) as database:
        with database.transaction() as tx:
            tx.execute("CREATE TABLE t (a)")
        (tmp_path / "copy").touch()
        database.copy_into(tmp_path / "copy")
    Database(tmp_path / "copy", sqlite=sqlcipher, key=key).close()
    for other in (bytes(32), None):
        with pytest.raises(StoreError, match="cannot open"):
            Database(tmp_path / "copy", sqlite=sqlcipher, key=other)
    with pytest.raises(StoreError, match="cannot open"):
        Database(tmp_path / "copy", sqlite=sqlite3)
    with pytest.raises(StoreError, match="32 bytes"):
        Database(tmp_path / "copy", sqlite=sqlcipher, key=b"short")
