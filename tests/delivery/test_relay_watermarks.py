"""Watermarks by way of a relay: taken over once all that it sent before has settled, never sooner (profile §6)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from support.pair import Node, Wire, mesh, settle
from support.records import founding, sealed, site_key, vouch

from meshnode.engine import inbox, links
from meshnode.engine.registry import TableSpec, register
from meshnode.limits import GENESIS_REWIND_MS, QUIET_WATERMARKS_MS, SKEW_MS
from meshnode.model.delivery import PATH, Adopt, Committed, Received, Told
from meshnode.model.event import Event
from meshnode.model.frames import (
    FEATURES,
    WHAT_SITE,
    WHAT_TABLE,
    After,
    Answered,
    Batch,
    Request,
    WatermarkEntry,
    Watermarks,
    digest,
    encode_frame,
)
from meshnode.model.hlc import Hlc
from meshnode.model.record import Retirement
from meshnode.model.scope import Scope
from meshnode.store import history, watermarks
from meshnode.sync.watermarks import ENTRIES_PER_MESSAGE, HeardWatermarks

RELAY, AUTHOR = site_key(2), site_key(3)
EPOCH = b"relay-ep"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """A member with the table; relay and author are members too and not there."""
    return mesh(tmp_path, 3)[0]


@pytest.fixture
def author(tmp_path: Path) -> Node:
    return mesh(tmp_path / "author", 3)[2]


def claim(node: Node, ms: int, *, site: bytes = AUTHOR.site, table: str = "notes") -> WatermarkEntry:
    return WatermarkEntry(site, "main", table, node.time.now_ms + ms, 0)


def hlc(node: Node, ms: int) -> Hlc:
    return Hlc(node.time.now_ms + ms, 0)


def frame(no: int, *events: Event) -> Received:
    content = Batch(epoch=EPOCH, no=no, clock={}, events=[event.data for event in events])
    return Received(no, digest(encode_frame(content)), content)


def receive(
    node: Node,
    *claims: WatermarkEntry,
    frames: Iterable[Received] = (),
    adopt: Adopt | None = None,
    scope: Scope | None = None,
) -> Committed:
    committed = inbox.receive(
        node.context,
        RELAY.site,
        PATH,
        adopt=adopt,
        epoch=EPOCH,
        frames=list(frames),
        scope=scope or Scope(),
        claims=claims,
    )
    assert committed is not None
    return committed


def mark(node: Node, site: bytes = AUTHOR.site, table: str = "notes") -> Hlc | None:
    """How far the node claims to have applied a group."""
    with node.context.transaction() as tx:
        found = {(each.site, each.table): each.hlc for each in watermarks.all_watermarks(tx)}
    return found.get((site, table))


def ask(node: Node, request: Request) -> None:
    with node.context.transaction() as tx:
        number = node.context.sites.number(tx, RELAY.site)
        history.add_request(tx, request.id, number, encode_frame(request))


@pytest.mark.parametrize(("features", "told_within_ms"), [((), 2_000), (FEATURES, QUIET_WATERMARKS_MS)])
def test_a_group_advances_along_a_chain_of_nodes(
    tmp_path: Path, features: tuple[str, ...], told_within_ms: int
) -> None:
    first, second, third = mesh(tmp_path, 3, features=features)
    written = [first.write(row, "x") for row in "abc"]
    wires = [Wire(first, second), Wire(second, third)]
    settle(wires)

    def pass_time(ms: int) -> None:
        first.time.now_ms += ms
        for wire in wires:
            wire.left.timer()
            wire.right.timer()
        settle(wires)

    for _ in range(4):
        pass_time(2_000)
    assert mark(third, first.site) == written[-1].hlc
    pass_time(told_within_ms)  # to the second node, which hears of it from the first, this only says how far it came
    assert wires[1].left.session.peer_watermarks[(first.site, "main", "notes")].hlc == written[-1].hlc


def test_a_lost_history_comes_back_by_a_peer_that_gets_it_only_while_it_is_linked(tmp_path: Path) -> None:
    first, second, third = mesh(tmp_path, 3)
    written = [first.write(row, "x").data for row in "abc"]
    settle([Wire(first, third)])
    first.lose()
    first.admit(*founding(first.key), *(vouch(first.key, node.key, 2 + node.number) for node in (second, third)))
    first.create_notes()
    wires = [Wire(first, second)]
    settle(wires)  # its hello tells of nothing later: the second node has none of it
    wires.append(Wire(second, third))
    for _ in range(8):
        settle(wires)
        first.time.now_ms += QUIET_WATERMARKS_MS // 2  # what waits to be offered or told has come meanwhile
        for wire in wires:
            wire.left.timer()
            wire.right.timer()
    assert set(written) <= first.events()


def test_what_a_peer_gets_of_a_lost_history_while_it_answers_comes_back_too(tmp_path: Path) -> None:
    first, second, third = mesh(tmp_path, 3)
    written = [first.write(row, "x").data for row in "ab"]
    settle([Wire(first, second)])
    written.append(first.write("c", "x").data)
    settle([Wire(first, third)])
    first.lose()
    first.admit(*founding(first.key), *(vouch(first.key, node.key, 2 + node.number) for node in (second, third)))
    first.create_notes()
    wire = Wire(first, second)
    while second.query("SELECT count(*) FROM meshnode_answers") == [(0,)]:
        wire.steps()[0]()
    wire.cut()
    settle([Wire(second, third)])
    wire = Wire(first, second)  # its hello tells of more than the answer under way has
    wire.settle()
    first.time.now_ms += GENESIS_REWIND_MS
    wire.left.timer()
    wire.right.timer()
    wire.settle()
    assert set(written) <= first.events()
    assert first.query("SELECT count(*) FROM meshnode_requests") == [(0,)]


def test_who_asks_for_its_own_history_claims_none_of_it_until_the_answer_or_the_retirement(tmp_path: Path) -> None:
    node, peer, liar = mesh(tmp_path, 3)
    written = node.write("a", "x")
    links.ask_own_history(node.context, liar.site, PATH)
    wire = Wire(node, peer)
    wire.settle()
    assert node.rows() == peer.rows()
    assert wire.right.session.peer_watermarks == {}
    node.admit(sealed(node.key, Retirement(liar.site, written.hlc, (), hlc(node, 60_000))))
    wire = Wire(node, peer)
    wire.settle()
    assert wire.right.session.peer_watermarks[(node.site, "main", "notes")].hlc == written.hlc


def test_it_is_durable_and_never_falls(node: Node) -> None:
    assert receive(node, claim(node, 5), adopt=Adopt(EPOCH, 1)).claimed
    node.crash()
    assert mark(node) == hlc(node, 5)
    assert not receive(node, claim(node, 4)).claimed
    assert mark(node) == hlc(node, 5)


def test_events_of_the_relay_count_in_the_same_commit(node: Node, author: Node) -> None:
    events = [author.event("n", "x", hlc=hlc(node, ms)) for ms in (1, 2)]
    receive(node, frames=[frame(1, events[0])], adopt=Adopt(EPOCH, 1))
    assert mark(node) is None  # a relay's events alone claim nothing
    receive(node, claim(node, 2), frames=[frame(2, events[1])])
    assert mark(node) == hlc(node, 2)


def test_an_epoch_that_was_opened_in_the_middle_claims_nothing(node: Node) -> None:
    assert not receive(node, claim(node, 5), adopt=Adopt(EPOCH, 7)).claimed
    assert mark(node) is None


@pytest.mark.parametrize(
    "request_",
    [
        Request(id=b"r" * 8, what=WHAT_SITE, site=AUTHOR.site),
        Request(id=b"r" * 8, what=WHAT_TABLE, schema="main", table="notes"),
        Request(id=b"r" * 8, what=WHAT_TABLE, schema="*", table="*"),
    ],
    ids=["site", "table", "everything"],
)
def test_what_the_relay_was_asked_to_send_again_waits_for_the_answer(node: Node, request_: Request) -> None:
    ask(node, request_)
    assert not receive(node, claim(node, 5), adopt=Adopt(EPOCH, 1)).claimed
    assert mark(node) is None
    answered = Answered(epoch=EPOCH, no=1, id=request_.id)
    receive(node, claim(node, 5), frames=[Received(1, digest(encode_frame(answered)), answered)])
    assert mark(node) == hlc(node, 5)


def test_a_request_for_something_else_stands_against_nothing(node: Node) -> None:
    ask(node, Request(id=b"r" * 8, what=WHAT_TABLE, schema="main", table="other"))
    ask(node, Request(id=b"s" * 8, what=WHAT_SITE, site=RELAY.site))
    assert receive(node, claim(node, 5), adopt=Adopt(EPOCH, 1)).claimed


def test_it_stays_below_what_was_rejected_until_that_settled(node: Node, author: Node) -> None:
    far = author.event("n", "x", hlc=hlc(node, SKEW_MS + 1))
    receive(node, claim(node, 5), frames=[frame(1, far)], adopt=Adopt(EPOCH, 1))
    assert mark(node) is None
    node.time.now_ms += 1
    receive(node, frames=[frame(2, far)])
    assert mark(node) == hlc(node, 4)


def test_it_stops_for_what_is_held_and_goes_on_with_the_table(node: Node, author: Node) -> None:
    later = author.event("n", "x", table=("main", "later"), hlc=hlc(node, 1))
    receive(node, claim(node, 5, table="later"), frames=[frame(1, later)], adopt=Adopt(EPOCH, 1))
    assert mark(node, table="later") is None
    spec = TableSpec("main", "later", {"id": "TEXT"}, {"title": "TEXT"})
    node.context.transact(lambda tx: register(node.context, tx, spec))
    assert mark(node, table="later") == hlc(node, 5)


@pytest.mark.parametrize("table", ["nowhere", "meshnode_log"])
def test_a_claim_opens_no_group_of_an_unknown_table(node: Node, table: str) -> None:
    receive(node, claim(node, 5, table=table), adopt=Adopt(EPOCH, 1))
    assert node.query("SELECT count(*) FROM meshnode_watermarks") == [(0,)]
    assert node.query("SELECT count(*) FROM meshnode_tables WHERE name = ?", table) == [(0,)]


def test_neither_strangers_nor_this_node_nor_what_is_out_of_scope(node: Node) -> None:
    stranger = claim(node, 5, site=site_key(9).site)
    receive(node, stranger, claim(node, 5, site=node.site), adopt=Adopt(EPOCH, 1))
    receive(node, claim(node, 5), scope=Scope(("!main.notes",)))
    assert node.query("SELECT count(*) FROM meshnode_watermarks") == [(0,)]


def message(node: Node, no: int, *entries: WatermarkEntry, epoch: bytes = EPOCH) -> Watermarks:
    return Watermarks(after=After(epoch, no), entries=entries)


def test_a_claim_waits_for_the_frames_before_it(node: Node) -> None:
    heard = HeardWatermarks()
    heard.take_untrusted(message(node, 3, claim(node, 5)), node.time.now_ms)
    assert heard.due(EPOCH, 3) == ()
    assert heard.due(b"another!", 9) == ()
    assert heard.due(EPOCH, 4) == (claim(node, 5),)
    assert heard.due(EPOCH, 4) == ()
    heard.again()
    assert heard.due(EPOCH, 4) == (claim(node, 5),)


def test_claims_that_wait_are_merged_under_the_latest_frame(node: Node) -> None:
    heard = HeardWatermarks()
    now_ms = node.time.now_ms
    heard.take_untrusted(message(node, 3, claim(node, 5), claim(node, 9, site=RELAY.site)), now_ms)
    heard.take_untrusted(message(node, 6, claim(node, 7)), now_ms)
    heard.take_untrusted(message(node, 2, claim(node, 8)), now_ms)
    assert heard.due(EPOCH, 6) == ()
    assert set(heard.due(EPOCH, 7)) == {claim(node, 8), claim(node, 9, site=RELAY.site)}


def test_what_is_beyond_the_skew_bound_never_counts(node: Node) -> None:
    heard = HeardWatermarks()
    far, near = claim(node, SKEW_MS + 1), claim(node, 5)
    assert heard.take_untrusted(message(node, 0, far, near), node.time.now_ms) == 1
    assert heard.due(EPOCH, 1) == (near,)
    heard.again()
    assert heard.due(EPOCH, 1) == (near,)
    assert heard.entries == {near[:3]: Told(hlc(node, 5), node.time.now_ms)}


def test_a_claim_to_hold_later_events_of_ours_is_a_hint_that_they_were_lost_here(node: Node) -> None:
    """It comes with no hello where the peer got them while it was linked; what is known here it only repeats."""
    written = node.write("n", "x")
    known = WatermarkEntry(node.site, "main", "notes", *written.hlc)
    assert receive(node, known, adopt=Adopt(EPOCH, 1)).own_ahead is None
    later = receive(node, known, claim(node, 5, site=node.site))
    assert (later.own_ahead, later.claimed) == (hlc(node, 5), False)
    assert mark(node, node.site) == written.hlc


def test_what_was_beyond_the_skew_bound_counts_once_time_has_come_near(node: Node) -> None:
    """Its peer does not tell it again: a clock set wrong for a while would stall the group while the link lasts."""
    heard = HeardWatermarks()
    now_ms = node.time.now_ms
    heard.take_untrusted(message(node, 0, claim(node, SKEW_MS + 5)), now_ms)
    heard.time_passed(now_ms + 4)
    assert (heard.entries, heard.due(EPOCH, 1)) == ({}, ())
    heard.time_passed(now_ms + 5)
    assert heard.due(EPOCH, 1) == (claim(node, SKEW_MS + 5),)
    heard.time_passed(now_ms + 6)
    assert heard.due(EPOCH, 1) == ()


def test_many_claims_are_taken_in_parts(node: Node) -> None:
    heard = HeardWatermarks()
    claims = [claim(node, 1, table=f"t{number}") for number in range(ENTRIES_PER_MESSAGE + 1)]
    heard.take_untrusted(message(node, 0, *claims), node.time.now_ms)
    parts = [heard.due(EPOCH, 1) for _ in range(3)]
    assert [len(part) for part in parts] == [ENTRIES_PER_MESSAGE, 1, 0]
