"""Each side of a pairing stopped at every step: both can finish or start again, nothing is half done (profile §10)."""

from __future__ import annotations

import asyncio
import hashlib
import shutil
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.desk import StoreDesk
from support.memory_link import inviter_ends, joiner_ends, memory_links
from support.mesh_context import Device, TestTime
from support.records import FOUNDER, MESH_ID, site_key

from meshnode.engine import candidates, invites
from meshnode.engine.invites import Admission
from meshnode.errors import CloseCode, PairingError
from meshnode.model.invite import Invite
from meshnode.model.pairing import Ends, Proof, joiner_mac, joiner_signature, transcript
from meshnode.model.site import SiteKey
from meshnode.node import databases, joining
from meshnode.node.ceremony import UnknownInvites, invite_over, join_over
from meshnode.node.config import Config
from meshnode.node.home import Home
from meshnode.node.pairing import Joined, admitting_untrusted
from meshnode.node.storage import Storage, wall_ms
from meshnode.store import meta
from meshnode.store.database import Database

FIRST, PHONE, LAPTOP = site_key(1), site_key(2), site_key(3)


class StoppedError(Exception):
    """What a fault raises."""


def make_invite(device: Device, *, confirm: bool = False) -> Invite:
    return device.run(lambda tx: invites.create_invite(device.context, tx, addrs=[], confirm=confirm))


def proof(invite: Invite, key: SiteKey = PHONE) -> Proof:
    ends = Ends(MESH_ID, FIRST.site, b"i" * 32, key.public_key, b"j" * 32)
    t = transcript(ends, bytes(16), bytes(16))
    return Proof(ends, t, key.public_key, joiner_mac(invite.secret, t), joiner_signature(key, t))


# --- the inviter's store

Step = Callable[[Device, Invite], Any]


def settle(device: Device, invite: Invite) -> Any:
    context = device.context
    return device.run(lambda tx: invites.settle(context, tx, invite.invite_id, proof(invite), "phone"))


def say_yes(device: Device, _invite: Invite) -> Any:
    context = device.context
    if device.run(lambda tx: candidates.candidates(tx, device.time.now_ms)):
        device.run(lambda tx: candidates.decide(context, tx, "phone", approve=True))


def let_in(device: Device, _invite: Invite) -> Any:
    context = device.context

    def vouch(tx: Any) -> tuple[bytes, ...]:
        invites.admit(context, tx, PHONE.public_key, "phone", "nearby")
        return invites.records_for(context, tx, PHONE.public_key)

    return device.run(vouch)


PLAIN: list[Step] = [settle, settle]
CONFIRMED: list[Step] = [settle, say_yes, settle]
NEARBY: list[Step] = [let_in]


def rows(path: Path) -> list[Any]:
    """What of the ceremony is on disk: the invite without its secret, and who was vouched for."""
    with closing(sqlite3.connect(path)) as connection:
        invite = "SELECT tries, consumed_by, candidate, candidate_name FROM meshnode_invites ORDER BY invite_id"
        vouched = "SELECT count(*), sum(counts) FROM meshnode_records"
        return [connection.execute(sql).fetchall() for sql in (invite, vouched)]


def assert_one_vouch(device: Device) -> None:
    assert device.context.membership.is_peer(PHONE.site, PHONE.public_key)
    own = "SELECT count(*) FROM meshnode_records WHERE signer = ?"
    assert device.run(lambda tx: tx.execute(own, (FIRST.site,)).fetchone()) == (1,)


