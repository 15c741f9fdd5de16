"""Pairing without a string over a link in memory, honest and attacked (profile §10, §13)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import cbor2
import pytest
from blake3 import blake3
from support.memory_link import MemoryLink, memory_links
from support.mesh_context import Device
from support.records import FOUNDER, MESH_ID, site_key

from meshnode.codec.framing import FrameReader, frame
from meshnode.engine import invites
from meshnode.engine.authority import issue_retirement, issue_role, issue_vouch
from meshnode.errors import CloseCode, PairingError, ProtocolError, StoreError
from meshnode.model.frames import NearHello, NearOpen, NearReveal, NearWelcome, NearYes, encode_frame
from meshnode.model.frames_untrusted import decode_nearby_untrusted
from meshnode.model.introduction import walk_untrusted
from meshnode.model.nearby import NONCE_BYTES, End, NearbyEnds, Role, commitment, comparison_code, reveals
from meshnode.model.site import SiteKey
from meshnode.node import nearby_ceremony
from meshnode.node.nearby import Comparison, Welcome
from meshnode.node.nearby_ceremony import Hosting, Visit, host_over, visit_over

FIRST, PHONE, MALLORY = site_key(1), site_key(2), site_key(66)
PORT = 4747


@pytest.fixture
def host(inviter: Device) -> Device:
    return inviter


class HostDesk:
    """The host's store, asked directly."""

    def __init__(self, device: Device) -> None:
        self.device = device

    async def nearby_refusal(self, public_key: bytes) -> CloseCode | None:
        return self.device.run(lambda tx: invites.cannot_admit(self.device.context, public_key))

    async def let_in(self, public_key: bytes, name: str) -> tuple[bytes, ...] | CloseCode:
        context = self.device.context

        def vouch(tx: Any) -> tuple[bytes, ...]:
            invites.admit(context, tx, public_key, name, "nearby")
            return invites.records_for(context, tx, public_key)

        return self.device.run(vouch)


class Person:
    """Sees the digits, and answers at once, when told, or never."""

    def __init__(self, word: bool | None = True) -> None:
        self.seen: list[Comparison] = []
        self.asked = asyncio.Event()
        self.left = False  # the question was taken back
        self._word: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        if word is not None:
            self.say(word)

    def say(self, word: bool) -> None:
        self._word.set_result(word)

    async def __call__(self, comparison: Comparison) -> bool:
        self.seen.append(comparison)
        self.asked.set()
        try:
            return await self._word
        except asyncio.CancelledError:
            self.left = True
            raise


def host_ends(link: MemoryLink, key: SiteKey = FIRST) -> NearbyEnds:
    return NearbyEnds(End(key.public_key, link.own_spki), End(link.public_key, link.spki))


def guest_ends(link: MemoryLink, key: SiteKey = PHONE) -> NearbyEnds:
    return NearbyEnds(End(link.public_key, link.spki), End(key.public_key, link.own_spki))


def hosting(device: Device, link: MemoryLink, person: Person) -> Any:
    settings = Hosting(MESH_ID, FOUNDER.public_key, "nas", device.time.random_bytes(NONCE_BYTES), PORT)
    return host_over(link, host_ends(link), HostDesk(device), settings, person)


def visiting(device: Device, link: MemoryLink, person: Person, key: SiteKey = PHONE) -> Any:
    nonce = device.time.random_bytes(NONCE_BYTES)
    return visit_over(link, guest_ends(link, key), person, name="phone", nonce=nonce, now_ms=device.time.wall_ms)


async def both(
    device: Device, links: tuple[MemoryLink, MemoryLink], at_host: Person, at_guest: Person
) -> tuple[Any, Any]:
    """The two results, exceptions included."""
    theirs, ours = links
    async with asyncio.timeout(60):
        visit, came = await asyncio.gather(
            hosting(device, theirs, at_host), visiting(device, ours, at_guest), return_exceptions=True
        )
    return visit, came


def members(device: Device) -> set[bytes]:
    return set(device.context.membership.by_site)


