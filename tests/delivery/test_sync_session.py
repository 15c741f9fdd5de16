"""One session alone against a scripted peer: what goes out, in what order, and what ends the link (profile §8)."""

from __future__ import annotations

import zlib
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from meshnode.codec import cbor
from meshnode.codec.framing import FrameReader, frame
from meshnode.errors import CloseCode
from meshnode.limits import (
    BATCH_BYTES,
    BATCH_EVENTS,
    COMMIT_EVENTS,
    CYCLE_MS,
    GENESIS_REWIND_MS,
    LIVE_FRAMES,
    REQUESTS_PER_PEER,
    SKEW_MS,
    WINDOW_FRAMES,
)
from meshnode.model.delivery import (
    Adopt,
    Advanced,
    Committed,
    InboundStream,
    LinkState,
    OutboundStream,
    Settlement,
    Staged,
    StagedFrame,
    StoredAck,
    Told,
)
from meshnode.model.frames import (
    Ack,
    After,
    Batch,
    Bye,
    Frame,
    Hello,
    Inbound,
    Introduce,
    Live,
    Nak,
    Open,
    Request,
    WatermarkEntry,
    Watermarks,
    digest,
    encode_frame,
)
from meshnode.model.frames_untrusted import decode_control_untrusted, decode_events_untrusted
from meshnode.model.hlc import Hlc
from meshnode.sync.effects import (
    Advance,
    Answer,
    Close,
    Commit,
    Effect,
    Introduced,
    NewEpoch,
    Notice,
    PeerBye,
    PeerHello,
    PeerWatermarks,
    Resend,
    RolledBack,
    SendControl,
    SendEvents,
)
from meshnode.sync.greeting import Greeting
from meshnode.sync.session import Session

NOW = 1_800_000_000_000
OWN, PEER, THIRD = b"o" * 16, b"p" * 16, b"t" * 16
EPOCH, NEXT_EPOCH, PEER_EPOCH = b"epoch--1", b"epoch--2", b"peer-epo"
GREETING = Greeting(site=OWN, name="own", software="test", boot=bytes(8))

HELLO = Hello(
    site=PEER,
    name="peer",
    software="test",
    incarnation=bytes(16),
    boot=bytes(8),
    wall=NOW,
    hlc=Hlc(NOW, 0),
    scope=(),
    features=(),
    inbound=None,
    max_hlc={},
)


def wire(message: Frame) -> bytes:
    return frame(encode_frame(message))


def hello(**changes: Any) -> bytes:
    return wire(msgspec.structs.replace(HELLO, **changes))


def staged(no: int, epoch: bytes = EPOCH, events: int = 1) -> StagedFrame:
    data = encode_frame(Batch(epoch=epoch, no=no, clock={}, events=[b"event"] * events))
    return StagedFrame(Staged(no, digest(data), events), data)


def ack(each: StagedFrame, epoch: bytes = EPOCH, **changes: Any) -> bytes:
    base = Ack(
        epoch=epoch,
        no=each.staged.no,
        digest=each.staged.digest,
        hlc=Hlc(NOW, 0),
        rejected=(),
        held=0,
        dropped=0,
    )
    return wire(msgspec.structs.replace(base, **changes))


def batch(no: int, epoch: bytes = PEER_EPOCH, events: tuple[bytes, ...] = (b"x",)) -> bytes:
    return wire(Batch(epoch=epoch, no=no, clock={}, events=list(events)))


def controls(effects: list[Effect]) -> list[Frame]:
    reader = FrameReader()
    data = b"".join(effect.data for effect in effects if isinstance(effect, SendControl))
    return [decode_control_untrusted(each) for each in reader.feed(data)]


def sent_events(effects: list[Effect]) -> list[Frame]:
    reader = FrameReader()
    data = b"".join(effect.data for effect in effects if isinstance(effect, SendEvents))
    return [decode_events_untrusted(each) for each in reader.feed(data)]


def jobs(effects: list[Effect]) -> list[Effect]:
    return [each for each in effects if isinstance(each, Advance | Resend | NewEpoch | Answer | Commit)]


def only(kind: type[Any], effects: list[Effect]) -> Any:
    found = [each for each in effects if isinstance(each, kind)]
    assert len(found) == 1, effects
    return found[0]


def started(state: LinkState | None = None, **changes: Any) -> Session:
    """A session that read the peer's hello."""
    session = Session(GREETING, PEER)
    session.start(state or LinkState(None, None), NOW)
    session.control_untrusted(hello(**changes), NOW)
    return session


def resumed(*frames: StagedFrame) -> Session:
    """A session whose stream goes on with these frames in flight, already sent again; nothing else to stage."""
    state = LinkState(OutboundStream(EPOCH, 0, b"", tuple(each.staged for each in frames), 0), None)
    session = started(state, inbound=Inbound(EPOCH, 1, b""))
    if frames:
        session.resent(frames, NOW)
    session.advanced(Advanced(0, (), False, ()), NOW)
    return session


def closes(effects: list[Effect]) -> CloseCode:
    assert isinstance(effects[-1], Close), effects
    return effects[-1].code


# --- Hello.


