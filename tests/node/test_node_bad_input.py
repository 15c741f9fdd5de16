"""Whatever a person or a file gets wrong ends in one clear line and an exit code, through the program itself."""

from __future__ import annotations

import base64
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import meshnode
from support.nodes import loopback

from meshnode import Node
from meshnode.cli.main import main
from meshnode.codec import cbor
from meshnode.codec.digest import blake3_256
from meshnode.model.invite import PREFIX, Invite, parse_invite_untrusted

Capture = pytest.CaptureFixture[str]
FOREVER_MS = 2**52
INVITE = Invite(bytes(16), b"s" * 16, b"f" * 32, b"x" * 16, ("127.0.0.1:9",), FOREVER_MS)


@pytest.fixture(scope="module")
def founded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with a table; tests break copies of it."""
    home = tmp_path_factory.mktemp("founded") / "n"
    assert main(["--home", str(home), "init", "--name", "desk"]) == 0
    columns = ["--key", "id:TEXT", "--column", "title:TEXT", "--column", "done:INTEGER", "--column", "raw:BLOB"]
    assert main(["--home", str(home), "table", "add", "notes", *columns]) == 0
    assert main(["--home", str(home), "put", "notes", "id=n1", "title=Milk"]) == 0
    return home


@pytest.fixture
def home(founded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> Path:
    monkeypatch.delenv("MESHNODE_DEBUG", raising=False)
    shutil.copytree(founded, tmp_path / "n", ignore=shutil.ignore_patterns("*.sock"))
    capsys.readouterr()
    return tmp_path / "n"


def complains(capsys: Capture, home: Path, *arguments: str, code: int, says: str) -> None:
    """The command fails with this code and one line that says so, and with nothing else."""
    assert main(["--home", str(home), *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("meshnode: ")
    assert says in err
    assert (err.count("\n"), err[-1:]) == (1, "\n")
    assert "fault of meshnode itself" not in err


def sealed(fields: object) -> str:
    """An invite's text around any CBOR, its check bytes right."""
    body = cbor.encode(fields)  # type: ignore[arg-type]
    return PREFIX + base64.b32encode(body + blake3_256(body)[:4]).decode().rstrip("=").lower()


@pytest.mark.parametrize(
    ("invite", "says"),
    [
        ("", "begins with"),
        ("meshnode", "begins with"),
        (PREFIX, "mistyped"),
        (PREFIX + "!!!!", "mistyped"),
        (INVITE.text()[:-1] + ("a" if INVITE.text()[-1] != "a" else "b"), "mistyped"),
        (INVITE.text()[:-9], "mistyped"),
        (PREFIX + "a" * 100_000, "too long"),
        (sealed([1]), "damaged"),
        (sealed({"v": 2}), "another version"),
        (sealed({"v": 1}), "damaged"),
        (replace(INVITE, expires_ms=1).text(), "expired"),
    ],
)
def test_an_invite_that_is_none(tmp_path: Path, capsys: Capture, invite: str, says: str) -> None:
    complains(capsys, tmp_path / "new", "join", invite, "--yes", code=1, says=says)
    assert not (tmp_path / "new" / "incarnation").exists()


async def test_an_invite_that_cannot_be_used(tmp_path: Path) -> None:
    nobody = await meshnode("join", INVITE.text(), "--yes", "--timeout", "0.5", home=tmp_path / "j")
    assert (nobody.code, nobody.err.count("\n"), "cannot be reached (tried 127.0.0.1:9" in nobody.err) == (1, 1, True)
    async with Node(tmp_path / "a", config=loopback()) as node:
        invite = (await node.invite()).invite
        other = replace(parse_invite_untrusted(invite), secret=b"y" * 16).text()
        wrong = await meshnode("join", other, "--yes", home=tmp_path / "j")
        assert (wrong.code, wrong.err.count("\n")) == (1, 1)
        assert (await meshnode("join", invite, "--yes", home=tmp_path / "j")).code == 0  # the same home goes on
        used = await meshnode("join", invite, "--yes", home=tmp_path / "k")
        assert (used.code, used.err.count("\n"), "Traceback" in used.err) == (1, 1, False)


