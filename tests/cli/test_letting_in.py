"""The verbs that let devices in, as people and scripts use them, against a node in memory."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from support.command import Result, meshnode
from support.memory_node import MemoryNode

from meshnode.node.home import Home
from meshnode.node.pairing_views import CandidateView, InvitedView, OpenInviteView

LAP = CandidateView(site="cd" * 16, short="cd" * 4, name="lap\x1b[0m")
SHOWN = "'lap\\x1b[0m' (site cdcdcdcd)"
ASKS = InvitedView(state="asks", who=LAP)


def complains(result: Result, code: int, says: str) -> None:
    """The last line says so."""
    assert result.code == code
    assert "Traceback" not in result.err
    last = result.err.strip().splitlines()[-1]
    assert last.startswith("meshnode: ")
    assert says in last


async def test_waiting_for_whoever_comes(home: Home, node: MemoryNode) -> None:
    node.becomes = [InvitedView(state="joined", who=LAP)]
    waited = await meshnode("invite", "--wait", home=home.path)
    assert (waited.code, waited.out) == (0, f"meshnode-invite:abc\n{SHOWN} joined.\n")
    as_json = await meshnode("invite", "--wait", "--output", "jsonl", home=home.path)
    made, came = map(json.loads, as_json.out.splitlines())
    assert (made["id"], made["confirm"], came["site"]) == ("00" * 8, False, LAP.site)
    assert node.asked_of == [("00" * 8, "open")] * 2


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("expired", "nobody came in by this invite before it expired"),
        ("withdrawn", "the invite was withdrawn"),
        ("burnt", "wrong proofs used the invite up"),
        ("denied", "not let in"),
    ],
)
async def test_invites_that_let_nobody_in(home: Home, node: MemoryNode, state: str, says: str) -> None:
    node.becomes = [InvitedView(state=state)]
    complains(await meshnode("invite", "--wait", home=home.path), 1, says)


@pytest.mark.parametrize(("word", "code", "state"), [("y", 0, "joined"), ("YES", 0, "joined"), ("n", 1, "denied")])
async def test_the_question_about_who_comes(home: Home, node: MemoryNode, word: str, code: int, state: str) -> None:
    node.becomes = [ASKS]
    asked = await meshnode("invite", "--confirm", home=home.path, stdin=f"{word}\n".encode())
    assert asked.code == code, asked.err
    assert f"{SHOWN} has the invite and wants to join. Let it in? [y/N]" in asked.err
    assert node.becomes == [InvitedView(state=state, who=LAP)]
    assert (f"{SHOWN} joined." in asked.out) == (code == 0)


async def test_with_nobody_at_the_terminal_others_answer(home: Home, node: MemoryNode) -> None:
    node.becomes = [ASKS]
    asking = asyncio.create_task(meshnode("invite", "--confirm", home=home.path))
    while ("00" * 8, "asks") not in node.asked_of:
        assert not asking.done()
        await asyncio.sleep(0.01)
    said = await meshnode("invite", "approve", LAP.short, home=home.path)
    assert (said.code, said.out) == (0, f"{SHOWN} is a member now.\n")
    asked = await asking
    assert (asked.code, asked.out) == (0, f"meshnode-invite:abc\n{SHOWN} joined.\n")
    assert f"`meshnode invite approve {LAP.short}`" in asked.err


async def test_status_shows_who_asks(home: Home, node: MemoryNode) -> None:
    node.becomes = [ASKS]
    shown = await meshnode("status", home=home.path)
    assert f"{SHOWN} has an invite and wants to join: `meshnode invite approve {LAP.short}` lets it in" in shown.out
    denied = await meshnode("invite", "deny", LAP.short, "--output", "json", home=home.path)
    assert (denied.code, denied.json["name"]) == (0, LAP.name)
    assert (await meshnode("status", "--output", "json", home=home.path)).json["asking"] == []


async def test_open_invites_are_listed_and_withdrawn(home: Home, node: MemoryNode) -> None:
    nothing = await meshnode("invite", "list", home=home.path)
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "No invite is open.\n")
    node.open_invites = [OpenInviteView(id="00" * 8, expires_ms=0, confirm=True, who=LAP)]
    listed = await meshnode("invite", "list", home=home.path)
    assert f"{'00' * 8}  1970-01-01T00:00:00.000Z " in listed.out
    assert f"yes         {SHOWN} asks" in listed.out
    gone = await meshnode("invite", "withdraw", "00" * 8, home=home.path)
    assert (
        gone.out == f"The invite {'00' * 8} is withdrawn: nobody comes in by it. {SHOWN}, who asked, is not let in.\n"
    )
    complains(await meshnode("invite", "withdraw", "00" * 8, home=home.path), 1, "no invite")


async def test_words_that_cannot_be_used(home: Home, node: MemoryNode) -> None:
    for arguments, code, says in (
        (["invite", "approve"], 2, "which device?"),
        (["invite", "withdraw"], 2, "which invite?"),
        (["invite", "list", "x"], 2, "no more words"),
        (["invite", "perhaps", "lap"], 2, "perhaps"),
        (["invite", "approve", "x"], 1, ""),
        (["nearby", "--open", "--minutes", "16"], 2, "--minutes"),
        (["nearby", "--open", "--minutes", "nan"], 2, "--minutes"),
        (["nearby", "--seconds", "0"], 2, "--seconds"),
        (["pair"], 2, "DEVICE"),
        (["pair", "x", "--timeout", "0"], 2, "--timeout"),
        (["pair", "x", "--name", ""], 2, "there is a node"),
    ):
        node.becomes = [ASKS]
        complains(await meshnode(*arguments, home=home.path), code, says)


async def test_the_digits_at_the_host(home: Home, node: MemoryNode) -> None:
    joined = await meshnode("nearby", "--open", home=home.path, stdin=b"y\n")
    assert joined.code == 0, joined.err
    assert "'lap' (site abababab) wants to join. Does it show the same digits, 012 345? [y/N]" in joined.err
    lines = joined.out.splitlines()
    assert lines[0].endswith("(site 83561adb) is open to one nearby device for 2 minutes.")
    assert lines[1] == "It may not be found by its name (discovery: off)."
    assert lines[2] == "On that device: `meshnode pair 83561adb`, or `meshnode pair 192.0.2.1:4748`"
    assert lines[3] == "'lap' (site abababab) joined."
    assert node.near.state == "closed"  # whatever came of it


@pytest.mark.parametrize("word", [b"n\n", b""])
async def test_no_or_nobody_at_the_host(home: Home, node: MemoryNode, word: bytes) -> None:
    refused = await meshnode("nearby", "--open", home=home.path, stdin=word)
    complains(refused, 1, "'lap' (site abababab): nobody was let in: declined here")


async def test_without_a_node_nothing_is_opened(home: Home) -> None:
    home.unfinished_path.touch()
    complains(await meshnode("nearby", "--open", home=home.path), 1, "there is no node")


async def test_a_device_that_is_not_there(tmp_path: Path) -> None:
    nobody = await meshnode("pair", "127.0.0.1:9", "--timeout", "0.3", "--name", "lap", home=tmp_path / "lap")
    complains(nobody, 1, "cannot be reached (tried 127.0.0.1:9")
    complains(await meshnode("pair", "host:port:x", home=tmp_path / "lap"), 2, "no address")
