"""Feature `live`: what is written now goes ahead of a backlog, and claims nothing by it (profile §6, §8, §13)."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.pair import MESH_ID, NOTES, Node, Wire, mesh
from support.records import site_key, vouch
from test_delivery_random import ACTIONS, World, check_converged

from meshnode.codec import cbor
from meshnode.engine import inbox, outbox, staging
from meshnode.engine.commit import commit_events
from meshnode.engine.offer import Filter
from meshnode.engine.verify import verify_untrusted
from meshnode.errors import CloseCode, ProtocolError
from meshnode.limits import (
    BATCH_EVENTS,
    CYCLE_MS,
    LIVE_BACKLOG,
    LIVE_EVENTS,
    LIVE_FRAMES,
    LIVE_WAITING,
    SKEW_MS,
    WINDOW_FRAMES,
)
from meshnode.model.delivery import PATH, Adopt, Advanced, Received, Settlement, StagedFrame
from meshnode.model.event import Event, author_event
from meshnode.model.frames import FEATURES, Batch, Live, Records, digest, encode_frame
from meshnode.model.frames_untrusted import decode_events_untrusted
from meshnode.model.hlc import Hlc, tick
from meshnode.model.scope import Scope
from meshnode.node.syncing import sync_states
from meshnode.store import delivery, reoffers, watermarks
from meshnode.store.database import Tx
from meshnode.store.traces import streams_in_flight
from meshnode.sync.effects import Advance, NewEpoch

PEER = site_key(2).site
AGREED = frozenset(FEATURES)
BEHIND = LIVE_BACKLOG + 10  # events of which a few may settle


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """One member with the table; its peer is not there."""
    return mesh(tmp_path, 2)[0]


def write_many(node: Node, count: int) -> list[bytes]:
    """So many events in one transaction."""
    data: list[bytes] = []

    def work(tx: Tx) -> None:
        for number in range(count):
            node.context.clock = tick(node.context.clock, node.time.now_ms)
            data.append(node.event(f"row {number % 3}", f"value {number}", hlc=node.context.clock).data)
        checked = verify_untrusted(
            data, mesh_id=MESH_ID, keyring=node.context.membership, generation=node.context.generation
        )
        commit_events(node.context, tx, checked, author_stream=True, scope=Scope())

    node.context.transact(work)
    node.grew()
    return data


class Stream:
    """Drives the sending jobs of one stream as a session does."""

    def __init__(self, node: Node, offered: Filter | None = None) -> None:
        self.node, self.offered = node, offered or Filter()
        opened = outbox.open_epoch(node.context, PEER, PATH, expected=None, at="genesis")
        assert opened is not None
        self.epoch, self.known_no, self.live_after = opened.epoch, 0, 0
        self.in_flight: list[StagedFrame] = []

    def advance(
        self,
        *,
        room: int = 1,
        batch: int = 2,
        live_room: int = LIVE_FRAMES,
        settle: int = 0,
        rejected: Sequence[int] = (),
    ) -> list[Batch | Live | Records]:
        """Settle so many frames, stage, and say what was staged."""
        settled, self.in_flight = self.in_flight[:settle], self.in_flight[settle:]
        result = outbox.advance(
            self.node.context,
            PEER,
            PATH,
            epoch=self.epoch,
            settled=[Settlement(each.staged.no, each.staged.digest, tuple(rejected)) for each in settled],
            known_no=self.known_no,
            room=room,
            retry=False,
            watermarks=False,
            offered=self.offered,
            batch=batch,
            live_after=self.live_after,
            live_room=live_room,
        )
        assert isinstance(result, Advanced)
        self.live_after = result.live_after
        self.in_flight.extend(result.frames)
        self.known_no = self.in_flight[-1].staged.no if self.in_flight else self.known_no
        return [decode_events_untrusted(each.cbor, AGREED) for each in result.frames]  # type: ignore[misc]

    def caught_up(self, batch: int = BATCH_EVENTS) -> list[bytes]:
        """Everything that is still to come, in order."""
        events: list[bytes] = []
        for _ in range(100):
            frames = self.advance(batch=batch, live_room=0, settle=len(self.in_flight))
            if not frames:
                return events
            for frame in frames:
                events.extend(frame.events if isinstance(frame, Batch) else [])
        raise AssertionError("the stream does not come to rest")


def past_records(node: Node, offered: Filter | None = None) -> Stream:
    """A stream whose records are settled and whose first look at the log is done."""
    stream = Stream(node, offered)
    assert isinstance(stream.advance()[0], Records)
    stream.advance(room=0, settle=1)
    return stream


def test_what_is_written_now_goes_ahead_of_a_backlog_and_comes_again_in_order(node: Node) -> None:
    backlog = write_many(node, LIVE_BACKLOG + LIVE_WAITING)
    stream = past_records(node)
    stream.advance(settle=len(stream.in_flight))
    written = [node.write("new", "first").data, node.write("new", "second").data]
    (live,) = stream.advance(room=0)
    assert isinstance(live, Live)
    assert live.events == written
    assert [each.staged.live for each in stream.in_flight] == [False, True]
    first = decode_events_untrusted(stream.in_flight[0].cbor)
    assert isinstance(first, Batch)
    assert first.events + stream.caught_up() == backlog + written


def test_without_room_for_it_the_order_is_that_of_the_log(node: Node) -> None:
    backlog = write_many(node, LIVE_BACKLOG + LIVE_WAITING)
    stream = past_records(node)
    stream.in_flight.clear()
    node.write("new", "value")
    (plain,) = stream.advance(live_room=0)
    assert isinstance(plain, Batch)
    assert plain.events == backlog[:2]


@pytest.mark.parametrize(("ahead", "goes_ahead"), [(LIVE_BACKLOG, False), (LIVE_BACKLOG + 1, True)])
def test_what_the_cursor_comes_by_soon_does_not_go_ahead(node: Node, ahead: int, goes_ahead: bool) -> None:
    write_many(node, ahead - 1)
    stream = Stream(node)
    stream.advance(live_room=0)
    stream.live_after = ahead - 1
    written = node.write("new", "value").data
    frames = stream.advance(room=0, settle=1)
    assert [each.events for each in frames if isinstance(each, Live)] == [[written]] * goes_ahead


def test_many_events_that_a_peer_asked_for_are_a_backlog_too(node: Node) -> None:
    write_many(node, LIVE_BACKLOG + 3)
    stream = Stream(node)
    assert stream.caught_up()
    with node.context.transaction() as tx:
        key = delivery.Stream(PEER, node.context.sites.number(tx, PEER), PATH)
        reoffers.add(tx, key, reoffers.EVENT, range(1, LIVE_BACKLOG + 4), waiting=False)
    stream.advance(room=1)
    written = node.write("new", "value").data
    (live,) = stream.advance(room=0)
    assert isinstance(live, Live)
    assert live.events == [written]


def test_of_a_flood_only_the_newest_go_ahead(node: Node) -> None:
    write_many(node, LIVE_BACKLOG)
    stream = Stream(node)
    stream.advance(live_room=0)
    stream.live_after = LIVE_BACKLOG
    flood = write_many(node, LIVE_WAITING + 1)
    frames = stream.advance(room=0, settle=1)
    assert [each.events for each in frames if isinstance(each, Live)] == [flood[-LIVE_EVENTS:]]
    assert stream.advance(room=0, settle=1) == []
    assert stream.live_after == LIVE_BACKLOG + LIVE_WAITING + 1


def test_what_waits_goes_ahead_in_order_as_frames_settle(node: Node) -> None:
    write_many(node, LIVE_BACKLOG)
    stream = Stream(node)
    stream.advance(live_room=0)
    stream.live_after = LIVE_BACKLOG
    waiting = write_many(node, LIVE_WAITING)
    went: list[bytes] = []
    frames = stream.advance(room=0, settle=1)
    while frames:
        assert len(frames) <= LIVE_FRAMES
        for frame in frames:
            assert isinstance(frame, Live)
            assert len(frame.events) <= LIVE_EVENTS
            went.extend(frame.events)
        frames = stream.advance(room=0, settle=len(frames))
    assert went == waiting


def test_a_live_event_does_not_overtake_a_record(node: Node) -> None:
    write_many(node, BEHIND)
    stream = past_records(node)
    stream.advance(settle=len(stream.in_flight))
    node.admit(vouch(node.key, site_key(9), 20))
    node.write("new", "value")
    assert stream.advance(room=0) == []
    kinds = [type(each) for each in stream.advance(room=2)]
    assert kinds == [Records, Live, Batch]


def test_a_live_frame_takes_the_cursor_along_past_what_is_filtered_out(node: Node) -> None:
    for number in range(LIVE_BACKLOG + 1):
        node.write(f"row {number}", "hidden", table=("main", "other"))
    shown = write_many(node, BEHIND)
    stream = past_records(node, Filter(Scope(("main.notes",))))
    stream.in_flight.clear()
    with node.context.transaction() as tx:
        tx.execute("DELETE FROM meshnode_staged")
    written = node.write("new", "value").data
    (live,) = stream.advance(room=0)
    assert isinstance(live, Live)
    assert live.events == [written]
    stream.advance(room=0, live_room=0, settle=1)
    assert node.query(
        "SELECT cursor FROM meshnode_outbound WHERE site_no = (SELECT no FROM meshnode_sites WHERE site = ?)", PEER
    ) == [(LIVE_BACKLOG + 1,)]
    assert stream.caught_up() == [*shown, written]


def test_what_was_rejected_of_a_live_frame_comes_with_the_backlog_and_not_before(node: Node) -> None:
    write_many(node, BEHIND)
    stream = past_records(node)
    stream.advance(settle=len(stream.in_flight))
    node.write("new", "value")
    (live,) = stream.advance(room=0, settle=1)
    assert isinstance(live, Live)
    stream.advance(room=0, settle=1, rejected=[0])
    assert node.query("SELECT count(*) FROM meshnode_reoffers") == [(0,)]


# --- The receiver.


def received(no: int, *events: Event, live: bool = False) -> Received:
    shape = Live if live else Batch
    content = shape(epoch=b"peer-epo", no=no, clock={}, events=[event.data for event in events])
    return Received(no, digest(encode_frame(content)), content)


def peer_event(node: Node, ms: int, row: str = "r") -> Event:
    return author_event(
        site_key(2),
        MESH_ID,
        schema=NOTES[0],
        table=NOTES[1],
        row_key={"id": row},
        columns={"title": str(ms)},
        hlc=Hlc(node.time.now_ms + ms, 0),
    )


def applied(node: Node) -> Hlc | None:
    """The watermark of the peer's own group."""
    with node.context.transaction() as tx:
        found = [each.hlc for each in watermarks.all_watermarks(tx) if each.site == PEER]
    return found[0] if found else None


