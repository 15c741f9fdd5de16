"""The durable half of the feature `offer`: what is offered and declined, and that nothing is lost (profile §14)."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.pair import Node, Stopped, mesh
from support.records import FOUNDER, retirement, site_key

from meshnode.engine import inbox, links, outbox
from meshnode.engine.forget import forget, unforget
from meshnode.engine.links import open_link
from meshnode.engine.offer import Filter
from meshnode.engine.retention import compaction, evict
from meshnode.errors import CorruptStateError
from meshnode.limits import OFFER_EVENTS, SKEW_MS
from meshnode.model.delivery import PATH, Adopt, Advanced, OutboundStream, Received, Settlement, StagedFrame
from meshnode.model.event import Event
from meshnode.model.frames import (
    FEATURE_OFFER,
    Ack,
    Batch,
    Frame,
    Offer,
    Records,
    Request,
    digest,
    encode_frame,
)
from meshnode.model.frames_untrusted import decode_control_untrusted, decode_events_untrusted
from meshnode.model.hlc import Hlc
from meshnode.model.offered import Named, pack, unpack
from meshnode.model.policy import TableClass
from meshnode.model.scope import Scope
from meshnode.store import delivery, offers
from meshnode.store.backlog import backlog
from meshnode.store.schema import _FORMAT_1

PEER, AUTHOR, OTHER = site_key(2).site, site_key(3).site, site_key(4).site
AGREED = frozenset({FEATURE_OFFER})
OFFERS = Filter(features=AGREED)
NOW = 2**62  # a position behind every log: everything is due


@pytest.fixture
def nodes(tmp_path: Path) -> list[Node]:
    return mesh(tmp_path, 4)


@pytest.fixture
def node(nodes: list[Node]) -> Node:
    """The one whose store is looked at; a peer, an author and another neighbour are members and write what it gets."""
    return nodes[0]


class Stream:
    """What the node sends to the peer, driven by hand: acks as the test chooses."""

    def __init__(self, node: Node, filtered: Filter = OFFERS) -> None:
        self.node, self.filtered = node, filtered
        opened = outbox.open_epoch(node.context, PEER, PATH, expected=None, at=outbox.GENESIS)
        assert opened is not None
        self.opened: OutboundStream = opened
        self.last = 0
        greeting = self.advance()  # the records, and what is ours already
        self.events = [event for events in sent(greeting) for event in events]
        self.settle(greeting)

    def advance(
        self,
        *settled: Settlement,
        linked: Iterable[bytes] | None = (),
        offer_to: int = 0,
        watermarks: bool = False,
        room: int = 8,
    ) -> Advanced:
        result = outbox.advance(
            self.node.context,
            PEER,
            PATH,
            epoch=self.opened.epoch,
            settled=settled,
            known_no=self.last,
            room=room,
            retry=False,
            watermarks=watermarks,
            offered=self.filtered,
            linked=None if linked is None else frozenset(linked),
            offer_to=offer_to,
        )
        assert result is not None
        self.last = max([self.last, *(each.staged.no for each in result.frames)])
        return result

    def settle(self, result: Advanced, *wanted: int, **options: object) -> Advanced:
        """Acknowledge every frame of a result; of the offers these are wanted."""
        acks = [
            Settlement(each.staged.no, each.staged.digest, (), wanted if each.staged.offers else ())
            for each in result.frames
        ]
        return self.advance(*acks, **options)  # type: ignore[arg-type]


def read(each: StagedFrame) -> Frame:
    return decode_events_untrusted(each.cbor, AGREED)


def sent(result: Advanced) -> list[Sequence[bytes]]:
    """The events of every batch."""
    return [frame.events for each in result.frames if isinstance(frame := read(each), Batch)]


def offered(result: Advanced) -> list[list[Named]]:
    return [list(unpack(frame.events)) for each in result.frames if isinstance(frame := read(each), Offer)]


def named(*events: Event) -> list[Named]:
    return sorted(Named(event.site, event.hlc, event.event_id[:16]) for event in events)


def receive(node: Node, peer: bytes, *contents: Frame) -> list[Ack]:
    """Frames of a peer's stream, each the next one; returns their acks."""
    epoch = peer[:8]
    held = node.query("SELECT next FROM meshnode_inbound JOIN meshnode_sites ON no = site_no WHERE site = ?", peer)
    first = int(held[0][0]) if held else 1  # type: ignore[call-overload]
    frames = []
    for number, content in enumerate(contents, start=first):
        numbered = type(content)(
            **{name: getattr(content, name) for name in content.__struct_fields__} | {"no": number}
        )
        frames.append(Received(number, digest(encode_frame(numbered)), numbered))  # type: ignore[arg-type]
    result = inbox.receive(
        node.context,
        peer,
        PATH,
        adopt=None if held else Adopt(epoch, 1),
        epoch=epoch,
        frames=frames,
        scope=Scope(),
    )
    assert result is not None
    acks = [decode_control_untrusted(ack.cbor, AGREED) for ack in result.acks]
    assert all(isinstance(ack, Ack) for ack in acks)
    return acks  # type: ignore[return-value]


