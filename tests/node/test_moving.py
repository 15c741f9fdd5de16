"""A device moves in one file: at no moment does it live in two homes, or in none (profile §3, §8)."""

from __future__ import annotations

import resource
import signal
import sqlite3
import stat
from contextlib import suppress
from pathlib import Path

import pytest
from support.command import meshnode, run_code
from support.nodes import PATIENCE_S, TABLE, add_notes, free_port, linked, loopback, until

from meshnode import Home, Node, join
from meshnode.errors import IdentityError, MeshError, NotFoundError, StoreError, UsageError
from meshnode.node import moving
from meshnode.node.keyfile import is_protected
from meshnode.node.moving import export_device, import_device

WORD = "correct horse"
FD = ("--passphrase-fd", "0")
pytestmark = pytest.mark.usefixtures("cheap_passphrases")


async def device(home: Path, *, passphrase: str | None = None) -> None:
    """A founded home with one row."""
    async with Node(Home(home, passphrase=passphrase), config=loopback(name="old")) as node:
        await add_notes(node)
        await node.put(TABLE, {"id": "1"}, {"title": "kept"})


async def titles(home: Path, passphrase: str | None = None) -> list[str]:
    """What a node that starts there has, after it wrote one more."""
    async with Node(Home(home, passphrase=passphrase), config=loopback()) as node:
        assert (await node.status()).publishing
        await node.put(TABLE, {"id": "2"}, {"title": "new"})
        assert (await node.check()).count == 0
        return [str(row.columns["title"]) for row in await node.rows(TABLE)]


def taken(home: Path, file: Path, passphrase: str = WORD) -> None:
    """Import as the verb does."""
    new = Home(home, passphrase=passphrase)
    new.prepare()
    import_device(new, file)


async def test_a_device_with_no_other_in_its_mesh_takes_its_rows_along(tmp_path: Path) -> None:
    old, new, file = tmp_path / "old", tmp_path / "new", tmp_path / "usb" / "device"
    file.parent.mkdir()
    await device(old)
    words, site = Home(old).recovery_key(), Home(old).site_key()
    left = await meshnode("identity", "export", str(file), *FD, home=old, stdin=WORD.encode())
    assert (left.code, "identity import FILE" in left.out) == (0, True), left
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]
    assert b"kept" not in file.read_bytes()
    assert not list(old.glob(".*"))
    for verb in (["put", "notes", "id=3", "title=x"], ["up"], ["invite"], ["identity", "export", "other"]):
        refused = await meshnode(*verb, *FD, home=old, stdin=WORD.encode())
        assert (refused.code, str(file) in refused.err, "identity resume" in refused.err) == (1, True, True), refused
    shown = await meshnode("status", home=old)
    assert "Nothing is written or sent here: this device was moved on" in shown.out
    assert (await meshnode("get", "notes", "id=1", home=old)).code == 0

    came = await meshnode("identity", "import", str(file), *FD, home=new, stdin=WORD.encode())
    assert (came.code, "This device is 'old' now" in came.out) == (0, True), came
    home = Home(new)
    assert (home.site_key(), home.recovery_key()) == (site, words)
    assert home.config.name == "old"
    assert await titles(new) == ["kept", "new"]
    again = await meshnode("identity", "import", str(file), *FD, home=new, stdin=WORD.encode())
    assert (again.code, "already" in again.err) == (2, True)