def receive(node: Node, *frames: Received, adopt: bool = False) -> None:
    result = inbox.receive(
        node.context,
        PEER,
        PATH,
        adopt=Adopt(b"peer-epo", 1) if adopt else None,
        epoch=b"peer-epo",
        frames=frames,
        scope=Scope(),
    )
    assert result is not None
    assert len(result.acks) == len(frames)


def test_a_live_event_is_applied_and_claims_nothing_of_what_is_before_it(node: Node) -> None:
    old, now = peer_event(node, 1, "old"), peer_event(node, 9, "now")
    receive(node, received(1, now, live=True), adopt=True)
    assert node.rows() == {"now": "9"}
    assert applied(node) is None
    receive(node, received(2, old))
    assert applied(node) == old.hlc


def test_a_live_event_that_is_rejected_keeps_the_watermark_below_it_until_it_is_settled(node: Node) -> None:
    far, near = peer_event(node, SKEW_MS + 5, "far"), peer_event(node, 1, "near")
    later = peer_event(node, SKEW_MS + 6, "later")
    receive(node, received(1, far, live=True), received(2, near), adopt=True)
    assert applied(node) is None
    node.time.now_ms += 60_000
    receive(node, received(3, far), received(4, later))
    assert applied(node) == later.hlc


def test_events_in_one_transaction_are_judged_in_the_order_of_their_frames(node: Node) -> None:
    one, two, three = (peer_event(node, ms, f"r{ms}") for ms in (1, 2, 3))
    receive(node, received(1, one), received(2, three, live=True), received(3, two), adopt=True)
    assert applied(node) == two.hlc
    receive(node, received(4, three))
    assert applied(node) == two.hlc, "a duplicate moves no watermark"
    assert node.rows() == {"r1": "1", "r2": "2", "r3": "3"}