def test_hello_is_first_and_nothing_else_is_sent_before_the_peers() -> None:
    session = Session(GREETING, PEER)
    assert session.control_untrusted(b"", NOW) == []
    effects = session.start(LinkState(None, InboundStream(PEER_EPOCH, 3, b"d" * 32), requests=(b"\xa0",)), NOW)
    own = controls(effects)
    assert len(effects) == 1
    assert isinstance(own[0], Hello)
    assert own[0].inbound == Inbound(PEER_EPOCH, 3, b"d" * 32)
    assert session.log_grew(NOW) == []
    assert session.timer(NOW + CYCLE_MS) == []


def test_introduce_goes_before_the_hello() -> None:
    session = Session(replace(GREETING, introduce=(b"record",)), PEER)
    own = controls(session.start(LinkState(None, None), NOW))
    assert [type(each) for each in own] == [Introduce, Hello]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (hello(site=THIRD), CloseCode.PROTOCOL_ERROR),
        (hello(scope=("bad",)), CloseCode.PROTOCOL_ERROR),
        (frame(cbor.encode({"t": "hello", "v": 2})), CloseCode.VERSION),
        (wire(Bye(code=0, reason="")), CloseCode.PROTOCOL_ERROR),
        (frame(b"\xff"), CloseCode.PROTOCOL_ERROR),
        (b"\xff\xff\xff\xff", CloseCode.LIMIT),
        (hello() + hello(), CloseCode.PROTOCOL_ERROR),
        (hello() + wire(Introduce(records=())), CloseCode.PROTOCOL_ERROR),
    ],
)
def test_bad_greetings_end_the_link(data: bytes, code: CloseCode) -> None:
    session = Session(GREETING, PEER)
    session.start(LinkState(None, None), NOW)
    assert closes(session.control_untrusted(data, NOW)) == code
    assert session.closed
    assert session.control_untrusted(hello(), NOW) == []


def test_unknown_keys_of_a_hello_are_ignored() -> None:
    session = Session(GREETING, PEER)
    session.start(LinkState(None, None), NOW)
    value = cbor.decode_untrusted(encode_frame(HELLO))
    assert isinstance(value, dict)
    effects = session.control_untrusted(frame(cbor.encode({**value, "later": [1]})), NOW)
    assert only(PeerHello, effects).hello.name == "peer"


def test_clock_offset_is_named_from_a_minute_on() -> None:
    for offset, noticed in ((59_999, False), (60_000, True), (-60_000, True)):
        session = Session(GREETING, PEER)
        session.start(LinkState(None, None), NOW)
        effects = session.control_untrusted(hello(wall=NOW + offset), NOW)
        assert only(PeerHello, effects).clock_offset_ms == offset
        assert any(isinstance(each, Notice) and each.kind == "clock-offset" for each in effects) is noticed


def test_clock_readings_beyond_the_skew_bound_are_absent_and_surfaced() -> None:
    session = Session(GREETING, PEER)
    session.start(LinkState(None, None), NOW)
    limit, beyond = Hlc(NOW + SKEW_MS, 0), Hlc(NOW + SKEW_MS + 1, 0)
    effects = session.control_untrusted(hello(hlc=beyond, max_hlc={OWN: beyond, PEER: limit}), NOW)
    read = only(PeerHello, effects).hello
    assert read.hlc == Hlc(0, 0)
    assert read.max_hlc == {PEER: limit}
    assert only(Notice, effects).kind == "skew"
    assert not any(isinstance(each, RolledBack) for each in effects)


def test_a_later_event_of_our_own_shows_that_we_were_restored() -> None:
    known, later = Hlc(NOW, 4), Hlc(NOW, 5)
    for claimed, restored in ((known, False), (later, True)):
        session = Session(GREETING, PEER)
        session.start(LinkState(None, None, max_hlc=((OWN, known),)), NOW)
        effects = session.control_untrusted(hello(max_hlc={OWN: claimed}), NOW)
        assert [each.claimed for each in effects if isinstance(each, RolledBack)] == [later] * restored


def test_a_restored_node_whose_clock_is_behind_hears_of_it_once_its_clock_is_right() -> None:
    for known, restored in ((Hlc(NOW, 4), True), (Hlc(NOW + SKEW_MS + 5, 1), False)):
        session = Session(GREETING, PEER)
        session.start(LinkState(None, None, max_hlc=((OWN, known),)), NOW)
        beyond = Hlc(NOW + SKEW_MS + 5, 0)
        effects = session.control_untrusted(hello(max_hlc={OWN: beyond}), NOW) + session.timer(NOW + 4)
        assert not any(isinstance(each, RolledBack) for each in effects)
        effects = session.timer(NOW + 5) + session.timer(NOW + 6)
        assert [each.claimed for each in effects if isinstance(each, RolledBack)] == [beyond] * restored


def test_a_stranger_may_introduce_itself_once_and_say_nothing_else() -> None:
    session = Session(GREETING, PEER, admitted=False)
    effects = session.control_untrusted(wire(Introduce(records=(b"r",))) + hello(), NOW)
    assert effects == [Introduced((b"r",))]
    effects = session.start(LinkState(None, None), NOW)
    assert isinstance(controls(effects)[0], Hello)
    assert only(PeerHello, effects).hello.site == PEER
    stranger = Session(GREETING, PEER, admitted=False)
    assert closes(stranger.control_untrusted(hello(), NOW)) == CloseCode.NOT_A_MEMBER


