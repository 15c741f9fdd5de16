"""Invites about which a person is asked: who gets to ask, what yes and no do, who may come again (profile §10, §13)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
from support.desk import StoreDesk
from support.memory_link import MemoryLink, inviter_ends, joiner_ends, memory_links
from support.mesh_context import Device, TestTime
from support.records import FOUNDER, MESH_ID, site_key

from meshnode import limits
from meshnode.engine import candidates, invites
from meshnode.engine.authority import issue_retirement, issue_role, issue_vouch
from meshnode.errors import CloseCode, NotFoundError, PairingError, UnansweredError, UsageError
from meshnode.model.invite import Invite
from meshnode.model.site import SiteKey, short_text, site_text
from meshnode.node import ceremony
from meshnode.node.ceremony import UnknownInvites, invite_over, join_over
from meshnode.node.pairing import Joined
from meshnode.store import invites as stored_invites

FIRST, PHONE, LAPTOP = site_key(1), site_key(2), site_key(3)


def make_invite(device: Device) -> Invite:
    return device.run(lambda tx: invites.create_invite(device.context, tx, addrs=[], confirm=True))


class Ceremony:
    """One joiner at the inviter's door; `both` are the results, exceptions included."""

    def __init__(self, desk: StoreDesk, invite: Invite, key: SiteKey, *, name: str = "phone") -> None:
        time = desk.device.time
        theirs, ours = memory_links(FIRST, key)
        self.link: MemoryLink = ours
        self.told = 0
        inviting: Coroutine[Any, Any, bytes | None] = invite_over(
            theirs,
            inviter_ends(theirs, MESH_ID, FIRST.site),
            desk,
            name="nas",
            nonce=time.random_bytes(16),
            unknown=UnknownInvites(time.wall_ms),
        )
        joining = join_over(
            ours,
            joiner_ends(ours, invite, key.public_key),
            invite,
            key=key,
            name=name,
            random_bytes=time.random_bytes,
            now_ms=time.wall_ms,
            on_asked=self._told,
        )
        self.both = asyncio.gather(inviting, joining, return_exceptions=True)

    def _told(self) -> None:
        self.told += 1


async def asked(desk: StoreDesk, invite: Invite, key: SiteKey, **how: Any) -> Ceremony:
    """A ceremony that has come to where the person is asked."""
    desk.asked.clear()
    ceremony = Ceremony(desk, invite, key, **how)
    async with asyncio.timeout(60):
        await desk.asked.wait()
    return ceremony


def waiting(device: Device) -> list[candidates.Candidate]:
    return device.run(lambda tx: candidates.candidates(tx, device.time.now_ms))


async def test_nobody_is_a_member_before_yes(inviter: Device, time: TestTime) -> None:
    desk, invite = StoreDesk(inviter), make_invite(inviter)
    paired = await asked(desk, invite, PHONE)
    (candidate,) = waiting(inviter)
    assert (candidate.site, candidate.name, candidate.since_ms) == (PHONE.site, "phone", time.now_ms)
    assert PHONE.site not in inviter.context.membership.by_site
    assert len(paired.link.other.sent) == 1  # pair-open, and no record
    desk.decide(short_text(PHONE.site), approve=True)
    admitted, joined = await paired.both
    assert admitted == PHONE.public_key
    assert isinstance(joined, Joined)
    assert inviter.context.membership.by_site[PHONE.site].name == "phone"
    assert waiting(inviter) == []
    assert inviter.notices() == {"joined": 1}


async def test_no_ends_the_invite_for_everybody(inviter: Device) -> None:
    desk, invite = StoreDesk(inviter), make_invite(inviter)
    paired = await asked(desk, invite, PHONE)
    desk.decide("phone", approve=False)
    admitted, refused = await paired.both
    assert admitted is None
    assert type(refused) is PairingError
    assert waiting(inviter) == []
    for key in (PHONE, LAPTOP):
        _, again = await Ceremony(desk, invite, key).both
        assert type(again) is PairingError
    assert inviter.context.membership.by_site.keys() == {FIRST.site}
    with pytest.raises(NotFoundError, match="nobody called 'phone'"):
        desk.decide("phone", approve=True)


async def test_the_link_is_let_go_and_the_same_key_comes_again(
    inviter: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ceremony, "CONFIRM_HOLD_S", 0.01)
    desk, invite = StoreDesk(inviter), make_invite(inviter)
    for _ in range(2):
        paired = await asked(desk, invite, PHONE)
        _, undecided = await paired.both
        assert isinstance(undecided, UnansweredError)
        assert undecided.asked
        assert paired.told == 1
        assert paired.link.ending is not None
        assert paired.link.ending.code is CloseCode.NOT_AUTHENTICATED
    desk.decide(site_text(PHONE.site), approve=True)
    _, joined = await Ceremony(desk, invite, PHONE).both
    assert isinstance(joined, Joined)
    assert inviter.notices() == {"joined": 1}


async def test_the_first_to_prove_it_is_the_only_one_that_asks(inviter: Device) -> None:
    desk, invite = StoreDesk(inviter), make_invite(inviter)
    paired = await asked(desk, invite, PHONE)
    _, second = await Ceremony(desk, invite, LAPTOP).both
    assert type(second) is PairingError
    assert [each.site for each in waiting(inviter)] == [PHONE.site]
    desk.decide("phone", approve=True)
    assert isinstance((await paired.both)[1], Joined)