async def test_two_yes_make_a_member(host: Device) -> None:
    at_host, at_guest = Person(), Person()
    visit, (welcome, name) = await both(host, memory_links(FIRST, PHONE), at_host, at_guest)
    assert visit == Visit("phone", True, joined=True)
    assert name == "nas"
    assert at_host.seen == [Comparison(at_guest.seen[0].code, "phone")]
    assert at_guest.seen[0].name == "nas"
    assert (len(at_host.seen[0].code), at_host.seen[0].code.isdigit()) == (6, True)
    assert isinstance(welcome, Welcome)
    assert (welcome.mesh_id, welcome.founder, welcome.port) == (MESH_ID, FOUNDER.public_key, PORT)
    alone = walk_untrusted(welcome.records, mesh_id=MESH_ID, founder_key=FOUNDER.public_key)
    assert alone == host.context.membership
    assert alone.by_site[PHONE.site].name == "phone"
    assert host.notices() == {"joined": 1}


@pytest.mark.parametrize("first", ["host", "guest"])
async def test_nothing_of_the_mesh_travels_before_both_said_yes(host: Device, first: str) -> None:
    at_host, at_guest = Person(None), Person(None)
    theirs, ours = memory_links(FIRST, PHONE)
    running = asyncio.gather(hosting(host, theirs, at_host), visiting(host, ours, at_guest))
    await at_host.asked.wait()
    await at_guest.asked.wait()
    early, late = (at_host, at_guest) if first == "host" else (at_guest, at_host)
    early.say(True)
    for _ in range(20):
        await asyncio.sleep(0)
    assert members(host) == {FIRST.site}
    assert not any(MESH_ID in sent for sent in theirs.sent)
    late.say(True)
    visit, _ = await running
    assert visit.joined


async def test_no_at_the_host(host: Device) -> None:
    at_guest = Person(None)
    visit, refused = await both(host, memory_links(FIRST, PHONE), Person(False), at_guest)
    assert visit == Visit("phone", True, reason="declined here")
    assert isinstance(refused, PairingError)
    assert str(refused) == "declined at the other device"
    assert at_guest.left
    assert members(host) == {FIRST.site}


async def test_no_at_the_guest(host: Device) -> None:
    at_host = Person(None)
    visit, refused = await both(host, memory_links(FIRST, PHONE), at_host, Person(False))
    assert visit == Visit("phone", True, reason="declined at the other device")
    assert str(refused) == "declined here: nothing was told to the other device"
    assert at_host.left
    assert members(host) == {FIRST.site}


async def test_yes_and_then_the_other_says_no(host: Device) -> None:
    """The host's person had agreed already: without the guest's word it counts for nothing."""
    at_host, at_guest = Person(True), Person(None)
    running = asyncio.ensure_future(both(host, memory_links(FIRST, PHONE), at_host, at_guest))
    await at_guest.asked.wait()
    at_guest.say(False)
    visit, _ = await running
    assert not visit.joined
    assert members(host) == {FIRST.site}


async def test_people_have_a_bounded_time(host: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby_ceremony, "NEARBY_CONFIRM_S", 0.05)
    visit, late = await both(host, memory_links(FIRST, PHONE), Person(None), Person(True))
    assert visit == Visit("phone", True, reason="nobody confirmed in time")
    assert isinstance(late, PairingError)
    assert "not confirmed on both devices in time" in str(late)
    assert members(host) == {FIRST.site}


async def test_a_silent_guest_is_let_go_and_leaves_the_opening(host: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby_ceremony, "HANDSHAKE_S", 0.01)
    theirs, _ = memory_links(FIRST, PHONE)
    visit = await hosting(host, theirs, Person())
    assert (visit.compared, visit.joined) == (False, False)
    assert theirs.ending is not None


async def test_a_device_starts_again_where_the_welcome_was_lost(host: Device) -> None:
    links = memory_links(FIRST, PHONE)
    deliver = links[1]._receive

    def lose_the_welcome(data: bytes) -> None:
        if len(links[0].sent) < 3:
            deliver(data)
        else:
            links[1].lose()

    links[1]._receive = lose_the_welcome  # type: ignore[method-assign]
    visit, lost = await both(host, links, Person(), Person())
    assert visit.joined
    assert isinstance(lost, PairingError)
    again, (welcome, _) = await both(host, memory_links(FIRST, PHONE), Person(), Person())
    assert again.joined
    assert len(welcome.records) == 3  # no second vouch


