"""The pairing ceremony over a link in memory, honest and attacked (profile §10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.desk import StoreDesk
from support.memory_link import MemoryLink, inviter_ends, joiner_ends, memory_links
from support.mesh_context import Device, TestTime
from support.records import FOUNDER, MESH_ID, site_key, vouch

from meshnode import limits
from meshnode.codec.framing import FrameReader, frame
from meshnode.engine import invites
from meshnode.engine.authority import issue_retirement, issue_role, issue_vouch
from meshnode.engine.invites import Admission
from meshnode.errors import CloseCode, MeshError, NotFoundError, PairingError, StoreError, UsageError
from meshnode.model.frames import Pair, Paired, PairHello, PairOpen, encode_frame
from meshnode.model.frames_untrusted import decode_pairing_untrusted
from meshnode.model.introduction import walk_untrusted
from meshnode.model.invite import Invite
from meshnode.model.pairing import Ends, Proof, joiner_mac, joiner_signature, transcript
from meshnode.model.site import SiteKey, short_text
from meshnode.net.endpoint_ports import Ending
from meshnode.node import ceremony
from meshnode.node.ceremony import UnknownInvites, invite_over, join_over
from meshnode.node.pairing import Joined
from meshnode.store import invites as stored_invites
from meshnode.store.invites import answered_until

FIRST, PHONE, LAPTOP = site_key(1), site_key(2), site_key(3)
SPKI_I, SPKI_J = b"a" * 32, b"d" * 32

REFUSAL = Ending(CloseCode.NOT_AUTHENTICATED, "pairing refused", local=False)

Hostile = Callable[["RawJoiner"], Coroutine[Any, Any, None]]


def make_invite(device: Device, ttl_ms: int = limits.INVITE_TTL_MS) -> Invite:
    return device.run(lambda tx: invites.create_invite(device.context, tx, addrs=["192.0.2.1:4747"], ttl_ms=ttl_ms))


def ends_for(joiner: SiteKey) -> Ends:
    return Ends(MESH_ID, FIRST.site, SPKI_I, joiner.public_key, SPKI_J)


def tries(device: Device, invite: Invite) -> int:
    stored = device.run(lambda tx: stored_invites.get(tx, invite.invite_id))
    assert stored is not None
    return stored.tries


def serve(device: Device, link: MemoryLink, unknown: UnknownInvites | None = None) -> Coroutine[Any, Any, bytes | None]:
    time = device.time
    return invite_over(
        link,
        inviter_ends(link, MESH_ID, FIRST.site),
        StoreDesk(device),
        name="nas",
        nonce=time.random_bytes(16),
        unknown=unknown or UnknownInvites(time.wall_ms),
    )


def joining(device: Device, link: MemoryLink, invite: Invite, key: SiteKey) -> Coroutine[Any, Any, Joined]:
    time = device.time
    return join_over(
        link,
        joiner_ends(link, invite, key.public_key),
        invite,
        key=key,
        name="phone",
        random_bytes=time.random_bytes,
        now_ms=time.wall_ms,
    )


async def pair(device: Device, invite: Invite, key: SiteKey) -> tuple[Any, Any, MemoryLink]:
    """Both honest sides to the end: what the inviter admitted, what the joiner got, and the joiner's link."""
    theirs, ours = memory_links(FIRST, key)
    return *await both(device, theirs, ours, invite, key), ours


async def both(device: Device, theirs: MemoryLink, ours: MemoryLink, invite: Invite, key: SiteKey) -> tuple[Any, Any]:
    """The two results, exceptions included."""
    admitted, joined = await asyncio.gather(
        serve(device, theirs), joining(device, ours, invite, key), return_exceptions=True
    )
    return admitted, joined


class RawJoiner:
    """A joiner that says what the test wants."""

    def __init__(self, link: MemoryLink) -> None:
        self.link = link
        self._reader = FrameReader()
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        link.on_control = lambda data: [self._frames.put_nowait(each) for each in self._reader.feed(data)] and None
        link.on_closed = lambda *_: self._frames.put_nowait(None)

    def say(self, cbor: bytes) -> None:
        self.link.send_control(frame(cbor))

    async def hear(self) -> Any:
        cbor = await self._frames.get()
        return None if cbor is None else decode_pairing_untrusted(cbor)