@pytest.mark.parametrize("steps", [PLAIN, CONFIRMED, NEARBY], ids=["plain", "confirmed", "nearby"])
def test_an_inviter_that_fails_before_any_statement_has_done_nothing(inviter: Device, steps: list[Step]) -> None:
    """The process lives on: each step is tried until no statement of it fails."""
    invite, stops, answer = make_invite(inviter, confirm=steps is CONFIRMED), 0, None
    for step in steps:
        allowed = 0
        while True:
            left = allowed

            def fault(_point: str) -> None:
                nonlocal left
                if left == 0:
                    raise StoppedError
                left -= 1

            before, member = rows(inviter.path), inviter.context.membership
            inviter.fault = fault
            try:
                answer = step(inviter, invite)
                break
            except StoppedError:
                stops, allowed = stops + 1, allowed + 1
                assert rows(inviter.path) == before
                assert inviter.context.membership == member
            finally:
                inviter.fault = lambda _point: None
    assert stops > 10
    assert answer is not None
    assert_one_vouch(inviter)


@pytest.mark.parametrize("steps", [PLAIN, CONFIRMED, NEARBY], ids=["plain", "confirmed", "nearby"])
def test_power_that_goes_at_the_inviter_leaves_a_state_to_go_on_from(
    inviter: Device, tmp_path: Path, time: TestTime, steps: list[Step]
) -> None:
    """Database and WAL as they lay before each statement: from each, the same joiner does everything again."""
    invite = make_invite(inviter, confirm=steps is CONFIRMED)
    images: list[Path] = []

    def fault(_point: str) -> None:
        image = tmp_path / f"image-{len(images)}.db"
        for suffix in ("", "-wal"):
            shutil.copy(f"{inviter.path}{suffix}", f"{image}{suffix}")
        images.append(image)

    inviter.fault = fault
    for step in steps:
        step(inviter, invite)
    inviter.fault = lambda _point: None
    assert len(images) > 10
    states = []
    for image in images:
        states.append(rows(image))
        if states[-1:] == states[-2:-1]:
            continue  # equal to the one before
        time.created.add(image)
        device = Device(image, FIRST, time)
        for step in steps:
            answer = step(device, invite)
        if steps is not NEARBY:
            assert isinstance(answer, Admission)
        assert_one_vouch(device)
        device.context.db.close()
    assert len({str(state) for state in states}) >= len({str(each) for each in steps})


# --- the link, cut after any frame


@pytest.mark.parametrize("said", range(4))
async def test_a_link_that_is_lost_at_any_step_leaves_the_invite_good(
    inviter: Device, time: TestTime, said: int
) -> None:
    """`said` frames arrive, then the network is gone; the same device with the same invite joins after all."""
    invite = make_invite(inviter)

    async def ceremony(arrive: int) -> tuple[Any, Any]:
        links, arrived = memory_links(FIRST, PHONE), 0
        for end in links:

            def receive(data: bytes, deliver: Callable[[bytes], None] = end._receive) -> None:
                nonlocal arrived
                if arrived == arrive:
                    links[0].lose()
                else:
                    arrived += 1
                    deliver(data)

            end._receive = receive  # type: ignore[method-assign]
        return await asyncio.gather(
            invite_over(
                links[0],
                inviter_ends(links[0], MESH_ID, FIRST.site),
                StoreDesk(inviter),
                name="nas",
                nonce=time.random_bytes(16),
                unknown=UnknownInvites(time.wall_ms),
            ),
            join_over(
                links[1],
                joiner_ends(links[1], invite, PHONE.public_key),
                invite,
                key=PHONE,
                name="phone",
                random_bytes=time.random_bytes,
                now_ms=time.wall_ms,
            ),
            return_exceptions=True,
        )

    _, lost = await ceremony(said)
    assert isinstance(lost, PairingError)
    assert "the invite is still good" in str(lost)
    _, joined = await ceremony(4)
    assert isinstance(joined, Joined)
    assert_one_vouch(inviter)


# --- the joiner's home


@dataclass(frozen=True)
class Image:
    """A joiner's home as it lay before one step, and whether the inviter had vouched by then."""

    path: Path
    vouched: bool