def test_event_frames_that_overtake_the_hello_wait_for_it() -> None:
    session = Session(GREETING, PEER)
    session.start(LinkState(None, None), NOW)
    early = wire(Open(epoch=PEER_EPOCH, next=1)) + b"".join(batch(no) for no in range(1, WINDOW_FRAMES + 1))
    assert session.events_untrusted(early, NOW) == []
    commit = only(Commit, session.control_untrusted(hello(), NOW))
    assert [each.no for each in commit.frames] == list(range(1, WINDOW_FRAMES + 1))
    greedy = Session(GREETING, PEER)
    greedy.start(LinkState(None, None), NOW)
    assert closes(greedy.events_untrusted(early + batch(WINDOW_FRAMES + 1), NOW)) == CloseCode.LIMIT


# --- Sending.


def test_a_first_contact_opens_an_epoch_at_genesis_and_stages() -> None:
    session = Session(GREETING, PEER)
    session.start(LinkState(None, None), NOW)
    assert only(NewEpoch, session.control_untrusted(hello(), NOW)) == NewEpoch(None, "genesis")
    effects = session.epoch_opened(OutboundStream(EPOCH, 0, b"", (), 0), NOW)
    assert sent_events(effects) == [Open(epoch=EPOCH, next=1)]
    assert only(Advance, effects).room == WINDOW_FRAMES
    effects = session.advanced(Advanced(0, (staged(1), staged(2)), True), NOW)
    assert [each.no for each in sent_events(effects)] == [1, 2]  # type: ignore[union-attr]
    assert only(Advance, effects).room == WINDOW_FRAMES - 2


def test_a_matching_hello_resends_what_is_unsettled_and_settles_nothing() -> None:
    frames = (staged(1), staged(2))
    state = LinkState(OutboundStream(EPOCH, 0, b"", tuple(each.staged for each in frames), 0), None)
    session = Session(GREETING, PEER)
    session.start(state, NOW)
    effects = session.control_untrusted(hello(inbound=Inbound(EPOCH, 3, frames[1].staged.digest)), NOW)
    assert sent_events(effects) == [Open(epoch=EPOCH, next=1)]
    assert only(Resend, effects) == Resend(EPOCH, 1)
    effects = session.resent(frames, NOW)
    assert [effect.data for effect in effects if isinstance(effect, SendEvents)] == [
        frame(each.cbor) for each in frames
    ]
    assert session.in_flight == 2


def test_an_ack_settles_the_oldest_frame_and_only_that() -> None:
    first, second = staged(1), staged(2)
    session = resumed(first, second)
    job = only(Advance, session.control_untrusted(ack(first, rejected=(0,)), NOW))
    assert job.settled == (Settlement(1, first.staged.digest, (0,), hlc=Hlc(NOW, 0)),)
    assert not job.retry
    assert session.in_flight == 1


def test_late_and_earlier_acks_are_no_ops() -> None:
    first, second = staged(1), staged(2)
    session = resumed(first, second)
    session.control_untrusted(ack(first), NOW)
    assert jobs(session.control_untrusted(ack(first), NOW)) == []
    assert session.in_flight == 1
    state = LinkState(OutboundStream(EPOCH, 0, b"", (), 0), None, past_epochs={NEXT_EPOCH: 1})
    earlier = started(state, inbound=Inbound(EPOCH, 1, b""))
    assert not earlier.control_untrusted(ack(first, NEXT_EPOCH), NOW)


@pytest.mark.parametrize(
    "forged",
    [
        {"digest": b"f" * 32},
        {"no": 2},
        {"no": 9},
        {"epoch": b"neverour"},
        {"rejected": (1,)},
    ],
)
def test_any_other_ack_is_a_protocol_error_that_changes_nothing(forged: dict[str, Any]) -> None:
    session = resumed(staged(1), staged(2))
    effects = session.control_untrusted(ack(staged(1), **forged), NOW)
    assert closes(effects) == CloseCode.PROTOCOL_ERROR
    assert jobs(effects) == []


def test_a_nak_sends_again_from_what_is_expected() -> None:
    frames = [staged(no) for no in (1, 2, 3)]
    session = resumed(*frames)
    job = only(Resend, session.control_untrusted(wire(Nak(epoch=EPOCH, expected=2, reason="gap")), NOW))
    assert job == Resend(EPOCH, 2)
    assert len(sent_events(session.resent(tuple(frames[1:]), NOW))) == 2


def test_a_nak_for_what_was_settled_goes_back_to_genesis_and_for_what_is_unknown_to_the_settled_cursor() -> None:
    first, second = staged(1), staged(2)
    for expected, at in ((1, "genesis"), (0, "genesis"), (3, "settled"), (2, None)):
        session = resumed(first, second)
        session.control_untrusted(ack(first), NOW)
        session.advanced(Advanced(1, (), False), NOW)
        found = jobs(session.control_untrusted(wire(Nak(epoch=EPOCH, expected=expected, reason="gap")), NOW))
        assert found == ([Resend(EPOCH, 2)] if at is None else [NewEpoch(EPOCH, at)])  # type: ignore[arg-type]