def batch(peer: bytes, *events: Event) -> Batch:
    return Batch(epoch=peer[:8], no=0, clock={}, events=[event.data for event in events])


def offer(peer: bytes, *events: Named) -> Offer:
    return Offer(epoch=peer[:8], no=0, events=pack(events))


def wanted(node: Node, *events: Named, peer: bytes = PEER) -> list[Named]:
    """Those of an offer that the node wants."""
    (ack,) = receive(node, peer, offer(peer, *events))
    assert ack.wanted is not None
    assert (ack.rejected, ack.held, ack.dropped) == ((), 0, 0)
    return [sorted(events)[index] for index in ack.wanted]


def reoffers(node: Node) -> list[int]:
    return [row[0] for row in node.query("SELECT position FROM meshnode_reoffers ORDER BY position")]  # type: ignore[misc]


def open_events(node: Node, linked: Iterable[bytes] = ()) -> tuple[int, int]:
    with node.context.transaction() as tx:
        found = backlog(tx, PEER, PATH, lambda *_: True, node.time.now_ms, frozenset(linked))
    return found.events_behind, found.waiting


# --- What is offered, and when.


def test_own_events_are_sent_and_those_of_others_are_offered(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    own, foreign = node.write("own", "x"), [author.write(row, "x") for row in "ab"]
    stream = Stream(node)
    receive(node, AUTHOR, batch(AUTHOR, *foreign))
    result = stream.advance()
    assert stream.events == [own.data]
    assert (sent(result), offered(result)) == ([], [named(*foreign)])
    assert stream.settle(result).frames == ()
    assert open_events(node) == (0, 0)


def test_events_of_the_peer_itself_are_never_offered_to_it(nodes: list[Node]) -> None:
    node, peer, _, other = nodes
    stream = Stream(node)
    receive(node, OTHER, batch(OTHER, peer.write("a", "x"), other.write("b", "x")))
    assert [each.site for each in offered(stream.advance())[0]] == [OTHER]


def test_an_event_waits_while_the_peer_is_linked_to_its_author(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    event = author.write("a", "x")
    receive(node, AUTHOR, batch(AUTHOR, event))
    for linked in ((AUTHOR,), (AUTHOR, OTHER), None):
        result = stream.advance(linked=linked)
        assert (offered(result), result.waiting, result.seen_to) == ([], True, 1)
    assert open_events(node, linked=[AUTHOR]) == (0, 1)
    assert offered(stream.advance(linked=[AUTHOR], offer_to=1)) == [named(event)]


def test_it_is_offered_at_once_when_the_authors_link_to_the_peer_breaks(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    event = author.write("a", "x")
    receive(node, AUTHOR, batch(AUTHOR, event))
    assert stream.advance(linked=[AUTHOR, OTHER]).waiting
    assert offered(stream.advance(linked=[OTHER])) == [named(event)]


def test_one_that_the_peer_gets_from_where_we_have_it_waits_too(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    event = author.write("a", "x")
    receive(node, OTHER, batch(OTHER, event))  # by way of a neighbour
    result = stream.advance(linked=[OTHER])
    assert (offered(result), result.waiting) == ([], True)
    assert offered(stream.advance(linked=[])) == [named(event)]


def test_what_waits_is_gathered_with_what_does_not(nodes: list[Node]) -> None:
    node, _, author, other = nodes
    stream = Stream(node)
    waits = [author.write(row, "x") for row in "ab"]
    receive(node, AUTHOR, batch(AUTHOR, *waits))
    assert stream.advance(linked=[AUTHOR]).waiting
    urgent = other.write("c", "x")
    receive(node, OTHER, batch(OTHER, urgent))
    result = stream.advance(linked=[AUTHOR])
    assert offered(result) == [named(*waits, urgent)]
    assert not result.waiting


def test_an_offer_has_a_bounded_number_of_events_and_the_next_one_goes_on(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    events = [
        author.event(f"n{number}", "x", hlc=Hlc(author.time.now_ms, number)) for number in range(OFFER_EVENTS + 3)
    ]
    for start in range(0, len(events), 500):
        receive(node, AUTHOR, batch(AUTHOR, *events[start : start + 500]))
    found = offered(stream.advance())
    assert [len(each) for each in found] == [OFFER_EVENTS, 3]
    assert sorted(found[0] + found[1]) == named(*events)


def test_long_stretches_take_many_transactions(nodes: list[Node], monkeypatch: pytest.MonkeyPatch) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    events = [author.write(f"n{number}", "x") for number in range(7)]
    receive(node, AUTHOR, batch(AUTHOR, *events))
    monkeypatch.setattr(offers, "SCAN_ROWS", 2)
    results = [stream.advance()]
    while sum(len(each) for result in results for each in offered(result)) < len(events):
        results.append(stream.settle(results[-1]))
        assert len(results) < 20
    assert sorted(each for result in results for frame in offered(result) for each in frame) == named(*events)
    assert len(results) > 2


def test_what_needs_no_offer_is_not_passed_again_and_again_while_a_frame_is_in_flight(
    nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cursor cannot be stored meanwhile: a peer that never acknowledges would keep the writer busy for good."""
    node, _, author, _ = nodes
    stream = Stream(node)
    receive(node, AUTHOR, batch(AUTHOR, author.write("a", "x")))
    for number in range(9):
        node.write(f"n{number}", "x")
    stream.advance(linked=[AUTHOR])
    monkeypatch.setattr(offers, "SCAN_ROWS", 2)
    staged = stream.advance(linked=[])
    assert [len(each) for each in offered(staged)] == [1]
    for _ in range(10):
        result = stream.advance(linked=[])
        if not result.more:
            break
    assert not result.more
    assert node.query("SELECT offer_cursor FROM meshnode_outbound") == [(0,)]


def test_what_is_missing_from_the_log_stops_the_stream(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    receive(node, AUTHOR, batch(AUTHOR, *(author.write(row, "x") for row in "abc")))
    stream.advance(linked=[AUTHOR])
    node.query("DELETE FROM meshnode_log WHERE position = 2")
    with pytest.raises(CorruptStateError, match="position 2"):
        stream.advance(linked=[AUTHOR], offer_to=3)
    assert node.query("SELECT offer_cursor FROM meshnode_outbound") == [(0,)]


# --- What the peer has.


def test_what_the_peer_sent_or_offered_is_not_offered_back(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    events = [author.write(row, "x") for row in "abcd"]
    receive(node, PEER, batch(PEER, events[0]))
    receive(node, AUTHOR, batch(AUTHOR, events[1]))
    assert wanted(node, *named(*events[1:3])) == named(events[2])
    receive(node, AUTHOR, batch(AUTHOR, *events[1:]))
    result = stream.advance()
    assert offered(result) == [named(events[3])]
    stream.settle(result)
    assert open_events(node) == (0, 0)


def test_what_the_peer_turns_out_to_have_does_not_wait_any_more(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    event = author.write("a", "x")
    receive(node, AUTHOR, batch(AUTHOR, event))
    assert stream.advance(linked=[AUTHOR]).waiting
    assert wanted(node, *named(event)) == []
    assert not stream.advance(linked=[AUTHOR]).waiting
    assert open_events(node) == (0, 0)


def test_nor_is_it_trusted_once_the_stream_begins_anew(nodes: list[Node]) -> None:
    """The peer said that it holds less than was settled: what it had before may be gone as well."""
    node, _, author, _ = nodes
    stream = Stream(node)
    event = author.write("a", "x")
    receive(node, PEER, batch(PEER, event))
    anew = outbox.open_epoch(node.context, PEER, PATH, expected=stream.opened.epoch, at=outbox.GENESIS)
    assert anew is not None
    stream.opened, stream.last = anew, 0
    assert offered(stream.advance()) == [named(event)]


@pytest.mark.parametrize("lose", [Node.crash, lambda node: open_link(node.context, PEER, PATH)], ids=["start", "link"])
def test_what_a_process_knew_of_the_peer_costs_an_offer_once_it_is_forgotten(
    nodes: list[Node], lose: Callable[[Node], object]
) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    event = author.write("a", "x")
    receive(node, PEER, batch(PEER, event))
    lose(node)
    assert offered(stream.advance()) == [named(event)]


def test_requests_are_answered_with_whole_events_that_need_no_offer_then(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    own, first, second = node.write("own", "x"), author.write("a", "x"), author.write("b", "x")
    receive(node, AUTHOR, batch(AUTHOR, first))
    stream.settle(stream.settle(stream.advance()), linked=[AUTHOR])
    receive(node, AUTHOR, batch(AUTHOR, second))
    request = Request(id=b"request1", what="table", schema="*", table="*")
    assert outbox.queue_answer(node.context, PEER, PATH, request, offers=True)
    answer = stream.advance(linked=[AUTHOR])
    assert sorted(event for events in sent(answer) for event in events) == sorted(
        event.data for event in (own, first, second)
    )
    assert [type(read(each)).__name__ for each in answer.frames][-1] == "Answered"
    assert offered(stream.settle(answer, offer_to=NOW)) == []
    assert open_events(node) == (0, 0)


# --- What is wanted.


def test_what_is_in_the_log_is_declined_whatever_became_of_it(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    applied, held = author.write("a", "x"), author.event("b", "x", table=("main", "later"))
    superseded = author.write("a", "y")
    receive(node, AUTHOR, batch(AUTHOR, applied, held, superseded))
    receive(node, OTHER, batch(OTHER, applied))
    unknown = author.write("c", "x")
    assert wanted(node, *named(applied, held, superseded, unknown)) == named(unknown)


def test_an_offer_in_one_commit_with_the_batch_before_it_sees_that(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    event = author.write("a", "x")
    acks = receive(node, PEER, batch(PEER, event), offer(PEER, *named(event)))
    assert [ack.wanted for ack in acks] == [None, ()]


def test_a_receipt_declines_an_event_of_a_forgotten_row(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    before, after = author.write("a", "x"), author.write("a", "y")
    receive(node, AUTHOR, batch(AUTHOR, before))
    forget(node.context, "main", "notes", {"id": "a"})
    receive(node, AUTHOR, batch(AUTHOR, after))
    assert node.events() == set()
    assert wanted(node, *named(before, after)) == []


def test_nothing_is_declined_because_another_peer_offered_it_or_is_about_to_send_it(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    event = author.write("a", "x")
    assert wanted(node, *named(event), peer=OTHER) == named(event)
    assert wanted(node, *named(event)) == named(event)


def test_nor_because_it_was_rejected_dropped_or_taken_back(nodes: list[Node]) -> None:
    node, _, author, other = nodes
    far = author.event("a", "x", hlc=Hlc(node.time.now_ms + SKEW_MS + 1, 0))
    keyless = author.event("b", "x", table=("main", "meshnode_notes"))
    retired = other.write("c", "x")
    receive(node, AUTHOR, batch(AUTHOR, far, keyless))
    receive(node, OTHER, batch(OTHER, retired))
    receive(
        node,
        PEER,
        Records(epoch=PEER[:8], no=0, records=[retirement(FOUNDER, site_key(4), 5, cutoff=5)]),
    )
    assert node.events() == set()
    assert wanted(node, *named(far, keyless, retired)) == named(far, keyless, retired)


def test_only_the_authors_own_event_at_the_same_clock_declines(nodes: list[Node]) -> None:
    """No member can have an event of another declined, whatever ids it finds: it would have to sign for the author."""
    node, _, author, _ = nodes
    event = author.write("a", "x")
    receive(node, AUTHOR, batch(AUTHOR, event))
    ((known),) = named(event)
    others = [
        known._replace(site=OTHER),
        known._replace(hlc=Hlc(known.hlc.physical, known.hlc.logical + 1)),
        known._replace(short_id=known.short_id[:15] + bytes([known.short_id[15] ^ 1])),
        known._replace(site=b"nobody knows it!"),
    ]
    for other in others:
        assert wanted(node, other) == [other]
    assert wanted(node, known) == []
    assert node.query("SELECT count(*) FROM meshnode_sites WHERE site = ?", b"nobody knows it!") == [(0,)]


def test_two_events_of_one_clock_are_told_apart(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    hlc = Hlc(author.time.now_ms, 7)
    one, two = author.event("a", "one", hlc=hlc), author.event("a", "two", hlc=hlc)
    receive(node, AUTHOR, batch(AUTHOR, one))
    assert wanted(node, *named(one, two)) == named(two)
    receive(node, OTHER, batch(OTHER, two))
    assert wanted(node, *named(one, two)) == []


def test_the_stored_ack_repeats_what_was_wanted_byte_for_byte(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    event = author.write("a", "x")
    asked = offer(PEER, *named(event))
    receive(node, PEER, asked)
    ((stored,),) = node.query("SELECT ack FROM meshnode_acks")
    receive(node, AUTHOR, batch(AUTHOR, event))  # it came from elsewhere meanwhile
    node.crash()
    numbered = Offer(epoch=PEER[:8], no=1, events=asked.events)
    again = inbox.receive(
        node.context,
        PEER,
        PATH,
        adopt=None,
        epoch=PEER[:8],
        frames=[Received(1, digest(encode_frame(numbered)), numbered)],
        scope=Scope(),
    )
    assert again is not None
    assert [ack.cbor for ack in again.acks] == [stored]
    ack = decode_control_untrusted(again.acks[0].cbor, AGREED)
    assert isinstance(ack, Ack)
    assert ack.wanted == (0,)


# --- What becomes of the answer.


def test_wanted_events_are_durable_and_go_out_whole_before_anything_else(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    events = [author.write(row, "x") for row in "abc"]
    receive(node, AUTHOR, batch(AUTHOR, *events))
    result = stream.advance()
    in_order = [next(event for event in events if named(event) == [each]) for each in offered(result)[0]]
    stream.settle(result, 0, 2, room=0)
    assert open_events(node) == (2, 0)
    node.crash()
    assert len(reoffers(node)) == 2
    own = node.write("own", "x")
    assert sent(stream.advance()) == [sorted([in_order[0].data, in_order[2].data], key=data_order(events)), [own.data]]
    assert reoffers(node) == []


def data_order(events: Sequence[Event]) -> Callable[[bytes], int]:
    return [event.data for event in events].index


def test_a_crash_at_any_statement_of_settling_loses_nothing(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    event = author.write("a", "x")
    receive(node, AUTHOR, batch(AUTHOR, event))
    result = stream.advance()
    crashes = 0
    while True:
        node.fuse = crashes
        try:
            whole = stream.settle(result, 0)
        except Stopped:
            node.crash()
            ((cursor,),) = node.query("SELECT offer_cursor FROM meshnode_outbound")
            staged = node.query(
                "SELECT no FROM meshnode_staged WHERE length(items) = 9 AND substr(items, 1, 1) = x'06'"
            )
            assert (cursor, len(staged), reoffers(node)) == (0, 1, []), "all of it or nothing"
            again = outbox.resend(node.context, PEER, PATH, epoch=stream.opened.epoch, from_no=1, offered=OFFERS)
            assert again is not None
            assert again[-1] == result.frames[-1], "byte for byte"
            crashes += 1
            continue
        break
    node.fuse = None
    assert crashes > 5
    assert sent(whole) == [[event.data]]
    assert open_events(node) == (1, 0)


def test_a_crash_at_any_statement_of_answering_changes_no_answer(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    here, missing = author.write("a", "x"), author.write("b", "x")
    receive(node, AUTHOR, batch(AUTHOR, here))
    crashes = 0
    while True:
        node.fuse = crashes
        try:
            answer = wanted(node, *named(here, missing))
        except Stopped:
            node.crash()
            assert node.query(
                "SELECT count(*) FROM meshnode_acks WHERE site_no <> (SELECT no FROM meshnode_sites WHERE site = ?)",
                AUTHOR,
            ) == [(0,)]
            crashes += 1
            continue
        break
    node.fuse = None
    assert crashes > 3
    assert answer == named(missing)


def test_a_position_that_was_compacted_meanwhile_is_passed(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    old, new = author.write("a", "x"), author.write("a", "y")
    receive(node, AUTHOR, batch(AUTHOR, old, new))
    result = stream.advance()
    sweep = compaction(node.context, "main", "notes")
    while sweep.step():
        pass
    assert node.events() == {new.data}
    whole = stream.settle(result, 0, 1)
    assert sent(whole) == [[new.data]]
    stream.settle(whole)
    assert (reoffers(node), open_events(node)) == ([], (0, 0))


def test_one_that_is_evicted_before_its_turn_is_passed_too(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    gone = author.write("a", "x")
    receive(node, AUTHOR, batch(AUTHOR, gone))
    stream.advance(linked=[AUTHOR])
    node.time.now_ms += 10
    sweep = evict(node.context, "main", "notes", Hlc(node.time.now_ms, 0), everything=True)
    while sweep.step():
        pass
    assert node.events() == set()
    assert offered(stream.advance(linked=[AUTHOR], offer_to=NOW)) == []
    later = author.write("b", "x")
    receive(node, AUTHOR, batch(AUTHOR, later))
    assert offered(stream.advance()) == [named(later)]


def test_an_offer_of_a_row_that_is_forgotten_meanwhile_is_discarded_with_its_epoch(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    events = [author.write(row, "x") for row in "ab"]
    receive(node, AUTHOR, batch(AUTHOR, *events))
    assert len(stream.advance().frames) == 1
    forget(node.context, "main", "notes", {"id": "a"})
    ((epoch, cursor, staged),) = node.query(
        "SELECT epoch, offer_cursor, (SELECT count(*) FROM meshnode_staged) FROM meshnode_outbound"
    )
    assert (epoch != stream.opened.epoch, cursor, staged) == (True, 0, 0)
    stream.opened, stream.last = replace(stream.opened, epoch=epoch), 0  # type: ignore[arg-type]
    assert offered(stream.advance()) == [named(events[1])]


def test_a_policy_or_scope_that_changes_between_offer_and_answer_decides(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    event, hidden = author.write("a", "x"), author.event("b", "x", table=("main", "hidden"))
    receive(node, AUTHOR, batch(AUTHOR, event, hidden))
    result = stream.advance()
    assert len(offered(result)[0]) == 2
    stream.filtered = replace(OFFERS, scope=Scope(("*.*", "!main.hidden")))
    assert (
        outbox.resend(node.context, PEER, PATH, epoch=stream.opened.epoch, from_no=1, offered=stream.filtered) is None
    )
    assert sent(stream.settle(result, 0, 1)) == [[event.data]]
    assert reoffers(node) == []


def test_what_the_filter_holds_back_is_not_even_named(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    with node.context.transaction() as tx:
        tx.execute("CREATE TABLE hidden (id TEXT NOT NULL PRIMARY KEY, title TEXT) WITHOUT ROWID")
        node.context.tables.mark_registered(tx, node.context.tables.entry(tx, "main", "hidden"), own_numbers=False)
    node.classify(TableClass.PRIVATE, ("main", "hidden"))
    stream = Stream(node)
    event, hidden = author.write("a", "x"), author.event("b", "x", table=("main", "hidden"))
    receive(node, AUTHOR, batch(AUTHOR, hidden, event))
    assert offered(stream.advance()) == [named(event)]


def test_what_the_peer_rejects_of_its_answer_is_sent_again_in_the_next_cycle(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    event = author.write("a", "x")
    receive(node, AUTHOR, batch(AUTHOR, event))
    (whole,) = stream.settle(stream.advance(), 0).frames
    assert stream.advance(Settlement(whole.staged.no, whole.staged.digest, (0,))).frames == ()
    assert node.query("SELECT position, waiting FROM meshnode_reoffers") == [(1, 1)]


# --- Watermarks.


def marks(result: Advanced) -> set[bytes] | None:
    return None if result.watermarks is None else {entry.site for entry in result.watermarks}


def test_watermarks_wait_for_the_answer_to_an_offer_and_for_what_is_wanted(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    receive(node, AUTHOR, batch(AUTHOR, author.write("a", "x")))
    result = stream.advance(watermarks=True)
    assert marks(result) is None
    assert marks(stream.advance(watermarks=True)) is None
    assert marks(stream.settle(result, 0, room=0, watermarks=True)) is None
    whole = stream.advance(watermarks=True)
    assert len(sent(whole)) == 1
    assert marks(whole) == {AUTHOR}, "the frame that carries it is staged before"


def test_watermarks_of_authors_whose_events_wait_are_not_told(nodes: list[Node]) -> None:
    node, _, author, other = nodes
    stream = Stream(node)
    receive(node, AUTHOR, batch(AUTHOR, author.write("a", "x")))
    receive(node, OTHER, batch(OTHER, other.write("b", "x")))
    stream.settle(stream.advance(linked=[OTHER]), linked=[OTHER])
    receive(node, OTHER, batch(OTHER, other.write("c", "x")))
    result = stream.advance(linked=[OTHER], watermarks=True)
    assert result.waiting
    assert marks(result) == {AUTHOR}
    assert marks(stream.settle(stream.advance(linked=[OTHER], offer_to=NOW), watermarks=True)) == {AUTHOR, OTHER}


# --- Without the feature, and back.


def test_a_stream_goes_over_to_offers_where_it_stands_and_back_to_what_was_not_offered(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node, Filter())
    first, second, third = (author.write(row, "x") for row in "abc")
    receive(node, AUTHOR, batch(AUTHOR, first))
    plain = stream.advance()
    assert sent(plain) == [[first.data]]
    stream.settle(plain)
    stream.filtered = OFFERS
    own = node.write("own", "x")
    receive(node, AUTHOR, batch(AUTHOR, second))
    result = stream.advance(linked=[AUTHOR])
    assert (sent(result), offered(result)) == ([[own.data]], [])
    stream.settle(result, linked=[AUTHOR])
    stream.filtered = Filter()
    receive(node, AUTHOR, batch(AUTHOR, third))
    assert sent(stream.advance()) == [[second.data, third.data]]
    assert node.query("SELECT offer_cursor FROM meshnode_outbound") == [(None,)]


def test_frames_in_flight_of_the_other_kind_settle_before_anything_is_staged(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    stream = Stream(node)
    event = author.write("a", "x")
    receive(node, AUTHOR, batch(AUTHOR, event))
    result = stream.advance()
    stream.filtered = Filter()
    node.write("own", "x")
    assert stream.advance().frames == ()
    assert sent(stream.settle(result, 0)) != []


def test_a_database_of_the_format_before_goes_on_where_its_streams_stood(tmp_path: Path) -> None:
    path = tmp_path / "1" / "meshnode.db"
    path.parent.mkdir()
    with sqlite3.connect(path) as database:
        database.executescript(_FORMAT_1)
        database.execute("INSERT INTO meshnode_meta VALUES ('format', 1)")
        database.execute("INSERT INTO meshnode_sites (no, site) VALUES (1, ?)", (PEER,))
        database.execute("INSERT INTO meshnode_outbound VALUES (1, 'quic', ?, 3, 0, 2, ?, 0)", (b"epoch--1", b"d" * 32))
    database.close()
    with sqlite3.connect(path) as database:
        database.execute("INSERT INTO meshnode_removed VALUES (1, 3, 'evicted')")
    database.close()
    node = mesh(tmp_path, 1)[0]
    with node.context.transaction() as tx:
        stored = delivery.read_outbound(tx, outbox.stream_of(node.context, tx, PEER, PATH))
    assert stored == delivery.Outbound(b"epoch--1", 3, 0, 2, b"d" * 32)


# --- The clock of a batch.


def test_the_clock_of_a_batch_names_what_rose_and_the_peer_does_not_hear_itself(nodes: list[Node]) -> None:
    node, _, author, _ = nodes
    for site in (PEER, AUTHOR, OTHER):
        open_link(node.context, site, PATH)
    stream = Stream(node)

    def clock(linked: Iterable[bytes] = ()) -> set[bytes]:
        node.write("own", "x")
        result = stream.advance(linked=linked)
        (each,) = [frame for each in result.frames if isinstance(frame := read(each), Batch)]
        stream.settle(result, linked=linked)
        return set(each.clock)

    def rise(counter: int) -> None:
        slots = {PEER: counter, AUTHOR: counter, OTHER: counter}
        receive(node, AUTHOR, Batch(epoch=AUTHOR[:8], no=0, clock=slots, events=[author.write("a", "x").data]))
        stream.settle(stream.advance(offer_to=NOW), offer_to=NOW)

    assert clock() == {node.site}
    rise(3)
    assert clock(linked=[AUTHOR]) == {node.site, OTHER}
    assert clock(linked=[AUTHOR]) == {node.site}
    rise(4)
    assert clock() == {node.site, AUTHOR, OTHER}
    open_link(node.context, PEER, PATH)
    assert clock() == {node.site, AUTHOR, OTHER}, "a new link: the peer may be another one"


def test_what_is_let_out_while_others_wait_before_it_is_looked_at_again(nodes: list[Node]) -> None:
    """Else it would be neither offered at once nor waited for, and its author's watermark told over the hole."""
    node, _, author, other = nodes
    stream = Stream(node)
    receive(node, AUTHOR, batch(AUTHOR, author.write("a", "x")))
    receive(node, OTHER, batch(OTHER, other.write("b", "x")))
    stream.settle(stream.advance())
    receive(node, AUTHOR, batch(AUTHOR, author.event("c", "x", table=("main", "elsewhere"))))
    receive(node, OTHER, batch(OTHER, other.write("d", "x")))
    node.classify(TableClass.PRIVATE)
    assert offered(stream.advance(linked=[AUTHOR])) == []
    node.classify(TableClass.SHARED)
    result = stream.advance(linked=[AUTHOR], watermarks=True)
    assert len(offered(result)[0]) == 2


def test_a_receipt_declines_nothing_once_the_row_is_not_forgotten_any_more(nodes: list[Node]) -> None:
    """A peer that never sent anything is not asked for it: it is to come by its offer."""
    node, _, author, _ = nodes
    event = author.write("a", "x")
    receive(node, AUTHOR, batch(AUTHOR, event))
    forget(node.context, "main", "notes", {"id": "a"})
    unforget(node.context, "main", "notes", {"id": "a"})
    assert wanted(node, *named(event)) == named(event)


def test_a_full_hello_still_names_the_peers_own_newest_event(
    nodes: list[Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is how a restored peer learns that it wrote what it has lost, however many others wrote later."""
    node, peer, author, other = nodes
    for each, site in ((peer, PEER), (author, AUTHOR), (other, OTHER)):
        events = [each.write("a", text) for text in ("x" if each is peer else "xyz")]
        receive(node, site, batch(site, *events))
    node.write("a", "z")
    monkeypatch.setattr(links, "MAX_HLC_SITES", 2)
    assert {site for site, _ in open_link(node.context, PEER, PATH).max_hlc} == {node.site, PEER}


@pytest.mark.parametrize("kept", ["x'00'", "'text'", "1000000000000"])
def test_an_event_whose_log_row_is_damaged_is_wanted_again(nodes: list[Node], kept: str) -> None:
    node, _, author, _ = nodes
    event = author.write("a", "x")
    receive(node, AUTHOR, batch(AUTHOR, event))
    assert wanted(node, *named(event)) == []
    node.query(f"UPDATE meshnode_log SET event = {kept}")
    assert wanted(node, *named(event)) == named(event)