# --- The frame.


FRAME = {"t": "live", "epoch": b"peer-epo", "no": 1, "clock": {PEER: 1}, "events": [b"event"]}


def test_the_frame_is_that_of_a_batch_and_of_an_agreed_feature_alone() -> None:
    assert decode_events_untrusted(cbor.encode(FRAME), AGREED) == Live(
        epoch=b"peer-epo", no=1, clock={PEER: 1}, events=[b"event"]
    )
    with pytest.raises(ProtocolError) as caught:
        decode_events_untrusted(cbor.encode(FRAME))
    assert caught.value.code is CloseCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"more": 1}, CloseCode.PROTOCOL_ERROR),
        ({"clock": ...}, CloseCode.PROTOCOL_ERROR),
        ({"no": 0}, CloseCode.PROTOCOL_ERROR),
        ({"epoch": b"short"}, CloseCode.PROTOCOL_ERROR),
        ({"events": [1]}, CloseCode.PROTOCOL_ERROR),
        ({"events": [b""] * (BATCH_EVENTS + 1)}, CloseCode.LIMIT),
    ],
)
def test_a_live_frame_of_another_shape_ends_the_link(change: dict[str, object], code: CloseCode) -> None:
    shape = {name: value for name, value in {**FRAME, **change}.items() if value is not ...}
    with pytest.raises(ProtocolError) as caught:
        decode_events_untrusted(cbor.encode(shape), AGREED)
    assert caught.value.code is code
    full = {**FRAME, "events": [b""] * BATCH_EVENTS}
    assert isinstance(decode_events_untrusted(cbor.encode(full), AGREED), Live)


