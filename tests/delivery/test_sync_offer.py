"""One session with the feature `offer` against a scripted peer: links, waiting, wanted, watermarks (profile §14)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from meshnode.codec.framing import FrameReader, frame
from meshnode.errors import CloseCode
from meshnode.limits import IDLE_WATERMARKS_MS, LINKED_SITES, LINKS_MS, OFFER_WAIT_MS, QUIET_WATERMARKS_MS
from meshnode.model.delivery import Advanced, LinkState, OutboundStream, Settlement, Staged, StagedFrame
from meshnode.model.frames import (
    FEATURES,
    Ack,
    Batch,
    Frame,
    Hello,
    Inbound,
    Links,
    Offer,
    WatermarkEntry,
    Watermarks,
    digest,
    encode_frame,
)
from meshnode.model.frames_untrusted import decode_control_untrusted
from meshnode.model.hlc import Hlc
from meshnode.sync.effects import Advance, Close, Effect, PeerHello, RolledBack, SendControl
from meshnode.sync.greeting import Greeting
from meshnode.sync.session import Session
from meshnode.sync.waiting import EVERYTHING

NOW = 1_800_000_000_000
OWN, PEER, THIRD, FOURTH = b"o" * 16, b"p" * 16, b"t" * 16, b"u" * 16
EPOCH = b"epoch--1"
GREETING = Greeting(site=OWN, name="own", software="test", boot=bytes(8), features=FEATURES)
AGREED = frozenset(FEATURES)
HELLO = Hello(
    site=PEER,
    name="peer",
    software="test",
    incarnation=bytes(16),
    boot=bytes(8),
    wall=NOW,
    hlc=Hlc(NOW, 0),
    scope=(),
    features=FEATURES,
    inbound=Inbound(EPOCH, 1, b""),
    max_hlc={},
)
BATCH = encode_frame(Batch(epoch=EPOCH, no=1, clock={}, events=[b"event"]))
OFFERED = encode_frame(Offer(epoch=EPOCH, no=1, events={THIRD: (1, 0, bytes(16), 1, 0, bytes(16))}))
A_BATCH, AN_OFFER = Staged(1, digest(BATCH), 1), Staged(1, digest(OFFERED), 2, offers=True)


def wire(message: Frame) -> bytes:
    return frame(encode_frame(message))


def ack(each: Staged, **changes: Any) -> bytes:
    wanted = () if each.offers else None
    base = Ack(EPOCH, each.no, each.digest, Hlc(NOW, 0), (), 0, 0, wanted)
    return wire(msgspec.structs.replace(base, **changes))


def controls(effects: list[Effect]) -> list[Frame]:
    data = b"".join(effect.data for effect in effects if isinstance(effect, SendControl))
    return [decode_control_untrusted(each, AGREED) for each in FrameReader().feed(data)]


def told(effects: list[Effect]) -> list[tuple[bytes, ...]]:
    return [each.sites for each in controls(effects) if isinstance(each, Links)]


def advance(effects: list[Effect]) -> Advance:
    (job,) = [each for each in effects if isinstance(each, Advance)]
    return job


def advances(effects: list[Effect]) -> bool:
    return any(isinstance(each, Advance) for each in effects)


def rested(result: Advanced | None = None, **changes: Any) -> Session:
    """A session whose peer said hello; its stream goes on in the same epoch, and the first look is done."""
    session = Session(replace(GREETING, **changes), PEER)
    session.start(LinkState(OutboundStream(EPOCH, 0, b"", (), 0), None), NOW)
    session.control_untrusted(wire(HELLO), NOW)
    session.advanced(result or Advanced(0, (), False, (), seen_to=5), NOW)
    return session


def in_flight(each: Staged, data: bytes) -> Session:
    return rested(Advanced(0, (StagedFrame(each, data),), False, (), seen_to=5))


# --- Links.


def test_links_are_told_after_the_hello_even_if_there_are_none() -> None:
    session = Session(GREETING, PEER)
    session.linked([THIRD, PEER, FOURTH], NOW)
    effects = session.start(LinkState(OutboundStream(EPOCH, 0, b"", (), 0), None), NOW)
    assert told(effects) == []
    effects = session.control_untrusted(wire(HELLO), NOW)
    assert told(effects) == [(THIRD, FOURTH)]
    assert next(each for each in effects if isinstance(each, PeerHello)).features == AGREED
    alone = Session(GREETING, PEER)
    alone.start(LinkState(OutboundStream(EPOCH, 0, b"", (), 0), None), NOW)
    assert told(alone.control_untrusted(wire(HELLO), NOW)) == [()]


def test_links_are_told_when_they_change_and_at_most_once_a_second() -> None:
    session = rested()
    assert told(session.linked([THIRD], NOW + LINKS_MS)) == [(THIRD,)]
    assert told(session.linked([THIRD], NOW + 2 * LINKS_MS)) == []
    assert told(session.linked([THIRD, FOURTH], NOW + 2 * LINKS_MS)) == [(THIRD, FOURTH)]
    later = NOW + 3 * LINKS_MS
    assert told(session.linked([FOURTH], later - 1)) == []
    assert session.next_timer() == later
    assert told(session.linked([], later - 1)) == []
    assert told(session.timer(later)) == [()]
    assert told(session.timer(later + LINKS_MS)) == []


def test_more_links_than_a_frame_may_name_are_cut() -> None:
    session = rested()
    sites = [number.to_bytes(16, "big") for number in range(LINKED_SITES + 1)]
    assert told(session.linked(sites, NOW + LINKS_MS)) == [tuple(sites[:LINKED_SITES])]


def test_where_the_feature_is_not_agreed_nothing_of_it_is_said_or_understood() -> None:
    session = rested(features=("deflate",))
    assert told(session.linked([THIRD], NOW + LINKS_MS)) == []
    job = advance(session.log_grew(NOW + LINKS_MS))
    assert (job.linked, job.offer_to) == (None, 0)
    effects = session.control_untrusted(wire(Links(())), NOW)
    assert isinstance(effects[-1], Close)
    assert effects[-1].code is CloseCode.PROTOCOL_ERROR


# --- When what waits is due.


def test_what_waits_is_due_when_its_time_is_over_and_what_came_late_in_it_waits_on() -> None:
    session = rested(Advanced(0, (), False, (), seen_to=5, waiting=True))
    half, due = NOW + OFFER_WAIT_MS // 2, NOW + OFFER_WAIT_MS
    for at, seen_to in ((half, 7), (half + 1, 9)):
        assert advance(session.log_grew(at)).offer_to == 0
        session.advanced(Advanced(0, (), False, (), seen_to=seen_to, waiting=True), at)
    assert advance(session.timer(due)).offer_to == 7
    session.advanced(Advanced(0, (), False, (), seen_to=9, waiting=True), due)
    assert advance(session.timer(due + OFFER_WAIT_MS)).offer_to == 9


def test_of_two_neighbours_one_offers_first_and_the_other_waits_until_it_must_have_done_so() -> None:
    second = rested(Advanced(0, (), False, (), seen_to=5, waiting=True), site=b"z" * 16)
    for times in (1, 2, 3):  # cycles
        assert advance(second.timer(NOW + times * OFFER_WAIT_MS)).offer_to == 0
        second.advanced(Advanced(0, (), False, (), seen_to=5, waiting=True), NOW + times * OFFER_WAIT_MS)
    assert advance(second.timer(NOW + 4 * OFFER_WAIT_MS)).offer_to == 5


def test_nothing_is_due_any_more_once_nothing_waits() -> None:
    session = rested(Advanced(0, (), False, (), seen_to=5, waiting=True))
    session.log_grew(NOW)
    session.advanced(Advanced(0, (), False, (), seen_to=9), NOW)
    assert advance(session.timer(NOW + OFFER_WAIT_MS)).offer_to == 0  # a cycle


def test_a_job_that_did_not_look_changes_nothing_about_what_waits() -> None:
    session = rested(Advanced(0, (), False, (), seen_to=5, waiting=True))
    session.log_grew(NOW)
    session.advanced(Advanced(0, (), False, ()), NOW)
    assert advance(session.timer(NOW + OFFER_WAIT_MS)).offer_to == 5


def test_whom_the_peer_is_linked_to_goes_into_every_job_and_a_lost_link_starts_one() -> None:
    session = rested()
    assert session.peer_links is None
    job = advance(session.control_untrusted(wire(Links((THIRD, FOURTH))), NOW))
    assert job.linked == {THIRD, FOURTH}
    session.advanced(Advanced(0, (), False, (), seen_to=5), NOW)
    assert advance(session.control_untrusted(wire(Links((FOURTH,))), NOW)).linked == {FOURTH}
    session.advanced(Advanced(0, (), False, (), seen_to=5), NOW)
    assert not advances(session.control_untrusted(wire(Links((THIRD, FOURTH))), NOW))
    assert session.peer_links == {THIRD, FOURTH}


def test_somebody_who_waits_makes_everything_due_at_once() -> None:
    session = rested(Advanced(0, (), False, (), seen_to=5, waiting=True))
    assert advance(session.hurry(NOW)).offer_to == EVERYTHING
    assert advance(session.advanced(Advanced(0, (), True, (), seen_to=7), NOW)).offer_to == EVERYTHING
    session.advanced(Advanced(0, (), False, (), seen_to=7), NOW)
    assert advance(session.log_grew(NOW)).offer_to == 7, "what comes later is gathered again"


# --- Acks of offers.


def test_the_ack_of_an_offer_settles_it_with_what_is_wanted() -> None:
    job = advance(in_flight(AN_OFFER, OFFERED).control_untrusted(ack(AN_OFFER, wanted=(0, 1)), NOW))
    assert job.settled == (Settlement(1, AN_OFFER.digest, (), (0, 1), Hlc(NOW, 0)),)


@pytest.mark.parametrize(
    ("each", "data", "changes"),
    [
        (AN_OFFER, OFFERED, {"wanted": None}),
        (AN_OFFER, OFFERED, {"wanted": (2,)}),
        (AN_OFFER, OFFERED, {"rejected": (0,)}),
        (A_BATCH, BATCH, {"wanted": ()}),
        (A_BATCH, BATCH, {"wanted": (0,)}),
    ],
)
def test_an_ack_that_does_not_fit_its_frame_ends_the_link_and_settles_nothing(
    each: Staged, data: bytes, changes: dict[str, Any]
) -> None:
    effects = in_flight(each, data).control_untrusted(ack(each, **changes), NOW)
    assert isinstance(effects[-1], Close)
    assert effects[-1].code is CloseCode.PROTOCOL_ERROR
    assert not advances(effects)


# --- Watermarks.


def test_watermarks_that_wait_for_an_ack_are_asked_for_again_with_it() -> None:
    session = in_flight(AN_OFFER, OFFERED)
    at = NOW + 1_000
    assert advance(session.log_grew(at)).watermarks
    session.advanced(Advanced(0, (), False, None, seen_to=5), at)
    assert session.next_timer() is not None
    assert not advances(session.timer(at + 1))
    assert advance(session.control_untrusted(ack(AN_OFFER), at + 1)).watermarks


def entries(at: int) -> tuple[WatermarkEntry, ...]:
    return tuple(WatermarkEntry(site, "main", "notes", at, 0) for site in (OWN, PEER, THIRD, FOURTH))


def told_of(effects: list[Effect]) -> set[bytes]:
    return {entry.site for each in controls(effects) if isinstance(each, Watermarks) for entry in each.entries}


def told_when_it_grew(session: Session, at: int) -> set[bytes]:
    assert advance(session.log_grew(at)).watermarks
    return told_of(session.advanced(Advanced(0, (), False, entries(at), seen_to=5), at))


def told_by_timer(session: Session, at: int, marks: int) -> set[bytes]:
    assert session.next_timer() == at
    assert advance(session.timer(at)).watermarks
    return told_of(session.advanced(Advanced(0, (), False, entries(marks), seen_to=5), at))


def test_watermarks_of_sites_that_the_peer_hears_itself_are_told_when_nothing_is_written_any_more() -> None:
    session = rested()
    session.control_untrusted(wire(Links((THIRD,))), NOW)
    session.advanced(Advanced(0, (), False, (), seen_to=5), NOW)
    assert told_when_it_grew(session, NOW + 1_000) == {FOURTH}
    assert told_when_it_grew(session, NOW + 2_000) == {FOURTH}
    assert told_by_timer(session, NOW + 2_000 + IDLE_WATERMARKS_MS, NOW + 2_000) == {OWN, PEER, THIRD}


def test_they_are_told_in_the_end_however_much_is_written() -> None:
    session = rested()
    session.control_untrusted(wire(Links((THIRD,))), NOW)
    session.advanced(Advanced(0, (), False, (), seen_to=5), NOW)
    for at in range(NOW + 1_000, NOW + 1_000 + QUIET_WATERMARKS_MS, 1_000):
        assert told_when_it_grew(session, at) == {FOURTH}
    last = NOW + 1_000 + QUIET_WATERMARKS_MS
    assert told_when_it_grew(session, last) == {OWN, PEER, THIRD, FOURTH}
    session.control_untrusted(wire(Links(())), last)
    session.advanced(Advanced(0, (), False, (), seen_to=5), last)
    assert told_when_it_grew(session, last + 1_000) == {THIRD, FOURTH}, "the peer lost its link to the third"


def test_what_is_told_rarely_is_told_without_further_news() -> None:
    session = rested()
    at = NOW + 1_000
    entry = WatermarkEntry(OWN, "main", "notes", at, 0)
    for _ in range(20):
        at += 30_000
        job = advance(session.timer(at))
        if Watermarks in map(type, controls(session.advanced(Advanced(0, (), False, (entry,), seen_to=5), at))):
            assert job.watermarks
            return
    raise AssertionError("it is never told")


# --- A restored node.


@pytest.mark.parametrize(("features", "everything"), [(FEATURES, True), (("deflate",), False)])
def test_a_node_whose_stream_the_peer_holds_more_of_asks_for_everything_where_it_was_offered_less(
    features: tuple[str, ...], everything: bool
) -> None:
    session = Session(GREETING, PEER)
    session.start(LinkState(OutboundStream(EPOCH, 0, b"", (), 0), None), NOW)
    more = msgspec.structs.replace(HELLO, features=features, inbound=Inbound(EPOCH, 3, b"d" * 32))
    effects = session.control_untrusted(wire(more), NOW)
    assert RolledBack(None, everything=everything) in effects


@pytest.mark.parametrize(("last_no", "lost"), [(1, True), (2, False)])
def test_what_it_knew_of_an_earlier_epoch_tells_whether_it_lost_any(last_no: int, lost: bool) -> None:
    session = Session(GREETING, PEER)
    stream = OutboundStream(b"another.", 0, b"", (), 0)
    session.start(LinkState(stream, None, past_epochs={EPOCH: last_no}), NOW)
    more = msgspec.structs.replace(HELLO, features=FEATURES, inbound=Inbound(EPOCH, 3, b"d" * 32))
    assert (RolledBack(None, everything=True) in session.control_untrusted(wire(more), NOW)) is lost