@pytest.mark.parametrize("expected", [0, 10])
def test_naks_force_one_epoch_a_second_while_nothing_settles(expected: int) -> None:
    """However a peer goes on: each begins with a window of frames that have to be staged."""
    session = resumed(staged(1))
    nak = wire(Nak(epoch=EPOCH, expected=expected, reason="never"))
    assert isinstance(jobs(session.control_untrusted(nak, NOW))[0], NewEpoch)
    session.epoch_opened(OutboundStream(NEXT_EPOCH, 0, b"", (), 0), NOW)
    session.advanced(Advanced(0, (staged(1, NEXT_EPOCH),), False), NOW)
    nak = wire(Nak(epoch=NEXT_EPOCH, expected=expected, reason="never"))
    assert jobs(session.control_untrusted(nak, NOW + 1)) == []
    assert jobs(session.timer(NOW + 999)) == []
    assert isinstance(jobs(session.timer(NOW + 1_000))[0], NewEpoch)


def test_a_nak_of_another_epoch_changes_nothing() -> None:
    session = resumed(staged(1))
    assert session.control_untrusted(wire(Nak(epoch=PEER_EPOCH, expected=0, reason="")), NOW) == []


def test_forgetting_twice_a_minute_silences_the_event_stream_and_the_link_stays() -> None:
    state = LinkState(OutboundStream(EPOCH, 7, b"d" * 32, (), NOW - 10_000), None)
    session = Session(GREETING, PEER)
    session.start(state, NOW)
    effects = session.control_untrusted(hello(), NOW)
    assert jobs(effects) == []
    assert sent_events(effects) == []
    assert jobs(session.log_grew(NOW)) == []
    due = session.next_timer()
    assert due is not None
    assert jobs(session.timer(NOW - 10_000 + GENESIS_REWIND_MS - 1)) == []
    assert only(NewEpoch, session.timer(NOW - 10_000 + GENESIS_REWIND_MS)) == NewEpoch(EPOCH, "genesis")


def test_the_window_is_never_exceeded_and_acks_open_it() -> None:
    frames = [staged(no) for no in range(1, WINDOW_FRAMES + 1)]
    session = resumed(*frames)
    assert jobs(session.log_grew(NOW)) == []
    assert only(Advance, session.control_untrusted(ack(frames[0]), NOW)).room == 1


def test_acks_that_come_while_a_job_runs_are_settled_together() -> None:
    frames = [staged(no) for no in (1, 2, 3)]
    session = resumed(*frames)
    assert len(jobs(session.control_untrusted(ack(frames[0]), NOW))) == 1
    assert jobs(session.control_untrusted(ack(frames[1]) + ack(frames[2]), NOW)) == []
    assert [each.no for each in only(Advance, session.advanced(Advanced(1, (), False), NOW)).settled] == [2, 3]


def test_a_new_filter_discards_what_is_staged() -> None:
    state = LinkState(OutboundStream(EPOCH, 0, b"", (staged(1).staged,), 0), None)
    session = started(state, inbound=Inbound(EPOCH, 1, b""))
    assert only(NewEpoch, session.resent(None, NOW)) == NewEpoch(EPOCH, "settled")
    effects = session.epoch_opened(OutboundStream(NEXT_EPOCH, 0, b"", (), 0), NOW)
    assert sent_events(effects) == [Open(epoch=NEXT_EPOCH, next=1)]
    session.advanced(Advanced(0, (), False), NOW)
    assert session.control_untrusted(ack(staged(1)), NOW) == []  # a late ack of the epoch before


def test_opting_out_discards_at_once_and_opting_in_stages_what_the_store_queued() -> None:
    session = resumed(staged(1))
    assert only(NewEpoch, session.policy_changed(NOW, widened=False)).at == "settled"
    session = resumed(staged(1))
    assert only(Advance, session.policy_changed(NOW, widened=True)).room == WINDOW_FRAMES - 1
    session = resumed()
    assert only(Advance, session.policy_changed(NOW, widened=False)).room == WINDOW_FRAMES


def test_an_ack_that_comes_while_its_epoch_is_replaced_settles_nothing_in_the_new_one() -> None:
    session = resumed(staged(1))
    assert only(NewEpoch, session.policy_changed(NOW, widened=False)) == NewEpoch(EPOCH, "settled")
    assert jobs(session.control_untrusted(ack(staged(1)), NOW)) == []
    effects = session.epoch_opened(OutboundStream(NEXT_EPOCH, 0, b"", (), 0), NOW)
    assert only(Advance, effects).settled == ()


def test_a_node_that_may_not_publish_sends_no_event_frame_until_it_may() -> None:
    session = Session(GREETING, PEER)
    session.publish(False, NOW)
    session.start(LinkState(None, None), NOW)
    assert jobs(session.control_untrusted(hello(), NOW)) == []
    assert jobs(session.log_grew(NOW)) == []
    assert only(NewEpoch, session.publish(True, NOW)) == NewEpoch(None, "genesis")


def test_publishing_that_stops_in_mid_stream_goes_on_in_the_same_epoch() -> None:
    first, second = staged(1), staged(2)
    session = resumed(first, second)
    session.publish(False, NOW)
    job = only(Advance, session.control_untrusted(ack(first), NOW))
    assert job.room == 0
    session.advanced(Advanced(1, (), True), NOW)
    assert jobs(session.log_grew(NOW)) == []
    assert only(Resend, session.publish(True, NOW)) == Resend(EPOCH, 2)


