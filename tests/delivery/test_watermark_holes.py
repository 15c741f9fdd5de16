"""No watermark passes what is not here: frames before the first, what was asked for again, rejected, held (§14.2)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from support.pair import Node, Wire, mesh
from support.records import site_key

from meshnode.engine import inbox, judge, progress
from meshnode.engine.registry import TableSpec, register
from meshnode.limits import REJECTED_PER_GROUP, SKEW_MS
from meshnode.model.delivery import PATH, Adopt, Received
from meshnode.model.event import Event
from meshnode.model.frames import (
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
from meshnode.model.scope import Scope
from meshnode.store import backlog, history, lagging, watermarks
from meshnode.store.lagging import HELD, HOLE, REJECTED
from meshnode.sync.effects import Notice

EPOCH = b"an epoch"


@pytest.fixture
def here(tmp_path: Path) -> Node:
    return mesh(tmp_path / "here", 2)[0]


@pytest.fixture
def author(tmp_path: Path) -> Node:
    """The other member, by its key alone: what it sends is made by the test."""
    return mesh(tmp_path / "author", 2)[1]


def mark(node: Node, author: Node, table: str = "notes") -> Hlc | None:
    """How far the node claims to have applied what the author wrote."""
    with node.context.transaction() as tx:
        found = {(each.site, each.table): each.hlc for each in watermarks.all_watermarks(tx)}
    return found.get((author.site, table))


def reasons(node: Node) -> list[tuple[str, str]]:
    """Tables in which the node says that it is behind, and why."""
    with node.context.transaction() as tx:
        return [(each.group[2], each.reason) for each in lagging.lagging(tx, node.site)]


def written(author: Node, ms: int, table: str = "notes") -> Event:
    return author.event(f"row {ms}", "x", table=("main", table), hlc=Hlc(author.time.now_ms + ms, 0))


def batch(no: int, *events: Event) -> Received:
    content = Batch(epoch=EPOCH, no=no, clock={}, events=[event.data for event in events])
    return Received(no, digest(encode_frame(content)), content)


def receive(
    node: Node, author: Node, *frames: Received, adopt: Adopt | None = None, claims: Iterable[WatermarkEntry] = ()
) -> None:
    committed = inbox.receive(
        node.context,
        author.site,
        PATH,
        adopt=adopt,
        epoch=EPOCH,
        frames=list(frames),
        scope=Scope(),
        claims=list(claims),
    )
    assert committed is not None


def add_table(node: Node, name: str) -> None:
    spec = TableSpec("main", name, {"id": "TEXT"}, {"title": "TEXT"})
    node.context.transact(lambda tx: register(node.context, tx, spec))


def test_an_author_that_opens_in_the_middle_claims_nothing_by_its_events(here: Node, author: Node) -> None:
    receive(here, author, batch(7, written(author, 7)), adopt=Adopt(EPOCH, 7))
    assert (mark(here, author), here.rows()) == (None, {"row 7": "x"})
    assert reasons(here) == [("notes", HOLE)]


def test_holes_are_looked_for_among_the_latest_events_of_a_site(
    here: Node, author: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_table(here, "other")
    receive(here, author, batch(7, written(author, 7, "other"), written(author, 8)), adopt=Adopt(EPOCH, 7))
    assert reasons(here) == [("notes", HOLE), ("other", HOLE)]
    monkeypatch.setattr(lagging, "LATEST_LOOKED_AT", 1)
    assert reasons(here) == [("notes", HOLE)]


REQUESTS = {
    "table": Request(id=b"r" * 8, what=WHAT_TABLE, schema="main", table="notes"),
    "everything": Request(id=b"r" * 8, what=WHAT_TABLE, schema="*", table="*"),
    "site": Request(id=b"r" * 8, what=WHAT_SITE, site=site_key(2).site),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_what_the_author_was_asked_to_send_again_is_a_hole_until_it_answered(
    here: Node, author: Node, kind: str
) -> None:
    asked = REQUESTS[kind]
    with here.context.transaction() as tx:
        history.add_request(tx, asked.id, here.context.sites.number(tx, author.site), encode_frame(asked))
    early, late, later = (written(author, ms) for ms in (1, 5, 6))
    receive(here, author, batch(1, late), adopt=Adopt(EPOCH, 1))
    assert (mark(here, author), reasons(here)) == (None, [("notes", HOLE)])
    here.crash()
    answered = Answered(epoch=EPOCH, no=3, id=asked.id)
    receive(here, author, batch(2, early), Received(3, digest(encode_frame(answered)), answered))
    assert mark(here, author) is None
    receive(here, author, batch(4, later))
    assert (mark(here, author), reasons(here)) == (later.hlc, [])


def test_a_scope_that_widens_claims_nothing_before_what_was_skipped_is_here(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    right.scope = Scope(("*.*", "!main.notes"))
    for row in "abc":
        left.write(row, "x")
    Wire(left, right).settle()
    assert right.rows() == {}
    right.crash()
    right.scope = Scope()
    latest = left.write("d", "x")
    wire = Wire(left, right)
    while steps := wire.steps():
        steps[0]()
        assert mark(right, left) is None or right.rows().keys() == {"a", "b", "c", "d"}
    assert mark(right, left) == latest.hlc


def test_what_was_rejected_of_a_group_without_a_row_is_remembered_for_the_site(
    here: Node, author: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "UNKNOWN_GROUPS_PER_SITE", 1)
    first, lost, late = written(author, 1, "one"), written(author, 2, "two"), written(author, 3, "two")
    receive(here, author, batch(1, first, lost), adopt=Adopt(EPOCH, 1))
    assert reasons(here) == [("*", REJECTED), ("one", HELD)]
    add_table(here, "one")
    here.crash()
    receive(here, author, batch(2, late))  # there is room for its group now
    add_table(here, "two")
    assert mark(here, author, "two") is None
    assert mark(here, author, "one") is None, "its group is as new as the other: nobody knows what was rejected of it"
    receive(here, author, batch(3, lost))
    assert (mark(here, author, "one"), mark(here, author, "two")) == (first.hlc, late.hlc)
    assert reasons(here) == []


def test_a_group_that_claimed_something_goes_on_while_others_have_no_row(
    here: Node, author: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "UNKNOWN_GROUPS_PER_SITE", 0)
    early, lost, late = written(author, 1), written(author, 2, "two"), written(author, 3)
    receive(here, author, batch(1, early), adopt=Adopt(EPOCH, 1))
    receive(here, author, batch(2, lost, late))
    assert mark(here, author) == late.hlc
    assert reasons(here) == [("*", REJECTED)]


def test_a_rejected_interval_keeps_it_below_over_restarts(here: Node, author: Node) -> None:
    low, high, late = written(author, SKEW_MS + 1), written(author, SKEW_MS + 9), written(author, 5)
    receive(here, author, batch(1, late, high, low), adopt=Adopt(EPOCH, 1))
    here.crash()
    here.time.now_ms += 20
    receive(here, author, batch(2, written(author, SKEW_MS)))
    assert (mark(here, author), reasons(here)) == (late.hlc, [("notes", REJECTED)])
    receive(here, author, batch(3, high))
    assert mark(here, author) == late.hlc
    receive(here, author, batch(4, low))
    assert (mark(here, author), reasons(here)) == (high.hlc, [])


def test_each_rejected_event_keeps_it_below_whichever_settles_first(here: Node, author: Node) -> None:
    """The highest may come by another stream, or ahead of its log (feature `live`)."""
    low, middle, high = (written(author, SKEW_MS + ms) for ms in (1, 2, 3))
    receive(here, author, batch(1, low, middle, high), adopt=Adopt(EPOCH, 1))
    here.crash()
    here.time.now_ms += 20
    receive(here, author, batch(2, high))
    receive(here, author, batch(3, low))
    assert (mark(here, author), reasons(here)) == (None, [("notes", REJECTED)])
    with here.context.transaction() as tx:
        assert backlog.groups_rejected(tx, author.site) == 1
    receive(here, author, batch(4, middle))
    assert (mark(here, author), reasons(here)) == (high.hlc, [])


def test_of_many_rejected_events_the_highest_are_known_beside_the_lowest(here: Node, author: Node) -> None:
    rejected = [written(author, SKEW_MS + ms) for ms in range(1, REJECTED_PER_GROUP + 3)]
    receive(here, author, batch(1, *rejected), adopt=Adopt(EPOCH, 1))
    assert here.query("SELECT length(rejected_high) FROM meshnode_watermarks") == [(REJECTED_PER_GROUP * 16,)]
    here.time.now_ms += 1_000
    receive(here, author, batch(2, *rejected[1:]))
    assert mark(here, author) is None
    receive(here, author, batch(3, rejected[0]))
    assert mark(here, author) == rejected[-1].hlc


def test_events_that_are_over_quota_and_held_keep_it_below_too(
    here: Node, author: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits, over = written(author, 1, "later"), written(author, 2, "later")
    monkeypatch.setattr(judge, "HELD_BYTES_PER_SITE", len(fits.data))
    receive(here, author, batch(1, fits, over), adopt=Adopt(EPOCH, 1))
    add_table(here, "later")
    assert (mark(here, author, "later"), reasons(here)) == (None, [("later", REJECTED)])
    receive(here, author, batch(2, over))
    assert mark(here, author, "later") == over.hlc


def test_it_never_falls_whatever_comes_late(here: Node, author: Node) -> None:
    receive(here, author, batch(1, written(author, 9)), adopt=Adopt(EPOCH, 1))
    reached = mark(here, author)
    here.time.now_ms -= 2 * SKEW_MS  # the wall clock steps back: what is known already is rejected when it comes again
    receive(here, author, batch(2, written(author, 3), written(author, 9)))
    assert mark(here, author) == reached
    here.query("DROP TABLE notes")
    receive(here, author, batch(3, written(author, 4 - 2 * SKEW_MS)))
    here.crash()
    assert mark(here, author) == reached


def test_a_watermark_beyond_the_skew_bound_is_ignored_and_surfaced(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    wire = Wire(left, right)
    wire.settle()
    [(epoch,)] = left.query("SELECT epoch FROM meshnode_outbound")
    assert isinstance(epoch, bytes)
    edge = WatermarkEntry(left.site, "main", "notes", right.time.now_ms + SKEW_MS, 0)
    far = WatermarkEntry(left.site, "main", "other", right.time.now_ms + SKEW_MS + 1, 0)
    add_table(right, "other")
    told = Watermarks(after=After(epoch, 0), entries=(edge, far))
    framed = encode_frame(told)
    wire.right.carry_out(
        wire.right.session.control_untrusted(len(framed).to_bytes(4, "big") + framed, right.time.now_ms)
    )
    wire.settle()
    assert mark(right, left) == Hlc(edge.physical, 0)
    assert mark(right, left, "other") is None
    assert right.notices == [Notice("skew", "1 watermarks are too far in the future")]
