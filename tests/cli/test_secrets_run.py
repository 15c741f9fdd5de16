"""A full run, as people do it, tells no secret: not in output, errors, logs, metrics or lists of processes."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from support.command import Result, meshnode, start_afresh
from support.nodes import PATIENCE_S, TABLE, free_port, linked, loopback, note, pair_of_homes

from meshnode import Node
from meshnode.model.invite import parse_invite_untrusted
from meshnode.node.home import Home
from meshnode.node.metricviews import exposition
from meshnode.node.passphrase import Passphrase
from meshnode.node.words import words_of

SAID = "correct horse battery staple"
FD = ("--passphrase-fd", "0")
QUIET = ("--listen", "127.0.0.1", "--no-mdns", "--verbose")
FOLDER = "a-folder-with-a-name-so-long-that-no-unix-socket-fits-in-it-" * 2  # so that there is a control token


def forms(secret: bytes) -> Iterator[bytes]:
    """How a program may let bytes slip out: as they are, or in the text forms that people use, in lower case."""
    yield secret
    yield secret.hex().encode()
    for text in (base64.b64encode(secret), base64.urlsafe_b64encode(secret), base64.b32encode(secret)):
        yield text.rstrip(b"=").lower()
    yield repr(secret).encode()[2:-1].lower()


def told(secrets: Mapping[str, bytes], places: Mapping[str, bytes]) -> list[str]:
    """Which secret shows where."""
    return [
        f"the {name} in {place}"
        for name, secret in secrets.items()
        for place, said in places.items()
        if any(form in said or form in said.lower() for form in forms(secret))
    ]


def of_process(pid: int) -> bytes:
    """What others on the machine, or the same user, can see of a process."""
    return b"".join(Path(f"/proc/{pid}/{what}").read_bytes() for what in ("cmdline", "environ", "comm"))


def output(result: Result) -> bytes:
    return (result.out + result.err).encode()


@pytest.mark.parametrize("form", range(6))
def test_every_form_would_be_found(form: int) -> None:
    secret = bytes(range(200, 232))
    place = b"some text around " + list(forms(secret))[form].upper() + b" it"
    if form == 0:
        place = b"x" + secret
    assert told({"key": secret}, {"a log": place}) == ["the key in a log"]
    assert told({"key": secret[::-1]}, {"a log": place}) == []


class Run:
    """What is said in one run, by where."""

    def __init__(self) -> None:
        self.places: dict[str, bytes] = {}
        self.running: list[asyncio.subprocess.Process] = []

    async def verb(self, home: Path, *arguments: str, stdin: bytes = b"", code: int = 0) -> Result:
        result = await meshnode(*arguments, home=home, stdin=stdin)
        assert result.code == code, (arguments, result)
        self.places[f"{len(self.places)} {' '.join(arguments)[:60]}"] = output(result)
        return result

    async def up(self, home: Path, name: str, *arguments: str, stdin: bytes = b"") -> None:
        """A node in an interpreter of its own, so that its command line is that of a person."""
        node = await start_afresh("up", *QUIET, *arguments, home=home)
        self.running.append(node)
        assert node.stdin is not None
        assert node.stderr is not None
        node.stdin.write(stdin)
        await node.stdin.drain()
        log = b""
        async with asyncio.timeout(PATIENCE_S):
            while b"is up on" not in log:
                line = await node.stderr.readline()
                assert line, log
                log += line
        self.places[f"the start of {name}"] = log
        self.places[f"the process of {name}"] = of_process(node.pid)

    async def end(self) -> None:
        for number, node in enumerate(self.running):
            if node.returncode is None:
                node.send_signal(signal.SIGTERM)
            out, err = await node.communicate()
            self.places[f"the log of node {number}"] = out + err


async def test_no_secret_is_told_in_a_full_run(tmp_path: Path) -> None:
    """With passphrases that cost what they cost: the nodes are in interpreters of their own."""
    run = Run()
    a, b, safe = tmp_path / FOLDER / "a", tmp_path / "b", tmp_path / "safe.key"
    line = SAID.encode() + b"\n"
    await run.verb(a, "init", "--name", "desk", "--encrypt", *FD, stdin=line)
    known = Home.load(a, passphrase=Passphrase(lambda: SAID))
    recovery, site = known.recovery_key(), known.site_key()
    try:
        await run.up(a, "desk", *FD, stdin=line)
        token = json.loads(known.token_path.read_text())["token"]
        await run.verb(a, "table", "add", TABLE, "--key", "id:TEXT", "--column", "title:TEXT")
        invite = (await meshnode("invite", home=a)).out.strip()  # this one is meant to be told
        joining = await start_afresh("join", "-", "--yes", "--name", "lap", home=b)
        run.places["the process that joins"] = of_process(joining.pid)
        out, err = await joining.communicate(invite.encode() + b"\n")
        assert joining.returncode == 0, err
        run.places["join"] = out + err
        await run.verb(tmp_path / "c", "join", invite, "--yes", "--timeout", "5", code=1)  # it is used
        await run.verb(tmp_path / "c", "join", invite[:-2], "--yes", code=1)
        await run.verb(b, "table", "add", TABLE, "--key", "id:TEXT", "--column", "title:TEXT")
        await run.up(b, "lap")
        await run.verb(a, "put", TABLE, "id=n1", "title=Milk")
        await run.verb(a, "wait", "--all", "--timeout", "30")
        for verb in ("status", "members", "sync-state", "metrics"):
            await run.verb(a, verb, "--output", "json")
        await run.verb(b, "metrics")
        known.recovery_key_path.rename(safe)
        passphrase = ("--recovery", str(safe), "--recovery-passphrase-fd", "0")
        await run.verb(a, "role", "lap", "reader", *passphrase, stdin=b"another passphrase\n", code=1)
        await run.verb(a, "role", "lap", "reader", *passphrase, stdin=line)
    finally:
        await run.end()
    await run.verb(a, "put", TABLE, "id=n2", *FD, stdin=b"another passphrase\n", code=1)
    await run.verb(a, "status", *FD, stdin=line)
    secrets = {
        "site key": site.seed,
        "database key": site.database_key(),
        "recovery key": recovery.seed,
        "key of the other device": Home.load(b).site_key().seed,
        "secret of the invite": parse_invite_untrusted(invite).secret,
        "invite": invite.removeprefix("meshnode-invite:").encode(),
        "passphrase": SAID.encode(),
        "control token": token.encode(),
        "words of the recovery key": " ".join(words_of(recovery.seed)[:4]).encode(),
    }
    assert told(secrets, run.places) == []
    assert told({"name": b"desk"}, run.places), "what is no secret is found"


async def test_no_secret_is_told_by_nodes_whose_tls_keys_are_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They live in memory alone, so this is looked at in one process, with every library at its loudest."""
    caplog.set_level(logging.DEBUG)
    for name in ("quic", "asyncio", "zeroconf", "meshnode"):
        caplog.set_level(logging.DEBUG, name)
    ports = free_port(), free_port()
    homes = await pair_of_homes(tmp_path, ports)
    secrets: dict[str, bytes] = {}
    said = []
    async with (
        Node(homes[0], config=loopback(port=ports[0])) as a,
        Node(homes[1], config=loopback(ports[0], port=ports[1])) as b,
    ):
        await linked(b, a)
        for node in (a, b):
            assert node._network is not None
            identity = node._network._endpoint.identity
            key = identity.tls_key
            raw = key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())  # type: ignore[union-attr]
            secrets |= {f"TLS key {len(secrets)}": raw, f"site key {len(secrets)}": identity.key.seed}
            said += [repr(each) for each in (identity, node.home, node._settings, await node.config())]
        await a.import_rows(TABLE, [note(1)])
        await a.wait(timeout_s=PATIENCE_S)
        for node in (a, b):
            said += [repr(await node.status()), exposition(await node.metrics()), repr(await node.sync_state())]
    places = {"the log": caplog.text.encode(), "what is shown": "\n".join(said).encode()}
    assert "link-up" in caplog.text
    assert told(secrets, places) == []