async def test_the_mesh_goes_on_with_the_device_in_its_new_home(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    async with Node(tmp_path / "b", config=loopback(port=ports[1], name="b")) as b:
        await add_notes(b)
        await join(tmp_path / "old", (await b.invite()).invite, name="old")
        async with Node(tmp_path / "old", config=loopback(ports[1], port=ports[0])) as old:
            await add_notes(old)
            await old.put(TABLE, {"id": "1"}, {"title": "before"})
            await linked(old, b)
            assert (await old.wait(timeout_s=PATIENCE_S)).complete
        await b.put(TABLE, {"id": "2"}, {"title": "meanwhile"})
        export_device(Home(tmp_path / "old"), tmp_path / "file", WORD)
        taken(tmp_path / "new", tmp_path / "file")
        async with Node(tmp_path / "new", config=loopback(ports[1], port=ports[0])) as new:
            await linked(new, b)
            await new.put(TABLE, {"id": "3"}, {"title": "after"})

            async def equal() -> bool:
                rows = [[row.columns.get("title") for row in await node.rows(TABLE)] for node in (b, new)]
                return rows == [["before", "meanwhile", "after"]] * 2

            await until(b, equal)
            assert (await b.wait(timeout_s=PATIENCE_S)).complete
            for node in (b, new):
                assert (await node.check()).count == 0
                assert [
                    each.kind for each in (await node.status()).notices if each.kind in ("twin", "rolled-back")
                ] == []
            assert [peer.short for peer in await b.peers()] == [(await new.status()).short]


async def test_a_protected_device_stays_protected(tmp_path: Path) -> None:
    await device(tmp_path / "old", passphrase=WORD)
    with pytest.raises(IdentityError, match="under a passphrase"):
        export_device(Home(tmp_path / "old"), tmp_path / "file", None)
    export_device(Home(tmp_path / "old", passphrase=WORD), tmp_path / "file", None)
    taken(tmp_path / "new", tmp_path / "file")
    for key in ("site.key", "recovery.key"):
        assert is_protected(tmp_path / "new" / key)
    assert await titles(tmp_path / "new", WORD) == ["kept", "new"]


async def test_before_the_new_home_ran_the_old_one_takes_the_device_back(tmp_path: Path) -> None:
    await device(tmp_path / "old")
    export_device(Home(tmp_path / "old"), tmp_path / "file", WORD)
    with pytest.raises(IdentityError, match="identity resume"):
        async with Node(tmp_path / "old", config=loopback()):
            pass
    assert (await meshnode("identity", "resume", home=tmp_path / "old")).code == 0
    assert await titles(tmp_path / "old") == ["kept", "new"]


async def test_what_was_left_behind_can_become_another_device(tmp_path: Path) -> None:
    port = free_port()
    await device(tmp_path / "old")
    site = Home(tmp_path / "old").site_key().site
    export_device(Home(tmp_path / "old"), tmp_path / "file", WORD)
    taken(tmp_path / "new", tmp_path / "file")
    async with Node(tmp_path / "new", config=loopback(port=port)) as new:
        invite = (await new.invite()).invite
        renewed = await meshnode("identity", "renew", "-", home=tmp_path / "old", stdin=invite.encode())
        assert renewed.code == 0, renewed
    assert Home(tmp_path / "old").site_key().site != site
    assert await titles(tmp_path / "old") == ["kept", "new"]


async def test_an_applications_database_moves_into_the_home(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir(mode=0o700)
    (tmp_path / "old" / "config.toml").write_text('name = "old"\ndatabase = "../app.db"\nlisten = "127.0.0.1"\n')
    with sqlite3.connect(tmp_path / "app.db") as app:
        app.execute("CREATE TABLE own (a)")
        app.execute("INSERT INTO own VALUES ('mine')")
    app.close()
    await device(tmp_path / "old")
    export_device(Home(tmp_path / "old"), tmp_path / "file", WORD)
    taken(tmp_path / "new", tmp_path / "file")
    home = Home(tmp_path / "new")
    assert (home.config.listen, home.database_path) == ("127.0.0.1", home.path / "meshnode.db")
    with sqlite3.connect(home.database_path) as app:
        assert app.execute("SELECT a FROM own").fetchall() == [("mine",)]
    app.close()
    assert stat.S_IMODE(home.database_path.stat().st_mode) == 0o600
    assert await titles(tmp_path / "new") == ["kept", "new"]


async def test_a_file_that_is_none_or_damaged_leaves_no_node(tmp_path: Path) -> None:
    await device(tmp_path / "old")
    export_device(Home(tmp_path / "old"), tmp_path / "file", WORD)
    data = (tmp_path / "file").read_bytes()
    cases = {
        "wrong passphrase": (data, "wrong", "another passphrase"),
        "no device": (b"PK" + data, WORD, "no device"),
        "cut short": (data[: len(data) // 2], WORD, "cut short"),
        "damaged": (data[:-1] + bytes([data[-1] ^ 1]), WORD, "damaged"),
        "empty": (b"", WORD, "no device"),
    }
    for name, (content, passphrase, says) in cases.items():
        (tmp_path / "case").write_bytes(content)
        with pytest.raises(IdentityError, match=says):
            taken(tmp_path / "new", tmp_path / "case", passphrase)
        assert not Home(tmp_path / "new").founded, name
        left = {path.name for path in (tmp_path / "new").iterdir()}
        assert left <= {"unfinished"}, name
    with pytest.raises(NotFoundError, match="no file"):
        taken(tmp_path / "new", tmp_path / "absent")
    async with Node(tmp_path / "new", config=loopback()) as node:  # a mesh of its own, with a key of its own
        assert (await node.status()).site != Home(tmp_path / "old").site_key().site.hex()


@pytest.mark.parametrize("target", ["there", "no/folder/file"])
async def test_a_file_that_cannot_be_written_moves_nothing(tmp_path: Path, target: str) -> None:
    await device(tmp_path / "old")
    (tmp_path / "there").write_text("mine")
    with pytest.raises(UsageError, match=r"already|cannot write"):
        export_device(Home(tmp_path / "old"), tmp_path / target, WORD)
    assert (tmp_path / "there").read_text() == "mine"
    assert await titles(tmp_path / "old") == ["kept", "new"]


async def test_a_name_that_may_not_be_on_disk_yet_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await device(tmp_path / "old")
    calls = iter([None, OSError(5, "Input/output error")])

    def sync(_folder: Path) -> None:
        error = next(calls)
        if error is not None:
            raise error

    monkeypatch.setattr(moving, "sync_folder", sync)
    assert export_device(Home(tmp_path / "old"), tmp_path / "file", WORD).bytes == (tmp_path / "file").stat().st_size
    with pytest.raises(IdentityError, match="moved"):
        await titles(tmp_path / "old")


async def test_a_full_disk_names_the_file_that_does_not_fit(tmp_path: Path) -> None:
    await device(tmp_path / "old")
    export_device(Home(tmp_path / "old"), tmp_path / "file", WORD)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        with pytest.raises(StoreError, match=r"cannot write the database .*meshnode\.db"):
            taken(tmp_path / "new", tmp_path / "file")
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["unfinished"], "rows are left"
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    taken(tmp_path / "new", tmp_path / "file")
    assert await titles(tmp_path / "new") == ["kept", "new"]


async def test_a_copy_that_has_not_chosen_does_not_move(tmp_path: Path) -> None:
    await device(tmp_path / "old")
    (tmp_path / "old" / "incarnation").write_text("ab" * 16)
    with pytest.raises(IdentityError, match="identity resume"):
        export_device(Home(tmp_path / "old"), tmp_path / "file", WORD)
    assert not (tmp_path / "file").exists()


# Ends the process where the named function is called for the nth time, as a power cut would.
DIES = """
import os, sys
from pathlib import Path
from meshnode import Home
from meshnode.node import home, moving
place, count, what, folder, file = sys.argv[1:]
owner, _, name = place.rpartition(".")
owner = {"moving": moving, "Path": Path, "Home": home.Home}[owner]
wanted, left = getattr(owner, name), int(count)
def dies(*arguments, **named):
    global left
    left -= 1
    if left == 0:
        os._exit(9)
    return wanted(*arguments, **named)
setattr(owner, name, dies)
new = Home(folder, passphrase="correct horse", encrypt=what == "encrypt")
if what == "export":
    moving.export_device(new, Path(file), "correct horse")
else:
    new.prepare()
    moving.import_device(new, Path(file))
"""


async def dies(place: str, count: int, what: str, home: Path, file: Path) -> None:
    assert (await run_code(DIES, place, str(count), what, str(home), str(file))).code == 9


@pytest.mark.parametrize(
    ("place", "count", "there"),
    [
        ("moving.seal", 1, False),
        ("moving.mark_moved", 1, False),
        ("Path.rename", 1, False),  # marked, and the file has no name yet
        ("moving.sync_folder", 1, False),
        ("moving.sync_folder", 2, True),
    ],
)
async def test_killed_while_it_leaves_the_device_lives_in_one_place(
    tmp_path: Path, place: str, count: int, there: bool
) -> None:
    old, file = tmp_path / "old", tmp_path / "usb" / "file"
    file.parent.mkdir()
    await device(old)
    await dies(place, count, "export", old, file)
    assert file.exists() == there
    with suppress(MeshError):
        await titles(old)
    assert not list(old.glob(".moving.*")), "a copy of the rows is left"
    if there:
        with pytest.raises(IdentityError, match="moved"):
            await titles(old)
        taken(tmp_path / "new", file)
        assert await titles(tmp_path / "new") == ["kept", "new"]
    else:
        assert await titles(old) == ["kept", "new"]
        export_device(Home(old), file, WORD)
        taken(tmp_path / "new", file)
        assert await titles(tmp_path / "new") == ["kept", "new"]


async def test_and_killed_again_while_it_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, file = tmp_path / "old", tmp_path / "file"
    await device(old)
    await dies("Path.rename", 1, "export", old, file)
    wanted = Path.unlink

    def unlink(path: Path, missing_ok: bool = False) -> None:
        wanted(path, missing_ok)
        if path == old / "moved" or path.name.startswith(".file."):
            raise RuntimeError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", unlink)
        with pytest.raises(RuntimeError, match="killed"):
            await titles(old)
    assert await titles(old) == ["kept", "new"]


@pytest.mark.parametrize(
    ("place", "count", "what"),
    [
        ("moving._settle", 1, "import"),
        ("moving.encrypt_into", 1, "encrypt"),
        ("moving.write_key", 1, "import"),
        ("moving.write_key", 2, "import"),
        ("Home.finish", 1, "import"),
    ],
)
async def test_killed_while_it_arrives_the_import_is_done_again(
    tmp_path: Path, place: str, count: int, what: str
) -> None:
    await device(tmp_path / "old")
    site = Home(tmp_path / "old").site_key().site
    export_device(Home(tmp_path / "old"), tmp_path / "file", WORD)
    await dies(place, count, what, tmp_path / "new", tmp_path / "file")
    await dies(place, count, what, tmp_path / "other", tmp_path / "file")
    taken(tmp_path / "new", tmp_path / "file")
    assert await titles(tmp_path / "new") == ["kept", "new"]
    async with Node(tmp_path / "other", config=loopback()) as node:  # no half of the device gets into another mesh
        assert (await node.status()).site != site.hex()
    assert not [*(tmp_path / "new").glob(".*"), *(tmp_path / "other").glob(".*")]


async def test_a_mark_that_cannot_be_read_stops_the_home_all_the_same(tmp_path: Path) -> None:
    await device(tmp_path / "old")
    (tmp_path / "old" / "moved").write_bytes(b"\xff")
    with pytest.raises(MeshError, match="an unknown day"):
        await titles(tmp_path / "old")
    assert (await meshnode("identity", "resume", home=tmp_path / "old")).code == 0
    assert await titles(tmp_path / "old") == ["kept", "new"]