@pytest.mark.parametrize("said", range(6))
async def test_a_link_that_is_lost_at_any_step_leaves_both_able_to_start_again(host: Device, said: int) -> None:
    """`said` frames arrive, then the network is gone; both sides end, and the next ceremony works."""
    links = memory_links(FIRST, PHONE)
    arrived = 0
    for end in links:

        def receive(data: bytes, deliver: Callable[[bytes], None] = end._receive) -> None:
            nonlocal arrived
            if arrived == said:
                links[0].lose()
            else:
                arrived += 1
                deliver(data)

        end._receive = receive  # type: ignore[method-assign]
    visit, lost = await both(host, links, Person(), Person())
    assert isinstance(lost, PairingError)
    assert visit.joined == (said == 5)
    assert (PHONE.site in members(host)) == visit.joined
    again, _ = await both(host, memory_links(FIRST, PHONE), Person(), Person())
    assert again.joined


async def test_a_host_whose_disk_fails_lets_nobody_in(host: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(invites, "issue_vouch", fail)
        failed, refused = await both(host, memory_links(FIRST, PHONE), Person(), Person())
    assert isinstance(failed, StoreError)
    assert isinstance(refused, PairingError)
    assert members(host) == {FIRST.site}
    assert (await both(host, memory_links(FIRST, PHONE), Person(), Person()))[0].joined


def retire(device: Device) -> None:
    context = device.context
    device.run(lambda tx: issue_vouch(context, tx, PHONE.public_key, "phone"))
    device.run(lambda tx: issue_retirement(context, tx, PHONE.site))


def demote(device: Device) -> None:
    device.run(lambda tx: issue_role(device.context, tx, FIRST.site, "member", signer=FOUNDER))


@pytest.mark.parametrize(
    ("before", "code", "says"), [(retire, 4, "was retired"), (demote, 2, "may not let this one in")]
)
async def test_who_cannot_be_let_in_is_told_before_anybody_is_asked(
    host: Device, before: Callable[[Device], None], code: int, says: str
) -> None:
    before(host)
    at_host, at_guest = Person(), Person()
    links = memory_links(FIRST, PHONE)
    visit, refused = await both(host, links, at_host, at_guest)
    assert not visit.compared
    assert says in str(refused)
    assert links[1].ending is not None
    assert links[1].ending.code == code
    assert at_host.seen == at_guest.seen == []


# --- somebody between the two


def forwards(one: MemoryLink, other: MemoryLink) -> None:
    """What arrives at one end leaves at the other, and so does the end."""
    one.on_control, other.on_control = other.send_control, one.send_control
    one.on_closed = lambda code, reason, _local: other.close(code or CloseCode.DONE, reason)
    other.on_closed = lambda code, reason, _local: one.close(code or CloseCode.DONE, reason)


def between() -> tuple[MemoryLink, MemoryLink, MemoryLink, MemoryLink]:
    """Links to the host and to the guest, the far ends of both with a third device and keys of its own."""
    at_host, near_host = memory_links(FIRST, MALLORY)
    near_guest, at_guest = memory_links(MALLORY, PHONE)
    near_guest.own_spki = at_guest.spki = b"m" * 32
    return at_host, near_host, near_guest, at_guest


async def test_a_relayed_ceremony_shows_no_digits(host: Device) -> None:
    """Commitments are bound to the ends that TLS proved, and those are not the two that are relayed."""
    at_host, near_host, near_guest, at_guest = between()
    forwards(near_host, near_guest)
    host_person, guest_person = Person(), Person()
    visit, refused = await both(host, (at_host, at_guest), host_person, guest_person)
    assert not visit.joined
    assert "another nonce" in visit.reason
    assert isinstance(refused, PairingError)
    assert host_person.seen == guest_person.seen == []
    assert members(host) == {FIRST.site}


async def test_one_that_pairs_with_both_cannot_make_the_digits_equal(host: Device) -> None:
    """Two honest ceremonies, one each way: only chance, one in a million, gives both screens the same digits."""
    at_host, near_host, near_guest, at_guest = between()
    host_person, guest_person = Person(None), Person(None)
    with_host = asyncio.gather(
        hosting(host, at_host, host_person), visiting(host, near_host, Person(), MALLORY), return_exceptions=True
    )
    settings = Hosting(MESH_ID, FOUNDER.public_key, "nas", host.time.random_bytes(NONCE_BYTES), PORT)
    posing = host_over(near_guest, host_ends(near_guest, MALLORY), HostDesk(host), settings, Person())
    with_guest = asyncio.gather(posing, visiting(host, at_guest, guest_person), return_exceptions=True)
    await host_person.asked.wait()
    await guest_person.asked.wait()
    alike = host_person.seen[0].code == guest_person.seen[0].code
    assert not alike
    host_person.say(alike)
    guest_person.say(alike)
    visit, _ = await with_host
    await with_guest
    assert not visit.joined
    assert members(host) == {FIRST.site}


# --- frames that are not due


class Raw:
    """An end that says what the test wants."""

    def __init__(self, link: MemoryLink) -> None:
        self.link = link
        self._reader = FrameReader()
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue()
        link.on_control = lambda data: [self._frames.put_nowait(each) for each in self._reader.feed(data)] and None
        link.on_closed = lambda *_: self._frames.put_nowait(None)

    def say(self, *frames: Any) -> None:
        for each in frames:
            self.link.send_control(frame(encode_frame(each)))

    async def hear(self) -> Any:
        cbor = await self._frames.get()
        return None if cbor is None else decode_nearby_untrusted(cbor)


def guest_hello(link: MemoryLink, nonce: bytes) -> NearHello:
    return NearHello(commit=commitment(guest_ends(link), Role.GUEST, nonce), name="phone")


HOSTILE_GUESTS: dict[str, Callable[[MemoryLink], list[Any]]] = {
    "reveal first": lambda _: [NearReveal(nonce=bytes(32))],
    "yes first": lambda _: [NearYes()],
    "yes before the digits": lambda link: [guest_hello(link, bytes(32)), NearYes()],
    "another nonce": lambda link: [guest_hello(link, bytes(32)), NearReveal(nonce=b"x" * 32)],
    "the host's commitment": lambda link: [
        NearHello(commit=commitment(guest_ends(link), Role.HOST, bytes(32)), name=""), NearReveal(nonce=bytes(32))
    ],
    "two hellos": lambda link: [guest_hello(link, bytes(32)), guest_hello(link, bytes(32))],
    "a welcome": lambda link: [
        guest_hello(link, bytes(32)), NearWelcome(mesh=MESH_ID, founder=bytes(32), records=(), port=1)
    ],
    "yes twice": lambda link: [guest_hello(link, bytes(32)), NearReveal(nonce=bytes(32)), NearYes(), NearYes()],
    "a flood": lambda link: [guest_hello(link, bytes(32))] * 9,
}  # fmt: skip


@pytest.mark.parametrize("said", HOSTILE_GUESTS.values(), ids=HOSTILE_GUESTS)
async def test_a_guest_that_breaks_the_protocol_gets_nothing(
    host: Device, said: Callable[[MemoryLink], list[Any]]
) -> None:
    theirs, ours = memory_links(FIRST, PHONE)
    person, raw = Person(None), Raw(ours)
    running = asyncio.ensure_future(hosting(host, theirs, person))
    raw.say(*said(ours))
    visit = await running
    assert not visit.joined
    assert members(host) == {FIRST.site}
    assert theirs.ending is not None
    assert theirs.ending.code is CloseCode.PROTOCOL_ERROR
    assert not any(MESH_ID in sent for sent in theirs.sent)


@pytest.mark.parametrize("case", ["other nonce", "reflected", "welcome before yes", "welcome instead of digits"])
async def test_a_host_that_breaks_the_protocol_is_not_believed(host: Device, case: str) -> None:
    theirs, ours = memory_links(FIRST, PHONE)
    person, raw, nonce = Person(None), Raw(theirs), b"h" * 32
    running = asyncio.ensure_future(visiting(host, ours, person))
    hello = await raw.hear()
    welcome = NearWelcome(mesh=MESH_ID, founder=FOUNDER.public_key, records=(), port=1)
    if case == "reflected":
        raw.say(NearOpen(commit=hello.commit, name="nas"))
        raw.say(NearReveal(nonce=(await raw.hear()).nonce))
    else:
        raw.say(NearOpen(commit=commitment(host_ends(theirs), Role.HOST, nonce), name="nas"))
        await raw.hear()
        if case == "other nonce":
            raw.say(NearReveal(nonce=bytes(32)))
        elif case == "welcome instead of digits":
            raw.say(welcome)
        else:
            raw.say(NearReveal(nonce=nonce))
            await person.asked.wait()
            raw.say(welcome)
    with pytest.raises(PairingError, match="broke the pairing protocol"):
        await running
    assert ours.ending is not None
    assert ours.ending.code is CloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"records": ()}, "do not make this device a member"),
        ({"mesh": bytes(16)}, "do not make this device a member"),
        ({"founder": MALLORY.public_key}, "do not make this device a member"),
        ({}, "do not make it a member of its mesh"),
    ],
)
async def test_a_welcome_whose_records_do_not_hold_is_not_believed(
    host: Device, change: dict[str, Any], says: str
) -> None:
    """The last one: a device that is no member hands on the records of a mesh that vouched for this one."""
    near_guest, at_guest = memory_links(MALLORY, PHONE)
    raw, nonce = Raw(near_guest), b"h" * 32
    running = asyncio.ensure_future(visiting(host, at_guest, Person()))
    await raw.hear()
    raw.say(NearOpen(commit=commitment(host_ends(near_guest, MALLORY), Role.HOST, nonce), name="nas"))
    await raw.hear()
    raw.say(NearReveal(nonce=nonce))
    assert isinstance(await raw.hear(), NearYes)
    records = await HostDesk(host).let_in(PHONE.public_key, "phone")
    assert isinstance(records, tuple)
    raw.say(NearWelcome(**{"mesh": MESH_ID, "founder": FOUNDER.public_key, "records": records, "port": PORT, **change}))
    with pytest.raises(PairingError, match=says):
        await running


