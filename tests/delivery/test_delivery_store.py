"""The durable half alone: which jobs change nothing, what is kept and bounded (profile §8; NEOTH commit contract)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.pair import Node, mesh
from support.records import site_key

from meshnode.codec.cbor import decode_untrusted
from meshnode.engine import inbox, outbox
from meshnode.engine.links import ask_own_history, open_link
from meshnode.engine.offer import Filter
from meshnode.limits import BATCH_BYTES, COUNTER_MAX, REQUESTS_PER_PEER, STORED_ACK_WINDOWS, WINDOW_FRAMES
from meshnode.model.delivery import PATH, Adopt, Advanced, Committed, OutboundStream, Received, Settlement, StagedFrame
from meshnode.model.frames import Answered, Batch, Records, Request, digest, encode_frame
from meshnode.model.frames_untrusted import decode_events_untrusted
from meshnode.model.scope import Scope
from meshnode.store import delivery, offers
from meshnode.sync.sender import Sender

PEER = site_key(2).site
EPOCH = b"peer-epo"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """One member with the table, and an empty outbound stream to a peer that is not there."""
    return mesh(tmp_path, 2)[0]


def opened(node: Node, at: str = "genesis", expected: bytes | None = None) -> OutboundStream:
    stream = outbox.open_epoch(node.context, PEER, PATH, expected=expected, at=at)
    assert stream is not None
    return stream


def advance(
    node: Node,
    epoch: bytes,
    *settled: Settlement,
    known_no: int = 0,
    room: int = WINDOW_FRAMES,
    retry: bool = False,
    offered: Filter | None = None,
) -> Advanced | None:
    return outbox.advance(
        node.context,
        PEER,
        PATH,
        epoch=epoch,
        settled=settled,
        known_no=known_no,
        room=room,
        retry=retry,
        watermarks=False,
        offered=offered or Filter(),
    )


def frames_of(result: Advanced | None) -> tuple[StagedFrame, ...]:
    assert result is not None
    return result.frames


def settles(frame: StagedFrame, *rejected: int) -> Settlement:
    return Settlement(frame.staged.no, frame.staged.digest, rejected)


def durable(node: Node) -> list[list[tuple[object, ...]]]:
    tables = ("outbound", "staged", "reoffers", "answers", "epochs", "inbound", "acks", "frontier")
    return [node.query(f"SELECT * FROM meshnode_{table}") for table in tables]


# --- Sending.


def test_jobs_of_another_epoch_change_nothing(node: Node) -> None:
    node.write("n1", "x")
    stream = opened(node)
    advance(node, stream.epoch)
    before = durable(node)
    assert advance(node, b"anotherr") is None
    assert outbox.resend(node.context, PEER, PATH, epoch=b"anotherr", from_no=1, offered=Filter()) is None
    assert outbox.open_epoch(node.context, PEER, PATH, expected=None, at="genesis") is None
    assert outbox.open_epoch(node.context, PEER, PATH, expected=b"anotherr", at="genesis") is None
    assert durable(node) == before


def test_a_settlement_that_is_not_of_the_oldest_frames_in_order_changes_nothing(node: Node) -> None:
    node.write("n1", "x")
    stream = opened(node)
    first, second = frames_of(advance(node, stream.epoch))
    before = durable(node)
    assert advance(node, stream.epoch, replace(settles(first), digest=b"f" * 32)) is None
    assert advance(node, stream.epoch, settles(second)) is None
    assert advance(node, stream.epoch, settles(first), replace(settles(second), no=3)) is None
    assert durable(node) == before
    result = advance(node, stream.epoch, settles(first), settles(second), known_no=2)
    assert result == Advanced(2, (), False)
    assert advance(node, stream.epoch, settles(first), settles(second), known_no=2) == result


def test_staging_is_durable_exact_and_ticks_once(node: Node) -> None:
    node.write("n1", "x")
    stream = opened(node)
    frames = frames_of(advance(node, stream.epoch))
    assert advance(node, stream.epoch, known_no=2) == Advanced(0, (), False)
    assert frames_of(advance(node, stream.epoch, known_no=0)) == frames
    node.crash()
    assert open_link(node.context, PEER, PATH).outbound == replace(stream, staged=tuple(each.staged for each in frames))
    again = outbox.resend(node.context, PEER, PATH, epoch=stream.epoch, from_no=1, offered=Filter())
    assert again == frames
    assert node.query("SELECT attempts FROM meshnode_staged") == [(1,), (1,)]
    assert node.query("SELECT counter FROM meshnode_frontier WHERE site = ?", node.site) == [(1,)]


def test_the_window_bounds_what_is_staged(node: Node) -> None:
    stream = opened(node)
    assert [each.staged.no for each in frames_of(advance(node, stream.epoch, room=1))] == [1]
    node.write("n1", "x")
    result = advance(node, stream.epoch, known_no=1, room=0)
    assert result == Advanced(0, (), True)


def test_a_job_that_dies_in_its_transaction_left_nothing(node: Node) -> None:
    node.write("n1", "x")
    stream = opened(node)
    before = durable(node)
    for statements in range(40):
        node.fuse = statements
        try:
            advance(node, stream.epoch)
        except Exception:
            node.crash()
            assert durable(node) == before
        else:
            break
    node.fuse = None
    assert len(node.query("SELECT no FROM meshnode_staged")) == 2


def test_the_peers_own_events_are_passed_and_long_filtered_stretches_take_many_transactions(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(offers, "SCAN_ROWS", 2)
    for number in range(5):
        node.write(f"n{number}", "x", table=("main", "hidden"))
    node.write("n9", "x")
    stream = opened(node)
    (records,) = frames_of(advance(node, stream.epoch, offered=Filter(Scope(("*.*", "!main.hidden")))))
    offered = Filter(Scope(("*.*", "!main.hidden")))
    cursors = []
    result = advance(node, stream.epoch, settles(records), known_no=1, offered=offered)
    while not frames_of(result):
        assert result is not None
        assert result.more
        cursors.append(node.query("SELECT cursor FROM meshnode_outbound")[0][0])
        result = advance(node, stream.epoch, known_no=1, offered=offered)
    assert cursors == [2, 4]
    monkeypatch.setattr(offers, "SCAN_ROWS", 100)
    monkeypatch.setattr(offers, "SCAN_BYTES", 0)
    with node.context.transaction() as tx:
        assert offers.events_after(tx, 0, 0, lambda _table_no, _physical: False, 1).scanned_to == 1
    node.query("UPDATE meshnode_log SET site_no = (SELECT no FROM meshnode_sites WHERE site = ?)", PEER)
    reopened = opened(node, expected=stream.epoch)
    assert [each.staged.items for each in frames_of(advance(node, reopened.epoch))] == [records.staged.items]


def test_rejected_indexes_wait_for_the_next_cycle_and_come_first_in_it(node: Node) -> None:
    for number in range(3):
        node.write(f"n{number}", "x")
    stream = opened(node)
    records, batch = frames_of(advance(node, stream.epoch))
    events = decode_events_untrusted(batch.cbor)
    assert isinstance(events, Batch)
    assert frames_of(advance(node, stream.epoch, settles(records, 1), settles(batch, 0, 2), known_no=2)) == ()
    node.write("n9", "x")
    frames = [decode_events_untrusted(each.cbor) for each in frames_of(advance(node, stream.epoch, retry=True))]
    assert [type(each) for each in frames] == [Records, Batch, Batch]
    assert isinstance(frames[0], Records)
    assert len(frames[0].records) == 1
    assert isinstance(frames[1], Batch)
    assert frames[1].events == [events.events[0], events.events[2]]
    assert isinstance(frames[2], Batch)
    assert len(frames[2].events) == 1


def test_a_reoffer_that_the_peer_may_not_get_any_more_is_dropped(node: Node) -> None:
    node.write("n1", "x")
    stream = opened(node)
    records, batch = frames_of(advance(node, stream.epoch))
    advance(node, stream.epoch, settles(records), settles(batch, 0), known_no=2)
    result = advance(node, stream.epoch, known_no=2, retry=True, offered=Filter(Scope(("!*.*",))))
    assert frames_of(result) == ()
    assert node.query("SELECT * FROM meshnode_reoffers") == []


def test_from_genesis_the_log_comes_first_and_what_was_rejected_or_asked_for_after_it(node: Node) -> None:
    """A peer that begins anew takes the stream for whole: later events first would let it claim a hole (profile §6)."""
    written = [node.write(f"n{number}", "x").data for number in range(3)]
    stream = opened(node)
    records, batch = frames_of(advance(node, stream.epoch))
    advance(node, stream.epoch, settles(records), settles(batch, 2), known_no=2)
    outbox.queue_answer(node.context, PEER, PATH, request(7, schema="main", table="notes"))
    again = opened(node, expected=stream.epoch)
    frames = frames_of(advance(node, again.epoch, retry=True))
    contents = [decode_events_untrusted(each.cbor) for each in frames]
    assert [type(each) for each in contents] == [Records, Batch, Answered]
    assert isinstance(contents[1], Batch)
    assert contents[1].events == written
    # What it rejected is still owed to it, and goes out once more.
    advance(node, again.epoch, *map(settles, frames), known_no=3)
    (last,) = frames_of(advance(node, again.epoch, known_no=3, retry=True))
    assert last.staged.items == 1
    assert node.query("SELECT * FROM meshnode_reoffers") == []


def test_a_rewind_is_dated_only_where_something_was_settled(node: Node) -> None:
    stream = opened(node)
    again = opened(node, expected=stream.epoch)
    assert again.rewound_ms == 0
    (records,) = frames_of(advance(node, again.epoch))
    advance(node, again.epoch, settles(records), known_no=1)
    third = opened(node, "settled", again.epoch)
    assert third.rewound_ms == 0
    assert node.query("SELECT record_cursor > 0 FROM meshnode_outbound") == [(1,)]
    assert opened(node, expected=third.epoch).rewound_ms == node.time.now_ms
    assert node.query("SELECT record_cursor FROM meshnode_outbound") == [(0,)]


def test_acks_of_earlier_epochs_are_known_after_a_restart_and_bounded(node: Node) -> None:
    stream = opened(node)
    first = stream.epoch
    for _ in range(delivery.PAST_EPOCHS):
        stream = opened(node, expected=stream.epoch)
    node.crash()
    past = open_link(node.context, PEER, PATH).past_epochs
    assert first in past
    assert len(past) == delivery.PAST_EPOCHS
    opened(node, expected=stream.epoch)
    assert first not in open_link(node.context, PEER, PATH).past_epochs


def sizes_of(result: Advanced | None) -> list[int]:
    return [each.staged.items for each in frames_of(result)][1:]  # after the records


def test_a_batch_is_bounded_in_bytes_and_one_event_always_fits(node: Node) -> None:
    half = len(node.write("n0", "x" * (BATCH_BYTES // 2)).data)
    exact = "x" * (BATCH_BYTES // 2 + BATCH_BYTES - 2 * half)
    node.write("n1", exact)
    assert sum(map(len, node.events())) == BATCH_BYTES
    stream = opened(node)
    assert sizes_of(advance(node, stream.epoch)) == [2]
    node.write("n2", "x" * (BATCH_BYTES + 1))
    node.write("n3", "x")
    again = opened(node, expected=stream.epoch)
    assert sizes_of(advance(node, again.epoch)) == [2, 1, 1]


def test_the_frontier_saturates_and_the_local_slot_is_never_merged(node: Node) -> None:
    open_link(node.context, PEER, PATH)
    node.query("INSERT INTO meshnode_frontier VALUES (?, ?)", node.site, COUNTER_MAX - 1)
    clock = {PEER: COUNTER_MAX, node.site: COUNTER_MAX, b"never met by us!": 5}
    batch = Batch(epoch=EPOCH, no=1, clock=clock, events=[])
    receive(node, Received(1, digest(encode_frame(batch)), batch), adopt=Adopt(EPOCH, 1))
    slots = "SELECT counter FROM meshnode_frontier WHERE site = ?"
    assert node.query(slots, PEER) == [(COUNTER_MAX,)]
    assert node.query(slots, node.site) == [(COUNTER_MAX - 1,)]
    assert len(node.query("SELECT * FROM meshnode_frontier")) == 2
    stream = opened(node)
    for number in range(2):
        node.write(f"n{number}", "x")
        advance(node, stream.epoch)
        assert node.query(slots, node.site) == [(COUNTER_MAX,)]


# --- Requests.


def request(number: int, **named: str | bytes) -> Request:
    return Request(id=number.to_bytes(8, "big"), **{"what": "table", **named})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("named", "titles"),
    [
        ({"schema": "main", "table": "notes"}, ["n1"]),
        ({"schema": "*", "table": "notes"}, ["n1"]),
        ({"schema": "main", "table": "*"}, ["n1", "o1"]),
        ({"schema": "*", "table": "*"}, ["n1", "o1"]),
        ({"schema": "other", "table": "*"}, []),
        ({"what": "site", "site": site_key(1).site}, ["n1", "o1"]),
        ({"what": "site", "site": site_key(77).site}, []),
    ],
)
def test_what_was_asked_for_is_offered_again_and_then_marked_answered(
    node: Node, named: dict[str, str | bytes], titles: list[str]
) -> None:
    events = {"n1": node.write("n1", "x").data, "o1": node.write("o1", "x", table=("main", "others")).data}
    stream = opened(node)
    frames = frames_of(advance(node, stream.epoch))
    advance(node, stream.epoch, *map(settles, frames), known_no=2)
    asked = request(7, **named)
    assert outbox.queue_answer(node.context, PEER, PATH, asked)
    assert outbox.queue_answer(node.context, PEER, PATH, asked)
    node.crash()  # durable from here on
    answer = [decode_events_untrusted(each.cbor) for each in frames_of(advance(node, stream.epoch, known_no=2))]
    assert isinstance(answer[-1], Answered)
    assert answer[-1].id == asked.id
    offered = [event for each in answer[:-1] if isinstance(each, Batch) for event in each.events]
    assert offered == [events[title] for title in titles]
    assert outbox.queue_answer(node.context, PEER, PATH, asked)  # staged already: nothing is queued twice
    assert node.query("SELECT count(*) FROM meshnode_answers") == [(0,)]


def test_a_request_brings_the_peers_own_events(node: Node) -> None:
    stream = opened(node)
    node.write("n1", "x")
    node.query("UPDATE meshnode_log SET site_no = (SELECT no FROM meshnode_sites WHERE site = ?)", PEER)
    (records,) = frames_of(advance(node, stream.epoch))
    outbox.queue_answer(node.context, PEER, PATH, request(1, what="site", site=PEER))
    answer = frames_of(advance(node, stream.epoch, known_no=1))
    assert [each.staged.items for each in answer] == [1, 0]
    # Discarded before it was settled: both come back.
    node.crash()
    again = opened(node, expected=stream.epoch)
    frames = [decode_events_untrusted(each.cbor) for each in frames_of(advance(node, again.epoch))]
    assert [type(each) for each in frames] == [Records, Batch, Answered]
    assert records.staged.items == len(node.query("SELECT 1 FROM meshnode_records"))


def test_unanswered_requests_of_one_peer_are_bounded(node: Node) -> None:
    for number in range(REQUESTS_PER_PEER):
        assert outbox.queue_answer(node.context, PEER, PATH, request(number, schema="*", table="*"))
    assert not outbox.queue_answer(node.context, PEER, PATH, request(999, schema="*", table="*"))


def test_an_answer_in_flight_counts_among_them(node: Node) -> None:
    stream = opened(node)
    for number in range(REQUESTS_PER_PEER):
        outbox.queue_answer(node.context, PEER, PATH, request(number, schema="*", table="*"))
    assert len(frames_of(advance(node, stream.epoch))) == WINDOW_FRAMES
    assert not outbox.queue_answer(node.context, PEER, PATH, request(999, schema="*", table="*"))
    opened(node, expected=stream.epoch)
    assert node.query("SELECT count(*) FROM meshnode_answers") == [(REQUESTS_PER_PEER,)]


def test_our_own_history_is_asked_for_once(node: Node) -> None:
    (asked,) = ask_own_history(node.context, PEER, PATH)
    assert decode_untrusted(asked)["site"] == node.site  # type: ignore[index, call-overload]
    assert ask_own_history(node.context, PEER, PATH) == (asked,)


# --- Receiving.


def received(no: int, epoch: bytes = EPOCH, *events: bytes) -> Received:
    batch = Batch(epoch=epoch, no=no, clock={}, events=list(events))
    return Received(no, digest(encode_frame(batch)), batch)


def receive(node: Node, *frames: Received, adopt: Adopt | None = None, epoch: bytes = EPOCH) -> Committed | None:
    return inbox.receive(node.context, PEER, PATH, adopt=adopt, epoch=epoch, frames=frames, scope=Scope())


def test_a_commit_that_does_not_continue_the_stored_stream_changes_nothing(node: Node) -> None:
    before = durable(node)
    assert receive(node, received(1)) is None
    assert durable(node) == before
    assert receive(node, received(1), adopt=Adopt(EPOCH, 1)) is not None
    before = durable(node)
    assert receive(node, received(3)) is None
    assert receive(node, received(2), received(4)) is None
    assert receive(node, received(1, EPOCH, b"other")) is None
    assert receive(node, received(2, b"anotherr"), epoch=b"anotherr") is None
    assert durable(node) == before


def test_a_repeat_gets_the_stored_ack_and_counts_nothing_twice(node: Node) -> None:
    first = receive(node, received(1, EPOCH, b"junk"), adopt=Adopt(EPOCH, 1))
    assert first is not None
    node.crash()
    both = receive(node, received(1, EPOCH, b"junk"), received(2))
    assert both is not None
    assert both.acks[0] == first.acks[0]
    assert both.next == 3
    assert receive(node, received(2), adopt=Adopt(EPOCH, 1)) is not None  # adopted before: nothing starts over
    assert node.query("SELECT kind, count FROM meshnode_notices") == [("malformed", 1)]


def test_the_last_two_windows_of_acks_are_kept(node: Node) -> None:
    kept = STORED_ACK_WINDOWS * WINDOW_FRAMES
    receive(node, *(received(no) for no in range(1, kept + 1)), adopt=Adopt(EPOCH, 1))
    stored = open_link(node.context, PEER, PATH).inbound
    assert stored is not None
    assert [each.no for each in stored.acks] == list(range(1, kept + 1))
    receive(node, received(kept + 1))
    stored = open_link(node.context, PEER, PATH).inbound
    assert stored is not None
    assert [each.no for each in stored.acks] == list(range(2, kept + 2))
    assert stored.digest == received(kept + 1).digest


def test_an_epoch_opened_in_the_middle_names_no_digest(node: Node) -> None:
    receive(node, adopt=Adopt(EPOCH, 5))
    stored = open_link(node.context, PEER, PATH).inbound
    assert stored is not None
    assert (stored.next, stored.digest, stored.acks) == (5, None, ())


def test_a_commit_that_dies_in_its_transaction_left_nothing(node: Node) -> None:
    event = node.event("n1", "x").data
    before = durable(node)
    for statements in range(200):
        node.fuse = statements
        try:
            receive(node, received(1, EPOCH, event), adopt=Adopt(EPOCH, 1))
        except Exception:
            node.crash()
            assert durable(node) == before
            assert node.rows() == {}
        else:
            break
    node.fuse = None
    assert node.rows() == {"n1": "x"}


def test_an_empty_session_says_that_nothing_is_staged() -> None:
    assert Sender(None, ()).after == (bytes(8), 0)


def test_late_work_of_an_older_link_does_not_undo_what_a_newer_one_adopted(node: Node) -> None:
    older, newer = (open_link(node.context, PEER, PATH).link for _ in range(2))
    assert older < newer
    other = b"newer-ep"
    assert receive(node, received(1), adopt=Adopt(EPOCH, 1, older)) is not None
    assert receive(node, received(1, other), adopt=Adopt(other, 1, newer), epoch=other) is not None
    before = durable(node)
    assert receive(node, received(1), adopt=Adopt(EPOCH, 1, older)) is None
    assert durable(node) == before
    assert receive(node, received(2, other), epoch=other) is not None
