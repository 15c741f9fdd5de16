"""Nearby pairing as two people do it: the verbs in two hosts on a LAN that were told no address (profile §10, §11)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.lan import Lan, lan_available
from support.nodes import PATIENCE_S, Process

pytestmark = pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")

HOST, GUEST = 0, 1


@pytest.fixture
def lan() -> Iterator[Lan]:
    with Lan(2) as made:
        yield made


def start(lan: Lan, host: int, home: Path, *arguments: str) -> subprocess.Popen[str]:
    """A verb with a person at its standard streams."""
    command = [sys.executable, "-u", "-m", "meshnode", "--home", str(home), *arguments]
    pipe = subprocess.PIPE
    return lan.popen(host, command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def question(program: subprocess.Popen[str]) -> str:
    """What it asks, up to where the answer goes."""
    assert program.stderr is not None
    text = ""
    while not text.endswith("[y/N] "):
        piece = program.stderr.read(1)
        assert piece, f"it ended without a question: {text}"
        text += piece
    return text


def answer(program: subprocess.Popen[str], word: str) -> tuple[int, str, str]:
    out, err = program.communicate(word + "\n", timeout=PATIENCE_S)
    return program.returncode, out, err.strip()


def digits(text: str) -> str:
    return "".join(each for each in text.rpartition("same digits, ")[2] if each.isdigit())


def look(lan: Lan, home: Path) -> list[dict[str, object]]:
    """`meshnode nearby` at the guest, until it sees somebody or has looked often enough."""
    for _ in range(10):
        command = [
            sys.executable,
            "-m",
            "meshnode",
            "--home",
            str(home),
            "nearby",
            "--seconds",
            "2",
            "--output",
            "json",
        ]
        seen: list[dict[str, object]] = json.loads(lan.run(GUEST, command, timeout=PATIENCE_S).stdout)
        if seen:
            return seen
    raise AssertionError("nobody was seen")


async def test_two_people_compare_digits(tmp_path: Path, lan: Lan) -> None:
    desk, lap = tmp_path / "desk", tmp_path / "lap"
    async with Process(desk, "--name", "Desk", before=["ip", "netns", "exec", lan.namespace(HOST)]) as node:
        opening = start(lan, HOST, desk, "nearby", "--open")
        (seen,) = look(lan, lap)
        status = await node.client.status()
        assert (seen["name"], seen["site"], seen["mesh_tag"]) == ("Desk", status.site, status.mesh_tag)
        assert not lap.exists()  # looking around makes nothing
        pairing = start(lan, GUEST, lap, "pair", "desk", "--name", "Lap")
        here, there = question(opening), question(pairing)
        assert len(digits(here)) == 6
        assert digits(here) == digits(there)
        assert here.startswith("'Lap' (site ")
        assert there.splitlines()[-1].startswith("Does 'Desk' show the same digits")
        assert pairing.stdin is not None
        pairing.stdin.write("y\n")
        pairing.stdin.flush()
        code, out, err = answer(opening, "y")
        assert (code, err) == (0, "")
        assert out.endswith("joined.\n")
        joined, _ = pairing.communicate(timeout=PATIENCE_S)
        assert pairing.returncode == 0
        assert f"let in by 'Desk' (site {status.short})" in joined
        assert [peer.name for peer in await node.client.peers()] == ["Lap"]
        assert (await node.client.nearby()).state == "joined"


async def test_one_person_sees_other_digits_and_says_no(tmp_path: Path, lan: Lan) -> None:
    desk, lap = tmp_path / "desk", tmp_path / "lap"
    async with Process(desk, "--name", "Desk", before=["ip", "netns", "exec", lan.namespace(HOST)]) as node:
        opening = start(lan, HOST, desk, "nearby", "--open")
        short = str(look(lan, lap)[0]["short"])
        pairing = start(lan, GUEST, lap, "pair", short, "--name", "Lap")
        question(pairing)
        question(opening)
        code, _, err = answer(opening, "n")
        assert code == 1
        assert err.endswith("nobody was let in: declined here; `meshnode nearby --open` opens it again")
        # It does not wait for somebody to press Enter: its question has become pointless.
        code, _, err = pairing.wait(PATIENCE_S), *pairing.communicate(timeout=PATIENCE_S)
        assert (code, err.strip().splitlines()[-1]) == (1, "meshnode: declined at the other device")
        assert await node.client.peers() == []


async def test_an_opening_that_is_interrupted_is_closed(tmp_path: Path, lan: Lan) -> None:
    desk = tmp_path / "desk"
    async with Process(desk, "--name", "Desk", before=["ip", "netns", "exec", lan.namespace(HOST)]) as node:
        opening = start(lan, HOST, desk, "nearby", "--open")
        assert (await node.client.nearby(seen="closed", timeout_s=PATIENCE_S)).state == "open"
        assert opening.stdout is not None
        opening.stdout.readline()
        opening.send_signal(2)
        opening.wait(PATIENCE_S)
        assert opening.returncode == 130
        assert (await node.client.nearby(seen="open", timeout_s=PATIENCE_S)).state == "closed"