async def attack(device: Device, joiner: SiteKey, hostile: Hostile) -> MemoryLink:
    """A hostile joiner against the inviter; returns the joiner's end of the closed link."""
    theirs, ours = memory_links(FIRST, joiner)
    raw = RawJoiner(ours)
    admitted, _ = await asyncio.gather(serve(device, theirs), hostile(raw))
    assert admitted is None
    assert joiner.site not in device.context.membership.by_site
    return ours


async def test_an_invite_makes_a_member(inviter: Device) -> None:
    invite = make_invite(inviter)
    admitted, joined, link = await pair(inviter, invite, PHONE)
    assert admitted == PHONE.public_key
    assert joined.inviter_name == "nas"
    assert joined.membership == inviter.context.membership
    member = inviter.context.membership.by_site[PHONE.site]
    assert (member.name, member.vouched_by, member.role) == ("phone", FIRST.site, "member")
    assert link.ending == Ending(CloseCode.DONE, "", True)


async def test_what_the_joiner_got_is_a_mesh_on_its_own_disk(inviter: Device, tmp_path: Path, time: TestTime) -> None:
    _, joined, _ = await pair(inviter, make_invite(inviter), PHONE)
    device = Device(tmp_path / "joiner.db", PHONE, time)
    device.add(*joined.records, peer=FIRST.site)
    assert device.context.membership == inviter.context.membership
    device.context.db.close()


async def test_the_same_key_gets_the_answer_again_until_it_expires(inviter: Device, time: TestTime) -> None:
    invite = make_invite(inviter)
    _, first, _ = await pair(inviter, invite, PHONE)
    time.now_ms = invite.expires_ms
    _, again, _ = await pair(inviter, invite, PHONE)
    assert again == first
    time.now_ms += 1
    _, late, link = await pair(inviter, invite, PHONE)
    assert isinstance(late, PairingError)
    assert link.ending == REFUSAL


async def test_another_key_cannot_use_it_again(inviter: Device) -> None:
    invite = make_invite(inviter)
    await pair(inviter, invite, PHONE)
    admitted, refused, link = await pair(inviter, invite, LAPTOP)
    assert admitted is None
    assert isinstance(refused, PairingError)
    assert link.ending == REFUSAL
    assert LAPTOP.site not in inviter.context.membership.by_site


async def test_of_two_at_once_one_is_admitted(inviter: Device) -> None:
    invite = make_invite(inviter)
    results = await asyncio.gather(pair(inviter, invite, PHONE), pair(inviter, invite, LAPTOP))
    admitted = [each[0] for each in results if each[0] is not None]
    assert len(admitted) == 1
    assert len(inviter.context.membership.by_site) == 2
    assert tries(inviter, invite) == 0  # the later one was right, only late


async def test_a_lost_answer_can_be_had_again(inviter: Device) -> None:
    invite = make_invite(inviter)
    theirs, ours = memory_links(FIRST, PHONE)
    deliver = ours._receive

    def lose_the_answer(data: bytes) -> None:
        if len(theirs.sent) < 2:
            deliver(data)
        else:
            ours.lose()

    ours._receive = lose_the_answer  # type: ignore[method-assign]
    admitted, lost = await both(inviter, theirs, ours, invite, PHONE)
    assert admitted == PHONE.public_key
    assert isinstance(lost, PairingError)
    _, joined, _ = await pair(inviter, invite, PHONE)
    assert isinstance(joined, Joined)
    assert len(joined.records) == 3


async def test_expired_used_burnt_withdrawn_and_unknown_look_alike(inviter: Device, time: TestTime) -> None:
    expired = make_invite(inviter, 1)
    used, burnt, withdrawn = make_invite(inviter), make_invite(inviter), make_invite(inviter)
    unknown = replace(used, secret=bytes(16))
    await pair(inviter, used, LAPTOP)
    for _ in range(limits.INVITE_TRIES):
        inviter.run(lambda tx: stored_invites.burn_try(tx, burnt.invite_id))
    inviter.run(lambda tx: invites.withdraw(inviter.context, tx, withdrawn.invite_id))
    time.now_ms += 2
    seen = []
    for invite in (expired, used, burnt, withdrawn, unknown):
        admitted, error, link = await pair(inviter, invite, PHONE)
        assert admitted is None
        seen.append((str(error), link.ending, link.other.sent))
    assert seen == [seen[0]] * 5
    assert seen[0][1:] == (REFUSAL, [])