async def test_without_the_secret_nobody_is_asked_about(inviter: Device) -> None:
    desk, invite = StoreDesk(inviter), make_invite(inviter)
    for _ in range(limits.INVITE_TRIES + 1):
        await Ceremony(desk, replace(invite, secret=bytes(16)), LAPTOP).both
    assert waiting(inviter) == []
    stored = inviter.run(lambda tx: stored_invites.get(tx, invite.invite_id))
    assert stored is not None
    assert stored.tries == 0
    paired = await asked(desk, invite, PHONE)
    desk.decide("phone", approve=True)
    assert isinstance((await paired.both)[1], Joined)


async def test_who_asks_and_who_decides_outlive_a_restart(inviter: Device) -> None:
    invite = make_invite(inviter)
    paired = await asked(StoreDesk(inviter), invite, PHONE)
    paired.link.lose()
    admitted, lost = await paired.both
    assert admitted is None
    assert isinstance(lost, UnansweredError)
    assert not lost.asked
    again = inviter.reopened()
    desk = StoreDesk(again)
    desk.decide("phone", approve=True)
    _, joined = await Ceremony(desk, invite, PHONE).both
    assert isinstance(joined, Joined)
    assert joined.membership == again.context.membership
    again.context.db.close()


async def test_a_joiner_that_talks_while_a_person_is_asked_is_out(inviter: Device) -> None:
    desk, invite = StoreDesk(inviter), make_invite(inviter)
    paired = await asked(desk, invite, PHONE)
    paired.link.send_control(b"\0\0\0\1\xa0")
    _, refused = await paired.both
    assert isinstance(refused, PairingError)
    assert paired.link.ending is not None
    assert paired.link.ending.code is CloseCode.PROTOCOL_ERROR
    assert [each.site for each in waiting(inviter)] == [PHONE.site]


async def test_a_joiner_that_gives_up_frees_the_link_at_once(inviter: Device) -> None:
    desk, invite = StoreDesk(inviter), make_invite(inviter)
    paired = await asked(desk, invite, PHONE)
    paired.link.close(CloseCode.DONE, "given up")
    async with asyncio.timeout(60):
        admitted, _ = await paired.both
    assert admitted is None


async def test_the_invites_time_bounds_the_question(inviter: Device, time: TestTime) -> None:
    desk, invite = StoreDesk(inviter), make_invite(inviter)
    paired = await asked(desk, invite, PHONE)
    time.now_ms = invite.expires_ms + 1
    _, refused = await paired.both
    assert type(refused) is PairingError
    assert waiting(inviter) == []
    with pytest.raises(NotFoundError):
        desk.decide("phone", approve=True)
    assert PHONE.site not in inviter.context.membership.by_site


async def test_a_name_like_anothers_id_does_not_stand_in_its_way(inviter: Device) -> None:
    desk, one, two = StoreDesk(inviter), make_invite(inviter), make_invite(inviter)
    honest = await asked(desk, one, PHONE)
    posing = await asked(desk, two, LAPTOP, name=short_text(PHONE.site))
    desk.decide(short_text(PHONE.site), approve=True)
    assert isinstance((await honest.both)[1], Joined)
    assert LAPTOP.site not in inviter.context.membership.by_site
    posing.link.close(CloseCode.DONE, "")
    await posing.both


async def test_two_of_one_name_are_told_apart_by_their_ids(inviter: Device) -> None:
    desk, one, two = StoreDesk(inviter), make_invite(inviter), make_invite(inviter)
    both = [await asked(desk, one, PHONE), await asked(desk, two, LAPTOP)]
    with pytest.raises(UsageError, match="several"):
        desk.decide("phone", approve=True)
    desk.decide(site_text(LAPTOP.site), approve=True)
    assert isinstance((await both[1].both)[1], Joined)
    assert [each.site for each in waiting(inviter)] == [PHONE.site]
    both[0].link.close(CloseCode.DONE, "")
    await both[0].both


def retire(device: Device) -> None:
    context = device.context
    device.run(lambda tx: issue_vouch(context, tx, PHONE.public_key, "phone"))
    device.run(lambda tx: issue_retirement(context, tx, PHONE.site))


def demote(device: Device) -> None:
    device.run(lambda tx: issue_role(device.context, tx, FIRST.site, "member", signer=FOUNDER))


@pytest.mark.parametrize(("meanwhile", "why"), [(retire, "retired"), (demote, "may not let others in")])
async def test_yes_that_cannot_count_changes_nothing(
    inviter: Device, meanwhile: Callable[[Device], None], why: str
) -> None:
    desk, invite = StoreDesk(inviter), make_invite(inviter)
    paired = await asked(desk, invite, PHONE)
    meanwhile(inviter)
    before = inviter.context.membership
    with pytest.raises(PairingError, match=why):
        desk.decide("phone", approve=True)
    assert inviter.context.membership == before
    assert [each.site for each in waiting(inviter)] == [PHONE.site]
    paired.link.close(CloseCode.DONE, "")
    await paired.both


async def test_the_same_device_starts_again_with_another_invite(inviter: Device) -> None:
    """Its answer was lost and the first invite is gone: the key that it kept is a member's already."""
    desk = StoreDesk(inviter)
    for _ in range(2):
        paired = await asked(desk, make_invite(inviter), PHONE)
        desk.decide("phone", approve=True)
        assert isinstance((await paired.both)[1], Joined)
    sql = "SELECT count(*) FROM meshnode_records WHERE signer = ?"
    assert inviter.run(lambda tx: tx.execute(sql, (FIRST.site,)).fetchone()) == (1,)
