"""Letting devices in as people do it: the verbs in processes of their own, on loopback (profile §10)."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from support.command import Result, meshnode, start
from support.forks import Running
from support.nodes import PATIENCE_S, Process, free_port, loopback

from meshnode import MeshError, Node, join
from meshnode.engine.authority import issue_retirement
from meshnode.engine.engine import Engine
from meshnode.errors import PairingError
from meshnode.model.invite import Invite, parse_invite_untrusted
from meshnode.node import ceremony
from meshnode.node.pairing_views import JoinView


class Asking:
    """`meshnode invite …` that stays in the foreground."""

    def __init__(self, process: Running, invite: str) -> None:
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
    assert f"notice joined {lap['short']}, " in status.out
    assert f" ago: lap ({lap['short']}) joined with an invite" in status.out
    assert status.out.count("meshnode notices acknowledge") == 1


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
    assert refused.err.splitlines()[-1].startswith("meshnode: the inviter refused: somebody said no there")
    assert await desk.client.peers() == []
    assert not (tmp_path / "lap" / "incarnation").exists()


async def test_a_withdrawn_invite_lets_nobody_in_whether_somebody_asks_by_it_or_not(
    desk: Process, tmp_path: Path
) -> None:
    waiting = await Asking.begin(desk, "--wait")
    (listed,) = (await meshnode("invite", "list", "--output", "json", home=desk.home)).json
    assert set(listed) == {"id", "expires_ms", "confirm", "who"}
    said = await meshnode("invite", "withdraw", listed["id"], home=desk.home)
    assert (said.code, said.out) == (0, f"The invite {listed['id']} is withdrawn: nobody comes in by it.\n")
    ended = await waiting.end()
    assert (ended.code, ended.err.strip().splitlines()[-1]) == (
        1,
        "meshnode: the invite was withdrawn, and nobody came in by it",
    )
    refused = await joining(tmp_path / "lap", waiting.invite)
    assert (refused.code, "used, expired or not for this mesh" in refused.err) == (1, True), refused.err

    view = await desk.client.invite(confirm=True)
    lap = joining(tmp_path / "lap", view.invite)
    assert (await desk.client.invited(view.id, timeout_s=PATIENCE_S)).state == "asks"
    said = await meshnode("invite", "withdraw", view.id, home=desk.home)
    assert said.code == 0, said.err
    assert "'lap' (site " in said.out
    assert (await lap).code == 1
    assert (await desk.client.status()).asking == await desk.client.invites() == await desk.client.peers() == []


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


# --- what is told where it cannot be


async def complains(home: Path, invite: Invite | str, says: str, *, timeout_s: float = 30.0) -> None:
    """Joining fails with one line that says so."""
    text = invite if isinstance(invite, str) else invite.text()
    with pytest.raises(MeshError) as error:
        await join(home, text, name=home.name, timeout_s=timeout_s)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


async def test_each_way_that_an_invite_is_of_no_use_is_one_line(tmp_path: Path) -> None:
    lap, refused = tmp_path / "lap", "the inviter refused: the invite is used, expired or not for this mesh"
    async with Node(tmp_path / "desk", config=loopback(name="desk")) as desk:
        text = (await desk.invite()).invite
        invite = parse_invite_untrusted(text)
        await complains(lap, replace(invite, secret=bytes(16)), refused)  # none that it knows
        await complains(lap, replace(invite, mesh_id=bytes(16)), refused)
        await complains(lap, replace(invite, expires_ms=1), "this invite has expired")
        await complains(lap, replace(invite, site=bytes(16)), "cannot be reached (tried 127.0.0.1:", timeout_s=0.3)
        nowhere = replace(invite, addrs=("127.0.0.1:9", "[::1]:9"))
        await complains(lap, nowhere, "tried 127.0.0.1:9: no answer; [::1]:9: no answer", timeout_s=0.3)
        await complains(lap, text[:-3] + ("aaa" if text[-3:] != "aaa" else "bbb"), "mistyped or cut short")
        await join(lap, text, name="lap")  # after all of that the same home joins
        await complains(lap, text, f"there is a node in {lap} already")
        await complains(tmp_path / "phone", text, refused)  # used
        await complains(tmp_path / "desk", text, "there is a node in")


async def test_a_retired_device_that_comes_back_with_its_key_is_told(tmp_path: Path) -> None:
    lap = tmp_path / "lap"
    async with Node(tmp_path / "desk", config=loopback(name="desk")) as desk:
        await join(lap, (await desk.invite()).invite)
        (lap / "unfinished").touch()  # it lost everything but its key
        site = bytes.fromhex((await desk.peers())[0].site)

        def retire(engine: Engine) -> None:
            engine.context.transact(lambda tx: issue_retirement(engine.context, tx, site))

        await desk.storage.write(retire)
        again = (await desk.invite()).invite
        await complains(lap, again, "was retired from the mesh and cannot come back with its old key")
        await join(tmp_path / "new", again)  # nothing was used up, and a new key is welcome


async def test_a_device_that_was_reinstalled_is_another_one(tmp_path: Path) -> None:
    """Its home is gone and its key with it: it joins by a new invite, beside what it was (which its owner retires)."""
    async with Node(tmp_path / "desk", config=loopback(name="desk")) as desk:
        for _ in range(2):
            await join(tmp_path / "lap", (await desk.invite()).invite, name="lap")
            shutil.rmtree(tmp_path / "lap")
        assert [peer.name for peer in await desk.peers()] == ["lap", "lap"]


@pytest.mark.parametrize(("word", "code"), [("y", 0), ("n", 2), ("", 2)])
async def test_join_shows_whom_it_joins_and_waits_for_yes(tmp_path: Path, word: str, code: int) -> None:
    """At a terminal; without one, nothing but `--yes` says yes."""
    async with Node(tmp_path / "desk", config=loopback(name="desk")) as desk:
        status, invite = await desk.status(), (await desk.invite()).invite
        ours, theirs = os.openpty()
        try:
            process = await start("join", invite, "--name", "lap", home=tmp_path / "lap", stdin=theirs)
            assert process.stderr is not None
            async with asyncio.timeout(PATIENCE_S):
                asked = (await process.stderr.readuntil(b"[y/N] ")).decode()
                assert asked == f"Join mesh {status.mesh_tag}, invited by site {status.short}? [y/N] "
                os.write(ours, f"{word}\n".encode())
                out, err = await process.communicate()
        finally:
            os.close(ours)
            os.close(theirs)
        assert process.returncode == code
        assert ("let in by 'desk'" in out.decode()) == (code == 0)
        assert ("not joined: say yes, or give --yes" in err.decode()) == (code == 2)
        assert len(await desk.peers()) == (1 if code == 0 else 0)
        silent = await meshnode("join", invite, home=tmp_path / "other")
        assert (silent.code, "not joined" in silent.err) == (2, True)


async def test_a_person_may_take_longer_than_looking_for_the_inviter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--timeout` is of looking alone; the question lasts as long as the invite, over one link and over several."""
    monkeypatch.setattr(ceremony, "ASKED_S", 0.0)
    async with Node(tmp_path / "desk", config=loopback(name="desk")) as desk:
        for name, hold_s in (("one", 15.0), ("several", 0.1)):
            monkeypatch.setattr(ceremony, "CONFIRM_HOLD_S", hold_s)
            told: list[str] = []
            view = await desk.invite(confirm=True)
            started = asyncio.get_running_loop().time()
            lap = asyncio.create_task(join(tmp_path / name, view.invite, name=name, timeout_s=1.0, tell=told.append))
            assert (await desk.invited(view.id, timeout_s=PATIENCE_S)).state == "asks"
            await asyncio.sleep(started + 1.3 - asyncio.get_running_loop().time())  # past the time of looking
            await desk.decide(name, approve=True)
            joined = await lap
            assert told == [
                f"waiting for the other device, which may ask its owner: this one is {name!r}, site {joined.short}"
            ]


async def test_a_question_that_nobody_answered_ends_with_the_invite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceremony, "CONFIRM_HOLD_S", 0.1)
    async with Node(tmp_path / "desk", config=loopback(name="desk")) as desk:
        view = await desk.invite(1_000, confirm=True)
        either = r"nobody confirmed at the inviter while the invite lived|is used, expired"  # whose clock says so first
        with pytest.raises(PairingError, match=either):
            await join(tmp_path / "lap", view.invite, name="lap")
        assert (await desk.invited(view.id)).state == "expired"
        assert await desk.peers() == []