async def test_wrong_proofs_burn_the_invite(inviter: Device) -> None:
    invite = make_invite(inviter)
    guess = replace(invite, secret=bytes(16))

    async def hostile(raw: RawJoiner) -> None:
        raw.say(encode_frame(PairHello(invite=invite.invite_id, nonce=bytes(16))))
        opened = await raw.hear()
        t = transcript(ends_for(LAPTOP), opened.nonce, bytes(16))
        mac, sig = joiner_mac(guess.secret, t), joiner_signature(LAPTOP, t)
        raw.say(encode_frame(Pair(public_key=LAPTOP.public_key, name="x", mac=mac, sig=sig)))
        assert await raw.hear() is None

    for burnt in range(1, limits.INVITE_TRIES + 1):
        if burnt == limits.INVITE_TRIES:
            assert inviter.run(answered_until) == invite.expires_ms
        link = await attack(inviter, LAPTOP, hostile)
        assert link.ending == REFUSAL
        assert tries(inviter, invite) == burnt
    assert inviter.run(answered_until) is None
    assert inviter.notices() == {"pairing-refused": limits.INVITE_TRIES}
    _, refused, _ = await pair(inviter, invite, PHONE)
    assert isinstance(refused, PairingError)


async def test_four_wrong_proofs_leave_one(inviter: Device) -> None:
    invite = make_invite(inviter)
    for _ in range(limits.INVITE_TRIES - 1):
        inviter.run(lambda tx: stored_invites.burn_try(tx, invite.invite_id))
    admitted, _, _ = await pair(inviter, invite, PHONE)
    assert admitted == PHONE.public_key


def bad_pair(invite: Invite, change: Callable[[Ends, bytes, bytes], tuple[Ends, bytes, bytes]]) -> Hostile:
    """A joiner that knows the secret but whose transcript is not that of this link."""

    async def hostile(raw: RawJoiner) -> None:
        nonce_j = b"n" * 16
        raw.say(encode_frame(PairHello(invite=invite.invite_id, nonce=nonce_j)))
        opened = await raw.hear()
        t = transcript(*change(ends_for(LAPTOP), opened.nonce, nonce_j))
        mac, sig = joiner_mac(invite.secret, t), joiner_signature(LAPTOP, t)
        raw.say(encode_frame(Pair(public_key=LAPTOP.public_key, name="x", mac=mac, sig=sig)))
        assert await raw.hear() is None

    return hostile


@pytest.mark.parametrize(
    "change",
    [
        lambda ends, i, j: (ends, j, i),
        lambda ends, i, j: (replace(ends, inviter_spki=b"x" * 32), i, j),
        lambda ends, i, j: (replace(ends, joiner_spki=b"x" * 32), i, j),
        lambda ends, i, j: (replace(ends, inviter=LAPTOP.site), i, j),
        lambda ends, i, j: (replace(ends, joiner_public_key=PHONE.public_key), i, j),
        lambda ends, i, j: (replace(ends, mesh_id=bytes(16)), i, j),
        lambda ends, i, j: (ends, bytes(16), j),
    ],
    ids=["swapped nonces", "inviter spki", "joiner spki", "inviter", "joiner key", "mesh", "old nonce"],
)
async def test_a_proof_of_another_link_is_wrong(
    inviter: Device, change: Callable[[Ends, bytes, bytes], tuple[Ends, bytes, bytes]]
) -> None:
    invite = make_invite(inviter)
    link = await attack(inviter, LAPTOP, bad_pair(invite, change))
    assert link.ending == REFUSAL
    assert tries(inviter, invite) == 1


async def test_a_replayed_pair_is_wrong(inviter: Device) -> None:
    invite = make_invite(inviter)
    theirs, ours = memory_links(FIRST, PHONE)
    await both(inviter, theirs, ours, invite, PHONE)
    hello, proof = ours.sent
    second = make_invite(inviter)

    async def replay(raw: RawJoiner) -> None:
        raw.link.send_control(frame(encode_frame(PairHello(invite=second.invite_id, nonce=bytes(16)))))
        await raw.hear()
        raw.link.send_control(proof)
        assert await raw.hear() is None

    link = await attack(inviter, LAPTOP, replay)
    assert link.ending == REFUSAL

    async def replay_all(raw: RawJoiner) -> None:
        raw.link.send_control(hello)
        assert await raw.hear() is None  # consumed by another key: not even opened
        raw.link.send_control(proof)

    await attack(inviter, LAPTOP, replay_all)


