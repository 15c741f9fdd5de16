"""Keys under a passphrase, as a person and as a service manager give it: once, unseen, and told nowhere."""

from __future__ import annotations

import errno
import json
import os
import signal
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.command import Result, meshnode, meshnode_afresh, run_code, start
from support.nodes import Process, free_port, loopback
from support.rings import ring

from meshnode import Home, Node
from meshnode.errors import ConfigError, IdentityError, UsageError
from meshnode.node import keyfile
from meshnode.node.home import Home as NodeHome
from meshnode.node.keyfile import is_protected, kept_as
from meshnode.node.private import write_private
from meshnode.node.protecting import protect
from meshnode.node.words import words_of

SAID, OTHER = "correct horse battery", "\N{LATIN SMALL LETTER U WITH DIAERESIS}ber alles"
FD = ("--passphrase-fd", "0")
pytestmark = pytest.mark.usefixtures("cheap_passphrases")


async def said(*arguments: str, home: Path, line: str = SAID, env: Mapping[str, str] | None = None) -> Result:
    """A command that reads the passphrase on its standard input."""
    return await meshnode(*arguments, *FD, home=home, stdin=line.encode() + b"\n", env=env)


async def founded(home: Path) -> Result:
    result = await said("init", "--name", "desk", home=home)
    assert result.code == 0, result
    return result


async def test_a_home_under_a_passphrase_opens_with_it_alone(tmp_path: Path) -> None:
    home = tmp_path / "n"
    made = await founded(home)
    keys = NodeHome(home).site_key_path, NodeHome(home).recovery_key_path
    assert all(is_protected(key) and b"ENCRYPTED PRIVATE KEY" in key.read_bytes() for key in keys)
    assert "same key" not in made.out  # the words of the recovery key are for a terminal
    assert (await said("table", "add", "notes", "--key", "id:TEXT", "--column", "t:TEXT", home=home)).code == 0
    assert (await said("put", "notes", "id=1", "t=x", home=home)).code == 0
    assert (await meshnode("rows", "notes", home=home)).code == 0  # reading needs no key
    wrong = await said("put", "notes", "id=2", home=home, line=OTHER)
    assert (wrong.code, wrong.err) == (
        1,
        f"meshnode: {home}/site.key is under another passphrase: nothing was opened, try again\n",
    )
    nobody = await meshnode("put", "notes", "id=2", "t=x", home=home)
    assert (nobody.code, nobody.out) == (1, "")
    assert "--passphrase-fd" in nobody.err
    shown = await meshnode("status", "--output", "json", home=home)
    everything = "".join(each.out + each.err for each in (made, wrong, nobody, shown))
    assert SAID not in everything
    assert OTHER not in everything
    assert not any(SAID.encode() in file.read_bytes() for file in home.iterdir() if file.is_file())


async def test_a_running_node_asks_once_and_its_verbs_never(tmp_path: Path) -> None:
    home = tmp_path / "n"
    await founded(home)
    process = await start("up", "--listen", "127.0.0.1", "--no-mdns", "--verbose", *FD, home=home)
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(SAID.encode() + b"\n")
    log = b""
    while b"is up on" not in log:
        line = await process.stderr.readline()
        assert line, log
        log += line
    status = await meshnode("status", home=home)
    assert "running" in status.out
    assert (await meshnode("invite", home=home)).code == 0
    process.send_signal(signal.SIGTERM)
    _, rest = await process.communicate()
    assert process.returncode == 0
    assert SAID.encode() not in log + rest + status.out.encode()