def test_a_stream_of_ours_that_cannot_be_read_stops_and_the_peers_goes_on() -> None:
    session = Session(GREETING, PEER)
    effects = session.start(LinkState(None, None, outbound_fault="cursor unreadable"), NOW)
    assert only(Notice, effects) == Notice("unreadable-state", "cursor unreadable")
    assert jobs(session.control_untrusted(hello(), NOW)) == []
    effects = session.events_untrusted(wire(Open(epoch=PEER_EPOCH, next=1)) + batch(1), NOW)
    assert only(Commit, effects).adopt == Adopt(PEER_EPOCH, 1)


def test_a_cycle_comes_every_thirty_seconds_and_offers_again_what_was_rejected() -> None:
    session = resumed()
    due = session.next_timer()
    assert due == NOW + CYCLE_MS
    assert jobs(session.timer(due - 1)) == []
    assert only(Advance, session.timer(due)).retry


def test_something_new_starts_a_cycle_that_begins_with_what_was_rejected() -> None:
    frames = [staged(1)]
    session = resumed(*frames)
    session.control_untrusted(ack(frames[0], rejected=(0,)), NOW)
    session.advanced(Advanced(1, (), False), NOW)
    assert only(Advance, session.log_grew(NOW)).retry
    # Rejected again: the next time it waits.
    session.advanced(Advanced(1, (staged(2),), False), NOW)
    session.control_untrusted(ack(staged(2), rejected=(0,)), NOW)
    session.advanced(Advanced(2, (), False), NOW)
    assert not only(Advance, session.log_grew(NOW + 1)).retry


def test_jobs_of_another_link_end_this_one() -> None:
    session = resumed(staged(1))
    session.log_grew(NOW)
    assert closes(session.advanced(None, NOW)) == CloseCode.DUPLICATE
    session = started()
    session.events_untrusted(wire(Open(epoch=PEER_EPOCH, next=1)), NOW)
    assert closes(session.committed(None, NOW)) == CloseCode.DUPLICATE


# --- Requests, watermarks, bye.


def test_requests_go_out_once_a_link_and_the_peers_are_answered_one_after_the_other() -> None:
    ours = encode_frame(Request(id=b"request1", what="site", site=THIRD))
    session = Session(GREETING, PEER)
    session.start(LinkState(None, None, requests=(ours,)), NOW)
    assert frame(ours) in [
        each.data for each in session.control_untrusted(hello(), NOW) if isinstance(each, SendControl)
    ]
    assert session.requests([ours], NOW) == []
    session.epoch_opened(OutboundStream(EPOCH, 0, b"", (), 0), NOW)
    theirs = [Request(id=bytes([no]) * 8, what="table", schema="*", table="*") for no in range(2)]
    session.control_untrusted(b"".join(map(wire, theirs)), NOW)
    assert only(Answer, session.advanced(Advanced(0, (), False), NOW)).request == theirs[0]
    assert only(Answer, session.answer_stored(True, NOW)).request == theirs[1]
    effects = session.answer_stored(False, NOW)
    assert only(Notice, effects).kind == "request-limit"


def test_a_flood_of_requests_is_bounded() -> None:
    session = started()
    flood = [wire(Request(id=no.to_bytes(8, "big"), what="site", site=THIRD)) for no in range(REQUESTS_PER_PEER + 1)]
    assert not session.control_untrusted(b"".join(flood[:-1]), NOW)
    assert only(Notice, session.control_untrusted(flood[-1], NOW)).kind == "request-limit"


def test_watermarks_are_told_once_they_changed_and_everything_is_staged() -> None:
    session = resumed()
    entry = WatermarkEntry(OWN, "main", "notes", NOW, 1)
    job = only(Advance, session.log_grew(NOW + 1_000))
    assert job.watermarks
    told = controls(session.advanced(Advanced(4, (), False, (entry,)), NOW + 1_000))
    assert told == [Watermarks(after=After(EPOCH, 0), entries=(entry,))]
    session.log_grew(NOW + 2_000)
    assert controls(session.advanced(Advanced(4, (), False, (entry,)), NOW + 2_000)) == []


def test_watermarks_of_the_peer_are_kept_as_evidence() -> None:
    session = resumed()
    good = WatermarkEntry(PEER, "main", "notes", NOW, 1)
    bad = WatermarkEntry(PEER, "main", "other", NOW + SKEW_MS + 2, 1)
    effects = session.control_untrusted(wire(Watermarks(after=After(PEER_EPOCH, 0), entries=(good, bad))), NOW)
    assert session.peer_watermarks == {(PEER, "main", "notes"): Told(Hlc(NOW, 1), NOW)}
    assert only(Notice, effects).kind == "skew"
    older = WatermarkEntry(PEER, "main", "notes", NOW - 1, 0)
    session.control_untrusted(wire(Watermarks(after=After(PEER_EPOCH, 0), entries=(older,))), NOW + 1)
    assert session.peer_watermarks == {(PEER, "main", "notes"): Told(Hlc(NOW, 1), NOW)}