async def test_a_pair_frame_with_another_key_than_the_binding_is_wrong(inviter: Device) -> None:
    invite = make_invite(inviter)

    async def hostile(raw: RawJoiner) -> None:
        raw.say(encode_frame(PairHello(invite=invite.invite_id, nonce=bytes(16))))
        opened = await raw.hear()
        t = transcript(ends_for(LAPTOP), opened.nonce, bytes(16))
        mac, sig = joiner_mac(invite.secret, t), joiner_signature(LAPTOP, t)
        raw.say(encode_frame(Pair(public_key=PHONE.public_key, name="x", mac=mac, sig=sig)))
        assert await raw.hear() is None

    link = await attack(inviter, LAPTOP, hostile)
    assert link.ending is not None
    assert link.ending.code == CloseCode.NOT_AUTHENTICATED
    assert PHONE.site not in inviter.context.membership.by_site


async def test_a_false_inviter_is_not_believed(inviter: Device) -> None:
    """Somebody between the two, with a link of its own to each, cannot pass the frames on."""
    invite = make_invite(inviter)
    theirs, ours = memory_links(FIRST, PHONE)
    ours.spki = b"m" * 32
    admitted, refused = await both(inviter, theirs, ours, invite, PHONE)
    assert admitted is None
    assert isinstance(refused, PairingError)


async def test_another_site_than_the_inviter_is_told_nothing(inviter: Device) -> None:
    invite = make_invite(inviter)
    _, ours = memory_links(LAPTOP, PHONE)
    with pytest.raises(PairingError, match="another device"):
        await joining(inviter, ours, invite, PHONE)
    assert ours.sent == []


async def test_a_link_that_ended_before_is_noticed(inviter: Device) -> None:
    invite = make_invite(inviter)
    theirs, ours = memory_links(FIRST, PHONE)
    ours.lose()
    admitted, lost = await both(inviter, theirs, ours, invite, PHONE)
    assert admitted is None
    assert isinstance(lost, PairingError)


async def test_paired_without_the_secret_is_not_believed(inviter: Device) -> None:
    invite = make_invite(inviter)
    forger = replace(invite, secret=bytes(16))
    theirs, ours = memory_links(FIRST, PHONE)
    raw = RawJoiner(theirs)  # the roles are swapped: this raw end plays the inviter

    async def forge() -> None:
        hello = await raw.hear()
        raw.say(encode_frame(PairOpen(nonce=bytes(16))))
        await raw.hear()
        t = transcript(ends_for(PHONE), bytes(16), hello.nonce)
        answer = invites.Admission(invites.inviter_mac(forger.secret, t), ())
        raw.say(encode_frame(Paired(mac=answer.mac, records=answer.records, name="x")))
        assert await raw.hear() is None

    refused, _ = await asyncio.gather(joining(inviter, ours, invite, PHONE), forge(), return_exceptions=True)
    assert isinstance(refused, PairingError)
    assert "secret" in str(refused)


@pytest.mark.parametrize("frames", [[b"\xff"], [encode_frame(PairOpen(nonce=bytes(16)))], [b"\xa0"] * 9], ids=len)
async def test_frames_that_are_not_due_are_protocol_errors(inviter: Device, frames: list[bytes]) -> None:
    make_invite(inviter)

    async def hostile(raw: RawJoiner) -> None:
        for each in frames:
            raw.say(each)
        assert await raw.hear() is None

    link = await attack(inviter, LAPTOP, hostile)
    assert link.ending is not None
    assert link.ending.code == CloseCode.PROTOCOL_ERROR


async def test_a_frame_that_is_too_large_is_refused_by_its_length(inviter: Device) -> None:
    make_invite(inviter)

    async def hostile(raw: RawJoiner) -> None:
        raw.link.send_control((limits.HELLO_BYTES + 1).to_bytes(4, "big"))
        assert await raw.hear() is None

    link = await attack(inviter, LAPTOP, hostile)
    assert link.ending is not None
    assert link.ending.code == CloseCode.LIMIT