async def test_the_recovery_key_signs_from_a_file_under_a_passphrase(tmp_path: Path) -> None:
    """While a node runs too: it reads the file, and is told what opens it."""
    home, key = tmp_path / "n", tmp_path / "safe.key"
    await founded(home)
    NodeHome(home).recovery_key_path.rename(key)
    role = ("role", "desk", "member", "--recovery", str(key))
    refused = await said(*role, home=home)
    assert (refused.code, "--recovery-passphrase-fd N" in refused.err) == (1, True), refused
    both = f"{SAID}\n{SAID}\n".encode()  # each flag takes its line
    alone = await meshnode(*role, *FD, "--recovery-passphrase-fd", "0", home=home, stdin=both)
    assert (alone.code, "the recovery key" in alone.out) == (0, True), alone
    assert (await said("identity", "unprotect", home=home)).code == 0
    async with Process.on_loopback(home, free_port()):
        wrong = await meshnode(*role, "--recovery-passphrase-fd", "0", home=home, stdin=OTHER.encode())
        assert (wrong.code, "under another passphrase" in wrong.err) == (1, True), wrong
        done = await meshnode(*role, "--recovery-passphrase-fd", "0", home=home, stdin=SAID.encode())
        assert (done.code, done.err) == (0, ""), done
        assert SAID not in refused.err + alone.out + done.out


async def test_the_recovery_key_signs_from_its_words_as_well(tmp_path: Path) -> None:
    home, file = tmp_path / "n", tmp_path / "words"
    assert (await meshnode("init", "--name", "desk", home=home)).code == 0
    words = words_of(NodeHome(home).recovery_key().seed)
    NodeHome(home).recovery_key_path.unlink()
    role = ("role", "desk", "reader", "--recovery", str(file))
    for text, says in (
        (" ".join(words[:-1]), "17 words, and these are 16"),
        (" ".join(["babab", *words[1:]]), "do not fit together"),
        ("\xff\xfe", "not a site key"),
    ):
        write_private(file, text.encode("latin-1"))
        refused = await meshnode(*role, home=home)
        assert (refused.code, says in refused.err, words[3] in refused.err) == (1, True, False), refused
    write_private(file, f"{' '.join(words[:9])}\n{'-'.join(words[9:]).upper()}\n".encode())
    done = await meshnode(*role, home=home)
    assert (done.code, "the recovery key" in done.out) == (0, True), done


async def test_a_command_takes_the_passphrase_once_however_often_it_opens_the_home(tmp_path: Path) -> None:
    home = tmp_path / "n"
    assert (await said("init", "--passphrase", "--encrypt", home=home)).code == 0
    left = await said("leave", "--yes", home=home)
    assert (left.code, "has left the mesh" in left.out) == (0, True), left


async def test_a_passphrase_is_changed_and_taken_off(tmp_path: Path) -> None:
    home = tmp_path / "n"
    assert (await meshnode("init", home=home)).code == 0
    key = NodeHome(home).site_key()
    done = await said("identity", "protect", "--output", "json", home=home)
    assert (done.code, done.json["protected"], len(done.json["files"])) == (0, True, 2), done
    read, write = os.pipe()
    os.write(write, OTHER.encode() + b"\nnot this line")
    os.close(write)
    changed = await meshnode("identity", "protect", *FD, "--new-passphrase-fd", "0", home=home, stdin=b"")
    assert (changed.code, "no passphrase to read" in changed.err) == (2, True)
    both = f"{SAID}\n{OTHER}\n".encode()  # each flag takes its line
    changed = await meshnode("identity", "protect", *FD, "--new-passphrase-fd", "0", home=home, stdin=both)
    assert changed.code == 0, changed
    os.close(read)
    assert NodeHome(home, passphrase=OTHER).site_key() == key
    assert NodeHome(home, passphrase="u\N{COMBINING DIAERESIS}ber alles").site_key() == key
    with pytest.raises(IdentityError, match="another passphrase"):
        NodeHome(home, passphrase=SAID).site_key()
    assert (await said("identity", "unprotect", home=home)).code == 1
    assert (await said("identity", "unprotect", home=home, line=OTHER)).code == 0
    assert NodeHome(home).site_key() == key
    assert not is_protected(NodeHome(home).recovery_key_path)


