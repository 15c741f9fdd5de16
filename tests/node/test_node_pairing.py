"""Letting devices in as people do it: the verbs in processes of their own, on loopback (profile §10)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from support.command import Result, meshnode, start
from support.nodes import PATIENCE_S, Process, free_port

from meshnode.node.views import JoinView


class Asking:
    """`meshnode invite …` that stays in the foreground."""

    def __init__(self, process: asyncio.subprocess.Process, invite: str) -> None:
        self._process = process
        self.invite = invite

    @classmethod
    async def begin(cls, node: Process, *flags: str) -> Asking:
        process = await start("invite", "--no-qr", *flags, home=node.home)
        assert process.stdout is not None
        return cls(process, (await process.stdout.readline()).decode().strip())

    async def until(self, text: str) -> str:
        """What it said on standard error up to this."""
        assert self._process.stderr is not None
        async with asyncio.timeout(PATIENCE_S):
            return (await self._process.stderr.readuntil(text.encode())).decode()

    async def end(self, said: str = "") -> Result:
        """Answer its question, then what it said at the end."""
        async with asyncio.timeout(PATIENCE_S):
            out, err = await self._process.communicate(said.encode())
        assert self._process.returncode is not None
        return Result(self._process.returncode, out.decode(), err.decode())

    async def interrupt(self) -> None:
        """As Ctrl-C does."""
        self._process.kill()
        await self.end()


def joining(home: Path, invite: str, *flags: str) -> asyncio.Task[Result]:
    return asyncio.create_task(
        meshnode("join", "-", "--yes", "--name", home.name, *flags, home=home, stdin=invite.encode())
    )


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Process]:
    async with Process.on_loopback(tmp_path / "desk", free_port()) as process:
        yield process


async def test_who_waits_is_told_who_joined(desk: Process, tmp_path: Path) -> None:
    asking = await Asking.begin(desk, "--wait")
    joined = await joining(tmp_path / "lap", asking.invite, "--output", "json")
    assert joined.code == 0, joined.err
    lap = joined.json
    assert lap["inviter"] == (await desk.client.status()).site
    ended = await asking.end()
    assert (ended.code, ended.out) == (0, f"'lap' (site {lap['short']}) joined.\n")
    status = await meshnode("status", home=desk.home)
    assert f"notice joined {lap['short']} ×1: lap ({lap['short']}) joined with an invite" in status.out


async def test_yes_at_the_inviter_lets_it_in(desk: Process, tmp_path: Path) -> None:
    asking = await Asking.begin(desk, "--confirm")
    lap = joining(tmp_path / "lap", asking.invite)
    question = await asking.until("[y/N]")
    ended = await asking.end("y\n")
    assert ended.code == 0, ended.err
    joined = await lap
    assert joined.code == 0, joined.err
    (peer,) = await desk.client.peers()
    assert f"'lap' (site {peer.short}) has the invite and wants to join. Let it in?" in question
    assert ended.out == f"'lap' (site {peer.short}) joined.\n"
    assert joined.out.splitlines()[0].startswith(f"This device ('lap', site {peer.short}) is now a member of mesh ")


async def test_no_at_the_inviter_keeps_it_out(desk: Process, tmp_path: Path) -> None:
    asking = await Asking.begin(desk, "--confirm")
    lap = joining(tmp_path / "lap", asking.invite)
    await asking.until("[y/N]")
    ended, refused = await asking.end("n\n"), await lap
    assert (ended.code, refused.code) == (1, 1)
    assert ended.err.strip().endswith("not let in; the invite is of no use any more")
    assert refused.err.splitlines()[-1].startswith("meshnode: the inviter refused")
    assert await desk.client.peers() == []
    assert not (tmp_path / "lap" / "incarnation").exists()


@pytest.mark.parametrize("answer", ["approve", "deny"])
async def test_where_the_question_was_interrupted_another_verb_answers(
    desk: Process, tmp_path: Path, answer: str
) -> None:
    asking = await Asking.begin(desk, "--confirm")
    lap = joining(tmp_path / "lap", asking.invite)
    await asking.until("[y/N]")
    await asking.interrupt()
    (who,) = (await desk.client.status()).asking
    shown = await meshnode("status", home=desk.home)
    assert (
        f"'lap' (site {who.short}) has an invite and wants to join: `meshnode invite approve {who.short}`" in shown.out
    )
    nobody = await meshnode("invite", answer, "somebody", home=desk.home)
    assert (nobody.code, nobody.err.count("\n"), "nobody called 'somebody' waits" in nobody.err) == (1, 1, True)
    said = await meshnode("invite", answer, who.short, home=desk.home)
    assert said.code == 0, said.err
    assert (await lap).code == (0 if answer == "approve" else 1)
    assert len(await desk.client.peers()) == (1 if answer == "approve" else 0)
    assert (await desk.client.status()).asking == []


async def test_an_inviter_that_is_restarted_while_it_asks_asks_again(desk: Process, tmp_path: Path) -> None:
    view = await desk.client.invite(confirm=True)
    lap = joining(tmp_path / "lap", view.invite)
    assert (await desk.client.invited(view.id, timeout_s=PATIENCE_S)).state == "asks"
    await desk.stop()
    await desk.start()
    asked = await desk.client.invited(view.id)
    assert asked.state == "asks"
    assert asked.who is not None
    await desk.client.decide(asked.who.site, approve=True)
    joined = await lap
    assert joined.code == 0, joined.err


async def test_a_joiner_that_is_killed_while_it_waits_starts_again(desk: Process, tmp_path: Path) -> None:
    view = await desk.client.invite(confirm=True)
    home = tmp_path / "lap"
    first = await start("join", view.invite, "--yes", "--name", "lap", home=home)
    asked = await desk.client.invited(view.id, timeout_s=PATIENCE_S)
    first.kill()
    await first.communicate()
    assert asked.who is not None
    await desk.client.decide(asked.who.short, approve=True)
    joined = await joining(home, view.invite, "--output", "json")
    assert joined.code == 0, joined.err
    assert joined.json["site"] == asked.who.site
    assert (await desk.client.invited(view.id)).state == "joined"


async def test_a_question_without_a_node_is_put_later(tmp_path: Path) -> None:
    assert (await meshnode("init", "--name", "desk", home=tmp_path / "desk")).code == 0
    made = await meshnode("invite", "--confirm", "--output", "json", home=tmp_path / "desk")
    assert (made.code, made.json["confirm"]) == (0, True)
    assert "No node runs here" in made.err


async def test_json_says_who_joined(desk: Process, tmp_path: Path) -> None:
    process = await start("invite", "--wait", "--output", "jsonl", home=desk.home)
    assert process.stdout is not None
    invite = json.loads(await process.stdout.readline())["invite"]
    joined = await joining(tmp_path / "lap", invite, "--output", "json")
    lap = JoinView(**joined.json)
    async with asyncio.timeout(PATIENCE_S):
        out, _ = await process.communicate()
    who = json.loads(out)
    assert (process.returncode, who["site"], who["name"]) == (0, lap.site, "lap")