@pytest.mark.parametrize(
    ("name", "content", "line", "says"),
    [
        ("a.csv", b"id,title\nn2,Bread\nn3\n", 3, "1 fields"),
        ("a.csv", b"id,title\nn2,Bread,extra\n", 2, "3 fields"),
        ("a.csv", b"id,done\nn2,many\n", 2, "takes an integer"),
        ("a.csv", b"id,done\nn2,99999999999999999999\n", 2, "integer"),
        ("a.csv", b"id,raw\nn2,xyz\n", 2, "hex"),
        ("a.csv", b"id,title\nn2,\xff\n", 2, "0xff"),
        ("a.csv", b"title\nBread\n", 1, "id"),
        ("a.csv", b"id,tilte\nn2,x\n", 1, "'tilte'"),
        ("a.csv", b"id,id\nn2,x\n", 1, "id"),
        ("a.csv", b"", 1, "empty"),
        ("a.tsv", b"id,title\nn2,x\n", 1, "id,title"),
        ("a.jsonl", b"{\n", 1, "JSON"),
        ("a.jsonl", b"[1]\n", 1, "object"),
        ("a.jsonl", b'{"id": "n2", "id": "n3"}\n', 1, "id"),
        ("a.jsonl", b'{"id": "n2", "done": NaN}\n', 1, "JSON"),
        ("a.jsonl", b'{"id": "n2", "done": {"a": 1}}\n', 1, "done"),
        ("a.jsonl", b'{"id": true}\n', 1, "id"),
        ("a.jsonl", b'{"id": "n2", "title": "\\ud800"}\n', 1, ""),
        ("a.jsonl", b"[" * 100_000 + b"\n", 1, "JSON"),
    ],
)
def test_a_row_that_is_none(
    home: Path, tmp_path: Path, capsys: Capture, name: str, content: bytes, line: int, says: str
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    assert main(["--home", str(home), "import", "notes", str(file)]) == 1
    out, err = capsys.readouterr()
    assert out.endswith(", 1 refused\n")
    (complaint,) = err.splitlines()
    assert complaint.startswith(f"meshnode: {file}:{line}: ")
    assert says in complaint
    assert "fault of meshnode itself" not in err


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (b"prot = 1", "did you mean 'port'"),
        (b"port = 'x'", "port"),
        (b"port = 70000", "port"),
        (b"port = -1", "port"),
        (b"listen = 'nowhere'", "listen"),
        (b"peers = ['nonsense']", "nonsense"),
        (b"peers = 'a:1'", "peers"),
        (b"mdns_enabled = 1", "mdns_enabled"),
        (b"database = 5", "database"),
        (b"name = '" + b"x" * 200 + b"'", "name"),
        (b'name = "\\u001b"', "name"),
        (b"port = ", "not TOML"),
        (b"\xff", "config.toml"),
        (b"a = " + b"[" * 5000, "TOML"),
    ],
)
@pytest.mark.parametrize("verb", ["status", "up"])
def test_a_setting_that_is_none(home: Path, capsys: Capture, verb: str, settings: bytes, says: str) -> None:
    (home / "config.toml").write_bytes(settings)
    complains(capsys, home, verb, code=2, says=says)


def test_a_scope_that_is_none(home: Path, capsys: Capture) -> None:
    (home / "config.toml").write_text("scope = ['a.b*c']")
    complains(capsys, home, "up", code=2, says="scope")


def _replaced(name: str, content: bytes) -> Callable[[Path], None]:
    def change(home: Path) -> None:
        (home / name).write_bytes(content)

    return change


def _folder(name: str) -> Callable[[Path], None]:
    def change(home: Path) -> None:
        (home / name).unlink(missing_ok=True)
        (home / name).mkdir()

    return change


def _readable_by_all(home: Path) -> None:
    (home / "site.key").chmod(0o644)


def _key_gone(home: Path) -> None:
    (home / "site.key").unlink()


def _newer_format(home: Path) -> None:
    with sqlite3.connect(home / "meshnode.db") as database:
        database.execute("UPDATE meshnode_meta SET value = 999 WHERE name = 'format'")
    database.close()


def _cut_short(home: Path) -> None:
    with (home / "meshnode.db").open("r+b") as file:
        file.truncate(4096)


@pytest.mark.parametrize("verb", [["put", "notes", "id=x"], ["up"]], ids=["put", "up"])
@pytest.mark.parametrize(
    ("change", "code", "says"),
    [
        (_readable_by_all, 1, "chmod 600"),
        (_key_gone, 1, "site.key"),
        (_replaced("site.key", b""), 1, "site.key"),
        (_replaced("site.key", b"\xa1\x01\x02" * 50), 1, "site.key"),
        (_folder("site.key"), 1, "site.key"),
        (_replaced("meshnode.db", b"no database at all" * 500), 1, "meshnode.db"),
        (_newer_format, 1, "newer"),
        (_cut_short, 1, "meshnode.db"),
        (_folder("lock"), 2, "lock"),
        (_replaced("config.toml", b"database = '/nowhere/x.db'"), 1, "/nowhere/x.db"),
        (_folder("config.toml"), 2, "config.toml"),
    ],
)
def test_a_home_that_was_damaged(
    home: Path, capsys: Capture, change: Callable[[Path], None], verb: list[str], code: int, says: str
) -> None:
    change(home)
    complains(capsys, home, *verb, code=code, says=says)


def test_an_incarnation_file_that_was_damaged(home: Path, capsys: Capture) -> None:
    (home / "incarnation").write_bytes(b"zz")
    complains(capsys, home, "up", code=1, says="incarnation")


def test_a_home_that_is_a_file(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "file").write_text("")
    for verb in ("init", "up", "status"):
        complains(capsys, tmp_path / "file", verb, code=2, says=str(tmp_path / "file"))


@pytest.mark.parametrize("verb", ["status", "peers", "digest"])
def test_reading_a_database_that_is_none(home: Path, capsys: Capture, verb: str) -> None:
    _replaced("meshnode.db", b"no database at all" * 500)(home)
    complains(capsys, home, verb, code=1, says="no database")
    (home / "meshnode.db").unlink()
    complains(capsys, home, verb, code=1, says="meshnode.db")