def test_a_watermark_told_while_our_clock_was_behind_counts_once_it_is_right() -> None:
    session = resumed()
    session.events_untrusted(wire(Open(epoch=PEER_EPOCH, next=1)), NOW)
    session.committed(Committed(PEER_EPOCH, 1, ()), NOW)
    ahead = WatermarkEntry(THIRD, "main", "notes", NOW + SKEW_MS + 5, 0)
    told = session.control_untrusted(wire(Watermarks(after=After(PEER_EPOCH, 0), entries=(ahead,))), NOW)
    assert jobs(told) + jobs(session.timer(NOW + 4)) == []
    effects = session.timer(NOW + 5)
    assert only(PeerWatermarks, effects).entries == 1
    assert only(Commit, effects).claims == (ahead,)
    assert session.peer_watermarks == {(THIRD, "main", "notes"): Told(Hlc(NOW + SKEW_MS + 5, 0), NOW + 5)}


def test_nothing_goes_to_a_peer_that_said_bye() -> None:
    session = resumed()
    assert session.control_untrusted(wire(Bye(code=10, reason="off")), NOW) == [PeerBye(10, "off")]
    assert session.log_grew(NOW) == []
    assert session.next_timer() is None


def test_goodbye_says_why() -> None:
    session = resumed()
    effects = session.goodbye(CloseCode.SHUTTING_DOWN, "off")
    assert controls(effects) == [Bye(code=10, reason="off")]
    assert closes(effects) == CloseCode.SHUTTING_DOWN


# --- Receiving.


def receiving(state: InboundStream | None = None) -> Session:
    return started(LinkState(None, state))


def stored(no: int, epoch: bytes = PEER_EPOCH) -> StoredAck:
    return StoredAck(no, digest(batch(no, epoch)[4:]), b"\xa1" + bytes([no]))


def committed(*nos: int) -> Committed:
    return Committed(PEER_EPOCH, nos[-1] + 1 if nos else 1, tuple(stored(no) for no in nos))


def test_frames_are_committed_in_order_and_acknowledged_only_then() -> None:
    session = receiving()
    effects = session.events_untrusted(wire(Open(epoch=PEER_EPOCH, next=1)) + batch(1), NOW)
    job = only(Commit, effects)
    assert job.adopt == Adopt(PEER_EPOCH, 1)
    assert [each.no for each in job.frames] == [1]
    assert not any(isinstance(each, SendControl) for each in effects)
    assert session.events_untrusted(batch(2) + batch(3), NOW) == []
    effects = session.committed(committed(1), NOW)
    assert [each.data for each in effects if isinstance(each, SendControl)] == [frame(stored(1).cbor)]
    job = only(Commit, effects)
    assert job.adopt is None
    assert [each.no for each in job.frames] == [2, 3]


def test_a_transaction_takes_no_more_than_others_can_wait_for() -> None:
    session = receiving()
    third, whole = COMMIT_EVENTS // 3, COMMIT_EVENTS + 1
    sizes = (third, third, third, third, whole, 1, 1, 1)
    entry = WatermarkEntry(PEER, "main", "notes", NOW, 1)
    session.control_untrusted(wire(Watermarks(after=After(PEER_EPOCH, 4), entries=(entry,))), NOW)
    frames = [batch(no, events=(b"x",) * size) for no, size in enumerate(sizes, 1)]
    effects = session.events_untrusted(wire(Open(epoch=PEER_EPOCH, next=1)) + b"".join(frames), NOW)
    taken: list[list[int]] = []
    claimed: list[int] = []
    while effects:
        job = only(Commit, effects)
        taken.append([each.no for each in job.frames])
        if job.claims:
            claimed.append(job.frames[-1].no)
        effects = session.committed(committed(*taken[-1]), NOW)
        effects = [each for each in effects if isinstance(each, Commit)]
    assert taken == [[1, 2, 3], [4], [5], [6, 7, 8]]
    assert claimed == [4], "a claim counts once every frame before it is committed, and no sooner"


def test_what_is_not_on_disk_is_counted_and_a_session_that_ended_keeps_none_of_it() -> None:
    session = Session(GREETING, PEER)
    session.start(LinkState(None, None), NOW)
    frames = [batch(no, events=(b"x" * 1_000,)) for no in (1, 2, 3)]
    session.events_untrusted(wire(Open(epoch=PEER_EPOCH, next=1)) + frames[0], NOW)
    assert session.uncommitted_bytes > 1_000, "what overtook the hello counts too"
    session.control_untrusted(hello(), NOW)
    session.events_untrusted(frames[1] + frames[2] + frames[2], NOW)
    assert session.uncommitted_bytes == sum(map(len, frames)) - 3 * 4  # without the length prefixes
    session.committed(replace(committed(1), acks=(StoredAck(1, digest(frames[0][4:]), b"\xa0"),)), NOW)
    assert session.uncommitted_bytes == sum(map(len, frames[1:])) - 2 * 4
    session.events_untrusted(wire(Open(epoch=NEXT_EPOCH, next=1)), NOW)
    assert session.uncommitted_bytes == 0
    session.events_untrusted(batch(1, NEXT_EPOCH), NOW)
    session.goodbye(CloseCode.DONE, "")
    assert session.uncommitted_bytes == 0
    early = Session(GREETING, PEER)
    early.start(LinkState(None, None), NOW)
    early.events_untrusted(frames[0], NOW)
    early.goodbye(CloseCode.DONE, "")
    assert early.uncommitted_bytes == 0