@pytest.mark.parametrize(
    ("flags", "stdin", "says"),
    [
        (["--passphrase"], b"", "no terminal"),
        (["--passphrase-fd", "0"], b"", "no passphrase to read"),
        (["--passphrase-fd", "0"], b"\n", "no passphrase to read"),
        (["--passphrase-fd", "99"], b"", "no open descriptor"),
        (["--passphrase-fd", "x"], b"", "a whole number"),
        (["--passphrase-fd", "0"], b"x" * 5000, "1 to 1024 bytes"),
    ],
)
async def test_a_passphrase_that_cannot_be_had_leaves_no_home(
    tmp_path: Path, flags: list[str], stdin: bytes, says: str
) -> None:
    result = await meshnode("init", *flags, home=tmp_path / "n", stdin=stdin)
    assert (result.code, says in result.err) == (2, True), result
    assert not NodeHome(tmp_path / "n").founded
    assert (await meshnode("init", home=tmp_path / "n")).code == 0


async def test_the_keyring_keeps_it_and_nobody_is_asked(tmp_path: Path) -> None:
    home, file = tmp_path / "n", tmp_path / "ring"
    env = ring("FileRing", file)
    assert (await meshnode("init", home=home)).code == 0
    done = await said("identity", "protect", "--keyring", home=home, env=env)
    assert (done.code, "keeps for you" in done.out) == (0, True), done
    site = kept_as(NodeHome(home).site_key_path)
    assert json.loads(file.read_text()) == {f"meshnode/{site}": SAID}
    assert (await meshnode("invite", home=home, env=env)).code == 0
    assert (await said("invite", home=home)).code == 0  # the passphrase does it too
    without = await meshnode("invite", home=home, env=ring("LockedRing", file))
    assert (without.code, "dismissed" in without.err, "--passphrase-fd" in without.err) == (1, True, True)
    file.unlink()
    lost = await meshnode("invite", home=home, env=env)
    assert (lost.code, "no longer has" in lost.err) == (1, True)
    assert (await said("identity", "protect", "--keyring", home=home, env=env)).code == 2  # it needs a new one
    stdin = f"{SAID}\n{OTHER}\n".encode()
    again = ("identity", "protect", "--keyring", *FD, "--new-passphrase-fd", "0")
    assert (await meshnode(*again, home=home, env=env, stdin=stdin)).code == 0
    assert (await meshnode("identity", "unprotect", home=home, env=env)).code == 0
    assert json.loads(file.read_text()) == {}
    assert (await meshnode("invite", home=home)).code == 0


@pytest.mark.parametrize(("name", "says"), [("LockedRing", "dismissed"), ("ForgetfulRing", "does not come back")])
async def test_a_keyring_that_keeps_nothing_changes_nothing(tmp_path: Path, name: str, says: str) -> None:
    assert (await meshnode("init", home=tmp_path / "n")).code == 0
    before = (tmp_path / "n" / "site.key").read_bytes()
    result = await said("identity", "protect", "--keyring", home=tmp_path / "n", env=ring(name, tmp_path / "ring"))
    assert (result.code, says in result.err, SAID in result.err) == (1, True, False), result
    assert (tmp_path / "n" / "site.key").read_bytes() == before


async def test_a_system_without_a_keyring_says_what_to_do(tmp_path: Path) -> None:
    assert (await meshnode("init", home=tmp_path / "n")).code == 0
    env = {"PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring"}
    result = await said("identity", "protect", "--keyring", home=tmp_path / "n", env=env)
    assert (result.code, "do without --keyring" in result.err) == (1, True), result


async def test_the_missing_extra_is_named(tmp_path: Path) -> None:
    assert (await meshnode("init", home=tmp_path / "n")).code == 0
    (tmp_path / "without" / "keyring").mkdir(parents=True)
    (tmp_path / "without" / "keyring" / "__init__.py").write_text("raise ImportError('not installed')")
    path = os.pathsep.join(filter(None, [str(tmp_path / "without"), os.environ.get("PYTHONPATH")]))
    protect_it = ("identity", "protect", "--keyring", *FD)
    result = await meshnode_afresh(*protect_it, home=tmp_path / "n", stdin=SAID.encode(), env={"PYTHONPATH": path})
    assert (result.code, "meshnode[keyring]" in result.err) == (2, True), result