async def test_a_silent_joiner_is_let_go(inviter: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceremony, "HANDSHAKE_S", 0.01)
    make_invite(inviter)

    async def silent(raw: RawJoiner) -> None:
        assert await raw.hear() is None

    link = await attack(inviter, LAPTOP, silent)
    assert link.ending == REFUSAL


async def test_a_silent_inviter_is_given_up(inviter: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ceremony, "PAIRING_S", 0.01)
    _, ours = memory_links(FIRST, PHONE)
    with pytest.raises(PairingError, match="in time"):
        await joining(inviter, ours, make_invite(inviter), PHONE)
    assert ours.ending is not None


async def test_unknown_invites_are_answered_so_often_in_a_minute(inviter: Device, time: TestTime) -> None:
    unknown = UnknownInvites(time.wall_ms, per_minute=2)
    invite = make_invite(inviter)
    guess = replace(invite, secret=bytes(16))

    async def attempt(tried: Invite, key: SiteKey, ours: MemoryLink) -> None:
        await asyncio.gather(
            serve(inviter, ours.other, unknown), joining(inviter, ours, tried, key), return_exceptions=True
        )

    async def answered(tried: Invite, key: SiteKey) -> Ending | None:
        ours = memory_links(FIRST, key)[1]
        await attempt(tried, key, ours)
        return ours.ending

    assert [await answered(guess, LAPTOP) for _ in range(2)] == [REFUSAL] * 2
    kept_waiting = memory_links(FIRST, LAPTOP)[1]
    waiting = asyncio.create_task(attempt(guess, LAPTOP, kept_waiting))
    # An invite that exists is never kept waiting, and guesses burn none of its tries.
    assert await answered(invite, PHONE) == Ending(CloseCode.DONE, "", True)
    assert tries(inviter, invite) == 0
    assert kept_waiting.ending is None
    kept_waiting.lose()
    await waiting
    time.now_ms += 60_001
    assert await answered(guess, LAPTOP) == REFUSAL


def test_refusals_in_a_minute_are_counted_inclusively(time: TestTime) -> None:
    unknown = UnknownInvites(time.wall_ms)
    assert [unknown.may_answer() for _ in range(limits.UNKNOWN_INVITES_PER_MINUTE)].count(False) == 0
    assert not unknown.may_answer()
    time.now_ms -= 3_600_000  # the wall clock steps back: nobody is kept waiting for an hour
    assert unknown.may_answer()


async def test_a_retired_site_is_refused_before_anything_is_consumed(inviter: Device) -> None:
    context = inviter.context
    inviter.run(lambda tx: issue_vouch(context, tx, PHONE.public_key, "phone"))
    inviter.run(lambda tx: issue_retirement(context, tx, PHONE.site))
    invite = make_invite(inviter)
    admitted, refused, link = await pair(inviter, invite, PHONE)
    assert admitted is None
    assert "retired" in str(refused)
    assert link.ending is not None
    assert link.ending.code == CloseCode.RETIRED
    admitted, _, _ = await pair(inviter, invite, LAPTOP)
    assert admitted == LAPTOP.public_key


async def test_neither_the_inviters_own_key_nor_the_recovery_key_joins(inviter: Device) -> None:
    invite = make_invite(inviter)
    for key in (FIRST, FOUNDER):
        admitted, refused, _ = await pair(inviter, invite, key)
        assert admitted is None
        assert isinstance(refused, PairingError)
    assert tries(inviter, invite) == 0


async def test_an_inviter_that_lost_its_authority_refuses(inviter: Device) -> None:
    context = inviter.context
    invite = make_invite(inviter)
    inviter.run(lambda tx: issue_role(context, tx, FIRST.site, "member", signer=FOUNDER))
    admitted, refused, link = await pair(inviter, invite, PHONE)
    assert admitted is None
    assert isinstance(refused, PairingError)
    assert link.ending == REFUSAL
    with pytest.raises(UsageError, match="authority"):
        make_invite(inviter)