def test_a_live_frame_is_the_last_one_of_its_transaction() -> None:
    session = live_session()
    ahead = wire(Live(epoch=PEER_EPOCH, no=2, clock={}, events=[b"x"]))
    frames = wire(Open(epoch=PEER_EPOCH, next=1)) + batch(1) + ahead + batch(3) + batch(4)
    assert [each.no for each in only(Commit, session.events_untrusted(frames, NOW)).frames] == [1, 2]
    assert [each.no for each in only(Commit, session.committed(committed(1, 2), NOW)).frames] == [3, 4]


def test_large_events_count_for_many_in_a_transaction() -> None:
    session = receiving()
    large = b"x" * (BATCH_BYTES // BATCH_EVENTS * COMMIT_EVENTS)
    frames = wire(Open(epoch=PEER_EPOCH, next=1)) + batch(1, events=(large,)) + batch(2)
    assert [each.no for each in only(Commit, session.events_untrusted(frames, NOW)).frames] == [1]


def test_a_repeat_is_answered_with_the_stored_ack_byte_for_byte() -> None:
    session = receiving(InboundStream(PEER_EPOCH, 3, stored(2).digest, (stored(1), stored(2))))
    assert session.events_untrusted(batch(1), NOW) == [SendControl(frame(stored(1).cbor))]
    assert session.events_untrusted(batch(2), NOW) == [SendControl(frame(stored(2).cbor))]


def test_a_repeat_of_a_frame_that_is_not_on_disk_yet_waits_for_its_ack() -> None:
    session = receiving()
    session.events_untrusted(wire(Open(epoch=PEER_EPOCH, next=1)) + batch(1), NOW)
    assert session.events_untrusted(batch(1), NOW) == []
    assert session.committed(committed(1), NOW) == [SendControl(frame(stored(1).cbor))]


def test_there_is_one_nak_per_gap() -> None:
    session = receiving(InboundStream(PEER_EPOCH, 3, stored(2).digest, (stored(1), stored(2))))
    gap = Nak(epoch=PEER_EPOCH, expected=3, reason="frames are missing")
    assert controls(session.events_untrusted(batch(4), NOW)) == [gap]
    assert session.events_untrusted(batch(5) + batch(6), NOW) == []
    assert [each.no for each in only(Commit, session.events_untrusted(batch(3), NOW)).frames] == [3]
    again = controls(session.events_untrusted(batch(9), NOW))
    assert [each.expected for each in again] == [4]  # type: ignore[union-attr]


def test_a_repeat_with_another_digest_gets_a_nak_and_changes_nothing() -> None:
    session = receiving(InboundStream(PEER_EPOCH, 3, stored(2).digest, (stored(1), stored(2))))
    effects = session.events_untrusted(batch(2, events=(b"other",)), NOW)
    assert [each.expected for each in controls(effects)] == [3]  # type: ignore[union-attr]
    assert jobs(effects) == []


def test_a_frame_of_an_epoch_that_is_not_current_gets_a_nak_with_that_epoch() -> None:
    session = receiving(InboundStream(PEER_EPOCH, 3, stored(2).digest, (stored(2),)))
    effects = session.events_untrusted(batch(3, NEXT_EPOCH) + batch(4, NEXT_EPOCH), NOW)
    assert [(each.epoch, each.expected) for each in controls(effects)] == [(NEXT_EPOCH, 0)]  # type: ignore[union-attr]


def test_open_for_the_current_epoch_changes_nothing() -> None:
    session = receiving(InboundStream(PEER_EPOCH, 3, stored(2).digest, (stored(2),)))
    assert session.events_untrusted(wire(Open(epoch=PEER_EPOCH, next=9)), NOW) == []
    assert session.next_inbound == 3


def test_another_epoch_replaces_what_was_queued_of_the_one_before() -> None:
    session = receiving()
    session.events_untrusted(wire(Open(epoch=PEER_EPOCH, next=1)) + batch(1), NOW)
    session.events_untrusted(batch(2) + wire(Open(epoch=NEXT_EPOCH, next=1)) + batch(1, NEXT_EPOCH), NOW)
    job = only(Commit, session.committed(committed(1), NOW))
    assert job.adopt == Adopt(NEXT_EPOCH, 1)
    assert [each.content.epoch for each in job.frames] == [NEXT_EPOCH]


def test_a_peer_that_ignores_the_window_is_stopped() -> None:
    session = receiving()
    window = b"".join(batch(no) for no in range(1, WINDOW_FRAMES + 1))
    effects = session.events_untrusted(wire(Open(epoch=PEER_EPOCH, next=1)) + window, NOW)
    assert not any(isinstance(each, Close) for each in effects)
    assert closes(session.events_untrusted(batch(WINDOW_FRAMES + 1), NOW)) == CloseCode.LIMIT


def test_bytes_arrive_in_any_portions() -> None:
    session = receiving()
    data = wire(Open(epoch=PEER_EPOCH, next=1)) + batch(1)
    effects = [effect for byte in data for effect in session.events_untrusted(bytes([byte]), NOW)]
    assert [len(each.frames) for each in jobs(effects)] == [0]  # type: ignore[union-attr]
    assert [each.no for each in only(Commit, session.committed(committed(), NOW)).frames] == [1]


def test_a_repeat_with_another_digest_of_a_frame_that_is_not_on_disk_yet_gets_a_nak() -> None:
    session = receiving()
    session.events_untrusted(wire(Open(epoch=PEER_EPOCH, next=1)) + batch(1), NOW)
    again = controls(session.events_untrusted(batch(1, events=(b"other",)), NOW))
    assert [each.expected for each in again] == [2]  # type: ignore[union-attr]


def test_nothing_is_waited_for_while_a_job_runs_or_nothing_may_go_out() -> None:
    session = resumed()
    session.log_grew(NOW)
    assert session.next_timer() is None
    session.advanced(Advanced(0, (), False, ()), NOW)
    assert session.next_timer() == NOW + 1_000  # the watermarks
    session.publish(False, NOW)
    session.log_grew(NOW)
    assert session.next_timer() is None


def test_what_the_peer_brought_is_looked_at_again_a_little_later() -> None:
    session = receiving()
    session.epoch_opened(OutboundStream(EPOCH, 0, b"", (), 0), NOW)
    session.advanced(Advanced(0, (), False, ()), NOW)
    session.events_untrusted(wire(Open(epoch=PEER_EPOCH, next=1)) + batch(1), NOW)
    brought = replace(committed(1), added=True)
    assert jobs(session.committed(brought, NOW)) == []
    due = session.next_timer()
    assert due is not None
    assert NOW < due < NOW + CYCLE_MS
    assert len(jobs(session.timer(due))) == 1


def live_session(*frames: StagedFrame) -> Session:
    """As `resumed`, the feature `live` agreed; what goes ahead was looked for once."""
    session = Session(replace(GREETING, features=("live",)), PEER)
    state = LinkState(OutboundStream(EPOCH, 0, b"", tuple(each.staged for each in frames), 0), None)
    session.start(state, NOW)
    session.control_untrusted(hello(inbound=Inbound(EPOCH, 1, b""), features=("live",)), NOW)
    if frames:
        session.resent(frames, NOW)
    session.advanced(Advanced(0, (), False, (), 7), NOW)
    return session


def test_a_full_window_leaves_room_for_what_goes_ahead_of_it() -> None:
    frames = [staged(no) for no in range(1, WINDOW_FRAMES - LIVE_FRAMES + 1)]
    session = live_session(*frames)
    job = only(Advance, session.log_grew(NOW))
    assert (job.room, job.live_room, job.live_after) == (0, LIVE_FRAMES, 7)
    ahead = [replace(each, staged=replace(each.staged, live=True)) for each in map(staged, (7, 8))]
    assert len(sent_events(session.advanced(Advanced(0, tuple(ahead), True, None, 9), NOW))) == LIVE_FRAMES
    assert jobs(session.log_grew(NOW)) == [], "the window is full"
    job = only(Advance, session.control_untrusted(ack(frames[0]), NOW))
    assert (job.room, job.live_room, job.live_after) == (1, 0, 9), "neither takes the other's part of the window"


def test_what_went_ahead_and_was_rejected_is_not_offered_again_by_a_cycle() -> None:
    first = staged(1)
    ahead = replace(first, staged=replace(first.staged, live=True))
    session = live_session(ahead)
    session.control_untrusted(ack(ahead, rejected=(0,)), NOW)
    session.advanced(Advanced(1, (), False), NOW)
    assert not only(Advance, session.log_grew(NOW)).retry


def test_a_new_epoch_looks_for_what_goes_ahead_from_the_beginning() -> None:
    session = live_session(staged(1))
    session.policy_changed(NOW, widened=True)
    job = only(Advance, session.epoch_opened(OutboundStream(NEXT_EPOCH, 0, b"", (), 0), NOW))
    assert (job.live_after, job.live_room) == (0, LIVE_FRAMES)


def test_labels_are_cut_to_what_a_frame_may_carry() -> None:
    session = resumed()
    (bye,) = controls(session.goodbye(CloseCode.DONE, "ü" * 100))
    assert isinstance(bye, Bye)
    assert bye.reason == "ü" * 64


def test_an_agreed_feature_is_understood() -> None:
    session = Session(replace(GREETING, features=("deflate",)), PEER)
    session.start(LinkState(None, InboundStream(PEER_EPOCH, 1, b"")), NOW)
    session.control_untrusted(hello(features=("deflate", "other")), NOW)
    packed = zlib.compress(cbor.encode([b"x"]), wbits=-zlib.MAX_WBITS)
    data = frame(cbor.encode({"t": "batch", "epoch": PEER_EPOCH, "no": 1, "clock": {}, "deflated": packed}))
    (accepted,) = only(Commit, session.events_untrusted(data, NOW)).frames
    assert accepted.content.events == [b"x"]
    plain = started(LinkState(None, InboundStream(PEER_EPOCH, 1, b"")), features=("deflate",))
    assert closes(plain.events_untrusted(data, NOW)) == CloseCode.PROTOCOL_ERROR