class Watching:
    """Copies a home before every change of a file in it and every SQL statement."""

    def __init__(self, home: Path, images: Path) -> None:
        self.vouched = False
        self.images: list[Image] = []
        self._home = home
        self._folder = images
        self._last = ""
        self._busy = False

    def step(self, _point: str = "") -> None:
        if self._busy or not self._home.exists():
            return
        self._busy = True
        try:
            state = _digest(self._home)
            if state != self._last:  # several steps may have one state
                self._last = state
                image = self._folder / f"{len(self.images)}"
                shutil.copytree(self._home, image)
                self.images.append(Image(image, self.vouched))
        finally:
            self._busy = False

    def audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        names = [str(each) for each in arguments if isinstance(each, str | Path)]
        if event in ("open", "os.rename", "os.remove", "sqlite3.connect") and any(
            name.startswith(str(self._home)) for name in names
        ):
            self.step()


def _digest(folder: Path) -> str:
    files = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.endswith("-shm"))
    return hashlib.sha256(b"".join(path.name.encode() + path.read_bytes() for path in files)).hexdigest()


class Answers:
    """An inviter that answers the same key again, as a real one does, and no other once it has vouched."""

    def __init__(self, device: Device, watching: Watching) -> None:
        self._device = device
        self._watching = watching
        self.key: SiteKey | None = None

    async def __call__(
        self, invite: Invite, key: SiteKey, _config: Config, name: str, *_: object
    ) -> tuple[Joined, str]:
        device, told = self._device, proof(invite, key)
        answer = device.run(lambda tx: invites.settle(device.context, tx, invite.invite_id, told, name))
        assert not isinstance(answer, CloseCode), "the joiner came back with another key"
        assert isinstance(answer, Admission)
        self.key, self._watching.vouched = key, True
        membership = admitting_untrusted(answer.records, MESH_ID, FOUNDER.public_key, key.site, device.time.now_ms)
        return Joined(answer.records, membership, "nas"), "127.0.0.1:4747"


async def test_a_joiner_that_is_stopped_at_any_step_starts_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its home as it lay before each step: `join` with the same invite makes a whole home of every one."""
    inviter = Device.founded(tmp_path / "inviter.db", FIRST, TestTime(wall_ms()))
    invite, home = make_invite(inviter), tmp_path / "home"
    (tmp_path / "images").mkdir()
    watching = Watching(home, tmp_path / "images")
    answers = Answers(inviter, watching)
    hooks: list[Callable[[str, tuple[Any, ...]], None]] = [watching.audit]
    sys.addaudithook(lambda event, arguments: [hook(event, arguments) for hook in hooks] and None)
    monkeypatch.setattr(joining, "pair", answers)
    with monkeypatch.context() as patch:
        patch.setattr(databases, "Database", partial(Database, fault=watching.step))
        await joining.join(home, invite.text(), name="phone")
    hooks.clear()
    assert_whole(home, answers)
    assert len([image for image in watching.images if not image.vouched]) >= 2
    assert len([image for image in watching.images if image.vouched]) > 6
    for image in watching.images:
        if Home(image.path).founded:
            assert image.vouched
        else:
            again = make_invite(inviter) if not image.vouched and not _has_key(image.path) else invite
            await joining.join(image.path, again.text(), name="phone")
        assert_whole(image.path, answers)
    inviter.context.db.close()


def _has_key(home: Path) -> bool:
    """Without one it is a new device, which takes an invite of its own."""
    return (home / "site.key").exists()


def assert_whole(path: Path, answers: Answers) -> None:
    home = Home.load(path)
    key = home.site_key()
    assert key == answers.key or key.site != FIRST.site
    storage = Storage.open(databases.database_of(home, key), key)
    try:
        assert storage.engine.context.membership.is_peer(key.site, key.public_key)
        with storage.engine.context.transaction() as tx:
            assert meta.read_bytes(tx, meta.INCARNATION) == home.incarnation()
    finally:
        storage._close()
    assert home.port
    assert home.config.name == "phone"
    assert not home.unfinished_path.exists()