# --- the digits


ENDS = NearbyEnds(End(b"H" * 32, b"h" * 32), End(b"G" * 32, b"g" * 32))


def test_the_digits_depend_on_everything() -> None:
    """Each of the six inputs, and which side each belongs to."""
    one, two = b"1" * 32, b"2" * 32
    variants = [
        (ENDS, one, two),
        (ENDS, two, one),
        (NearbyEnds(ENDS.guest, ENDS.host), one, two),
        (replace(ENDS, host=replace(ENDS.host, public_key=bytes(32))), one, two),
        (replace(ENDS, host=replace(ENDS.host, spki=bytes(32))), one, two),
        (replace(ENDS, guest=replace(ENDS.guest, public_key=bytes(32))), one, two),
        (replace(ENDS, guest=replace(ENDS.guest, spki=bytes(32))), one, two),
    ]
    codes = [comparison_code(*each) for each in variants]
    assert len(set(codes)) == len(codes)
    t = ["meshnode nearby code v1", b"H" * 32, b"h" * 32, b"G" * 32, b"g" * 32, one, two]
    digest = blake3(cbor2.dumps(t, canonical=True)).digest()
    assert codes[0] == f"{int.from_bytes(digest[:8], 'big') % 1_000_000:06}"


def test_a_commitment_is_of_one_side_of_one_link() -> None:
    nonce = b"n" * 32
    committed = commitment(ENDS, Role.HOST, nonce)
    t = ["meshnode nearby commitment v1", "host", b"H" * 32, b"h" * 32, nonce]
    assert committed == blake3(cbor2.dumps(t, canonical=True)).digest()
    assert reveals(ENDS, Role.HOST, committed, nonce)
    assert not reveals(ENDS, Role.HOST, committed, bytes(32))
    assert not reveals(ENDS, Role.GUEST, committed, nonce)
    assert not reveals(replace(ENDS, host=replace(ENDS.host, spki=bytes(32))), Role.HOST, committed, nonce)
    assert not reveals(NearbyEnds(ENDS.guest, ENDS.host), Role.GUEST, committed, nonce)


@pytest.mark.parametrize(
    "cbor", [b"\xff", b"\xa0", encode_frame(NearHello(commit=bytes(31), name="")), b"\xa1at\x67near-no"], ids=bytes.hex
)
def test_nonsense_is_a_protocol_error(cbor: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_nearby_untrusted(cbor)