# --- Both, and what may happen to them.


@pytest.fixture
def always_behind() -> object:
    """Everything goes ahead that is not next, in frames of a few events, so that small histories show it."""
    return patch.multiple(staging, LIVE_BACKLOG=0, LIVE_EVENTS=2)


def drive(wire: Wire, until: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if until():
            return
        wire.steps()[0]()
    raise AssertionError("it never came to that")


def test_what_goes_ahead_is_named_and_found_while_it_is_in_flight(tmp_path: Path, always_behind: object) -> None:
    left, right = mesh(tmp_path, 2)
    wire = Wire(left, right)
    wire.settle()
    with always_behind:  # type: ignore[attr-defined]
        write_many(left, 6)
        drive(wire, lambda: (delivery.LIVE,) in left.query("SELECT substr(hex(items), 2, 1) + 0 FROM meshnode_staged"))
    with left.context.transaction() as tx:
        members = [each for each in left.context.membership.members() if each.site == right.site]
        (view,) = sync_states(tx, members, {}, left.time.now_ms)
        assert "live events" in {each.kind for each in view.staged}
        tx.execute("DELETE FROM meshnode_staged WHERE substr(items, 1, 1) <> ?", (bytes([delivery.LIVE]),))
        (items, *_) = tx.execute("SELECT items FROM meshnode_staged").fetchone()
        ahead = delivery.unpack_items(delivery.Stream(right.site, 0, PATH), items).positions
        assert [each.peer for each in streams_in_flight(tx, set(ahead), b"no bytes of a frame")] == [right.site]


def test_a_peer_that_no_longer_knows_the_feature_gets_what_was_staged_in_plain_frames(
    tmp_path: Path, always_behind: object
) -> None:
    left, right = mesh(tmp_path, 2)
    wire = Wire(left, right)
    wire.settle()
    with always_behind:  # type: ignore[attr-defined]
        write_many(left, 6)
        drive(wire, lambda: (delivery.LIVE,) in left.query("SELECT substr(hex(items), 2, 1) + 0 FROM meshnode_staged"))
    wire.cut()
    right.features = right.features[:0]
    again = Wire(left, right)
    again.settle()
    assert any(isinstance(each, NewEpoch) and each.at == "settled" for each in again.left.effects)
    check_converged(left, right)


def test_the_window_is_kept_and_so_is_the_part_of_it_that_is_for_live_frames(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    write_many(left, 1)
    wire = Wire(left, right)
    wire.settle()
    left.write("r", "x")
    jobs = [each for each in wire.left.effects if isinstance(each, Advance)]
    assert max(job.room for job in jobs) <= WINDOW_FRAMES - LIVE_FRAMES
    assert max(job.live_room for job in jobs) <= LIVE_FRAMES


def watermarks_are_true(author: Node, holder: Node) -> None:
    """No watermark at `holder` is above an event of `author` that is not there."""
    with holder.context.transaction() as tx:
        told = [each.hlc for each in watermarks.all_watermarks(tx) if each.site == author.site]
    missing = author.events() - holder.events()
    if told and missing:
        lowest = min(
            Hlc(int(str(physical)), int(str(logical)))
            for physical, logical, event in author.query(
                "SELECT physical, logical, event FROM meshnode_log JOIN meshnode_sites ON no = site_no WHERE site = ?",
                author.site,
            )
            if event in missing
        )
        assert told[0] < lowest


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.integers(0, 12), st.lists(ACTIONS, max_size=60))
def test_nothing_is_lost_and_no_watermark_is_ahead_whatever_goes_ahead(
    before: int, actions: list[tuple[str, object]]
) -> None:
    with tempfile.TemporaryDirectory() as folder, patch.multiple(staging, LIVE_BACKLOG=0, LIVE_EVENTS=2):
        world = World(Path(folder), FEATURES)
        world.wire.cut()
        world.written.update(write_many(world.left, before))
        world.relink(False)
        for action in actions:
            world.act(action)
            if all(node.fuse is None for node in world.nodes):
                world.no_cursor_is_ahead()
                watermarks_are_true(world.left, world.right)
                watermarks_are_true(world.right, world.left)
        world.come_to_rest()
        world.pass_time(CYCLE_MS)
        world.wire.settle()
        world.no_cursor_is_ahead()
        assert world.written <= world.left.events()
        check_converged(world.left, world.right)
        for author, holder in (world.nodes, world.nodes[::-1]):
            watermarks_are_true(author, holder)
        for node in world.nodes:
            node.context.db.close()