async def test_an_embedded_node_takes_it_with_its_home(tmp_path: Path) -> None:
    async with Node(Home(tmp_path / "n", passphrase=SAID), config=loopback()) as node:
        site = (await node.status()).site
    assert is_protected(tmp_path / "n" / "site.key")
    async with Node(Home(tmp_path / "n", passphrase=SAID), config=loopback()) as node:
        assert (await node.status()).site == site
    for passphrase, says in ((OTHER, "another passphrase"), (None, "run this at a terminal")):
        with pytest.raises(IdentityError, match=says):
            async with Node(Home(tmp_path / "n", passphrase=passphrase), config=loopback()):
                pass
    with pytest.raises(UsageError, match="1 to 1024 bytes"):
        async with Node(Home(tmp_path / "m", passphrase=""), config=loopback()):
            pass
    assert SAID not in repr(Home(tmp_path, passphrase=SAID).passphrase)


async def test_no_key_beside_the_site_key_is_left_as_it_was(tmp_path: Path) -> None:
    """A renewal that did not reach its inviter leaves a key for its next try."""
    async with Node(tmp_path / "n", config=loopback()):
        pass
    home = NodeHome(tmp_path / "n")
    new = home.write_renewed_key(bytes(range(32)))
    protect(home, SAID)
    assert all(is_protected(path) for path in home.path.glob("*.key*"))
    assert NodeHome(home.path, passphrase=SAID).renewed_key() == new
    keyfile.write_key(home.recovery_key_path, bytes(32), b"its own")
    with pytest.raises(IdentityError, match=r"recovery\.key is under another passphrase.* safe place"):
        protect(NodeHome(home.path, passphrase=SAID), OTHER)
    assert NodeHome(home.path, passphrase=SAID).renewed_key() == new


async def test_protecting_that_is_cut_short_is_done_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Node(tmp_path / "n", config=loopback()):
        pass
    home, wanted = NodeHome(tmp_path / "n"), keyfile.write_private
    keys = home.site_key(), home.recovery_key()

    def dies(path: Path, data: bytes) -> None:
        if path == home.site_key_path:
            raise OSError("killed")
        wanted(path, data)

    for passphrase in (SAID, OTHER):
        with monkeypatch.context() as patched:
            patched.setattr(keyfile, "write_private", dies)
            with pytest.raises(OSError, match="killed"):
                protect(home, passphrase)
        protect(NodeHome(home.path, passphrase=home.passphrase), passphrase)
        home = NodeHome(home.path, passphrase=passphrase)
        assert (home.site_key(), home.recovery_key()) == keys


# Ends the process where a key is about to get its name, as a power cut would.
DIES = """
import os, sys
from pathlib import Path
from meshnode.node import home, protecting
Path.replace = lambda *_: os._exit(9)
getattr(protecting, sys.argv[2])(home.Home(sys.argv[1], passphrase="correct horse battery"), *sys.argv[3:])
"""


@pytest.mark.parametrize("what", [("unprotect",), ("protect", OTHER)])
@pytest.mark.parametrize("then", ["protect", "up"])
async def test_a_key_that_was_being_written_is_not_left_behind(tmp_path: Path, what: list[str], then: str) -> None:
    home = NodeHome(tmp_path / "n", passphrase=SAID)
    async with Node(home, config=loopback()):
        pass
    assert (await run_code(DIES, str(home.path), *what)).code == 9
    assert list(home.path.glob(".*")), "it died in time"
    if then == "up":
        async with Node(home, config=loopback()):
            assert not list(home.path.glob(".*"))
    else:
        protect(home, OTHER)
        assert not list(home.path.glob(".*"))


def test_what_does_not_fit_leaves_no_draft(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="No space left"):
        keyfile.write_key(tmp_path / "site.key", bytes(32), None)
    assert list(tmp_path.iterdir()) == []