async def test_a_joiner_with_a_slow_clock_is_told(inviter: Device, time: TestTime) -> None:
    invite = make_invite(inviter)
    theirs, ours = memory_links(FIRST, PHONE)
    slow = join_over(
        ours,
        joiner_ends(ours, invite, PHONE.public_key),
        invite,
        key=PHONE,
        name="phone",
        random_bytes=time.random_bytes,
        now_ms=lambda: time.now_ms - limits.SKEW_MS - 1000,
    )
    _, refused = await asyncio.gather(serve(inviter, theirs), slow, return_exceptions=True)
    assert isinstance(refused, PairingError)
    assert "clock is 301 s behind" in str(refused)
    _, joined, _ = await pair(inviter, invite, PHONE)
    assert isinstance(joined, Joined)


async def test_consuming_and_vouching_are_one_transaction(inviter: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    invite = make_invite(inviter)

    def fail(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(invites, "issue_vouch", fail)
        admitted, refused, link = await pair(inviter, invite, PHONE)
    assert isinstance(admitted, MeshError)
    assert isinstance(refused, PairingError)
    assert link.ending is not None
    assert link.ending.code == CloseCode.INTERNAL
    admitted, _, _ = await pair(inviter, invite, LAPTOP)
    assert admitted == LAPTOP.public_key


def test_open_invites_are_bounded_and_expire(inviter: Device, time: TestTime) -> None:
    assert inviter.run(answered_until) is None
    made = [make_invite(inviter) for _ in range(limits.OPEN_INVITES)]
    assert len({each.secret for each in made}) == limits.OPEN_INVITES
    with pytest.raises(UsageError, match="open already"):
        make_invite(inviter)
    time.now_ms = made[0].expires_ms
    with pytest.raises(UsageError, match="open already: withdraw one"):
        make_invite(inviter)
    inviter.run(lambda tx: invites.withdraw(inviter.context, tx, made[1].invite_id))
    again = make_invite(inviter, 1)
    inviter.run(lambda tx: invites.withdraw(inviter.context, tx, again.invite_id))
    time.now_ms += 1
    make_invite(inviter)
    assert inviter.run(answered_until) == time.now_ms + limits.INVITE_TTL_MS


async def test_what_is_over_cannot_be_withdrawn_and_says_why(inviter: Device, time: TestTime) -> None:
    used, withdrawn, expired = (make_invite(inviter) for _ in range(3))
    await pair(inviter, used, LAPTOP)

    def withdraw(invite: Invite) -> object:
        return inviter.run(lambda tx: invites.withdraw(inviter.context, tx, invite.invite_id))

    withdraw(withdrawn)
    assert [each.invite_id for each in inviter.run(lambda tx: stored_invites.every_open(tx, time.now_ms))] == [
        expired.invite_id
    ]
    with pytest.raises(NotFoundError, match=f"used by .* already: `meshnode retire {short_text(LAPTOP.site)}`"):
        withdraw(used)
    with pytest.raises(NotFoundError, match="withdrawn already"):
        withdraw(withdrawn)
    time.now_ms = expired.expires_ms + 1
    for gone in (expired, replace(expired, secret=bytes(16))):
        with pytest.raises(NotFoundError, match="`meshnode invite list`"):
            withdraw(gone)


def test_an_invite_survives_a_restart(inviter: Device) -> None:
    invite = make_invite(inviter)
    again = inviter.reopened()
    refusal = again.run(lambda tx: invites.refusal(again.context, tx, invite.invite_id, PHONE.public_key))
    assert refusal is None
    again.context.db.close()


def test_paired_carries_what_fits_and_what_counts_first(inviter: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    context = inviter.context
    invite = make_invite(inviter)
    t = transcript(ends_for(PHONE), bytes(16), bytes(16))
    proof = Proof(ends_for(PHONE), t, PHONE.public_key, joiner_mac(invite.secret, t), joiner_signature(PHONE, t))
    inviter.add(*(vouch(site_key(number), PHONE, 5) for number in range(50, 60)))
    monkeypatch.setattr(invites, "PAIRED_RECORDS_BYTES", 1_000)
    answer = inviter.run(lambda tx: invites.settle(context, tx, invite.invite_id, proof, "phone"))
    assert isinstance(answer, Admission)
    assert 3 <= len(answer.records) < 13
    assert sum(map(len, answer.records)) <= 1_000
    alone = walk_untrusted(answer.records, mesh_id=MESH_ID, founder_key=FOUNDER.public_key)
    assert alone == context.membership
