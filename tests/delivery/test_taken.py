"""What acks tell of our own events: by when a peer had them, and what stays unknown (`model/taken.py`)."""

from __future__ import annotations

from pathlib import Path
from random import Random

from support.pair import Node, Wire, mesh

from meshnode.engine import outbox
from meshnode.engine.links import open_link
from meshnode.limits import TAKEN_RANGES
from meshnode.model.delivery import PATH
from meshnode.model.frames import Request
from meshnode.model.hlc import Hlc
from meshnode.model.policy import TableClass
from meshnode.model.taken import AGAIN, LIVE, MERGED, ORDERED, SENT, Taken, first_taken, pruned, taken_by, was_sent
from meshnode.store import taken


def at(clock: int) -> Hlc:
    return Hlc(clock, 0)


def ranges(node: Node, peer: Node) -> list[Taken]:
    with node.context.transaction() as tx:
        return taken.of_peer(tx, node.context.sites.number(tx, peer.site))


def test_the_earliest_ack_counts_and_silence_is_no_ack() -> None:
    found = [
        Taken(1, 4, at(10), ORDERED),
        Taken(5, 8, None, ORDERED),
        Taken(3, 3, at(7), LIVE),
        Taken(6, 6, at(12), AGAIN),
    ]
    assert [taken_by(found, position) for position in (2, 3, 5, 6, 9)] == [at(10), at(7), None, at(12), None]
    assert [first_taken(found, position) for position in (2, 3, 5, 6, 9)] == [at(10), at(7), None, None, None]
    assert [was_sent(found, position) for position in (1, 8, 9)] == [True, True, False]


def test_what_had_been_sent_before_may_have_come_before() -> None:
    found = [Taken(0, 3, None, SENT), Taken(1, 4, at(10), ORDERED)]
    assert (taken_by(found, 2), first_taken(found, 2), first_taken(found, 4)) == (at(10), None, at(10))


def test_what_is_pruned_is_later_or_unknown_and_never_earlier() -> None:
    random = Random(1)
    found = [Taken(0, 2, None, SENT)]
    for number in range(80):
        hlc = None if random.random() < 0.1 else at(number)
        found.append(Taken(number * 3 + 1, number * 3 + 3, hlc, ORDERED))
        if random.random() < 0.3:
            found.append(Taken(number * 3 + 2, number * 3 + 2, at(max(number - 1, 0)), LIVE))
    kept = pruned(found, 32)
    assert len(kept) <= 32
    for position in range(1, 241):
        exact, less = taken_by(found, position), taken_by(kept, position)
        assert less is None or (exact is not None and less >= exact)
        assert first_taken(kept, position) in (None, first_taken(found, position))


def test_acks_of_a_long_stream_are_kept_within_bounds(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    for number in range(40):
        left.write("n1", str(number))
        wire = Wire(left, right)
        wire.settle()
        wire.cut()
    found = ranges(left, right)
    assert 0 < len(found) <= TAKEN_RANGES
    clocks = [taken_by(found, position) for position in range(1, 41)]
    assert None not in clocks
    assert clocks == sorted(clocks)  # type: ignore[type-var]


def test_a_peer_that_lost_its_database_is_not_taken_to_have_anything(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("n1", "Milk")
    Wire(left, right).settle()
    assert taken_by(ranges(left, right), 1) is not None
    right.lose()
    right.create_notes()
    right.admit(*(row[0] for row in left.query("SELECT record FROM meshnode_records")))  # type: ignore[arg-type]
    wire = Wire(left, right)
    left.time.now_ms += 1
    while not any(each.kind == SENT for each in ranges(left, right)):
        for step in wire.steps()[:1]:
            step()
    assert taken_by(ranges(left, right), 1) is None
    wire.settle()
    assert taken_by(ranges(left, right), 1) is not None
    assert first_taken(ranges(left, right), 1) is None


def test_a_stream_that_begins_anew_may_have_been_taken_as_far_as_it_was_sent(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.write("n1", "Milk")
    wire = Wire(left, right)
    wire.settle()
    (before,) = ranges(left, right)
    left.write("n2", "Bread")
    wire.left.run_job()  # staged, and lost with the link
    wire.cut()
    opened = open_link(left.context, right.site, PATH).outbound
    assert opened is not None
    assert len(opened.staged) == 1
    again = outbox.open_epoch(left.context, right.site, PATH, expected=opened.epoch, at="settled")
    assert again is not None
    assert ranges(left, right) == [Taken(0, 2, None, SENT), before]
    outbox.open_epoch(left.context, right.site, PATH, expected=again.epoch, at="genesis")
    assert ranges(left, right) == [Taken(0, 2, None, SENT)]


def test_what_a_peer_asks_for_or_was_not_to_get_it_may_lack(tmp_path: Path) -> None:
    """A frame of other events passed it over, and its ack says nothing of that one."""
    left, right = mesh(tmp_path, 2)
    left.classify(TableClass.PRIVATE)
    left.write("n1", "private")
    left.write("n1", "shared", table=("main", "more"))
    Wire(left, right).settle()
    assert taken_by(ranges(left, right), 1) is not None
    left.classify(TableClass.SHARED)
    assert taken_by(ranges(left, right), 1) is None
    for end in list(left.ends):
        end.wire.settle()
    assert right.rows() == {"n1": "private"}
    assert taken_by(ranges(left, right), 1) is not None
    asked = Request(id=bytes(8), what="table", schema="main", table="notes")
    assert outbox.queue_answer(left.context, right.site, PATH, asked)
    left.write("n2", "Bread")
    left.ends[0].run_job()
    assert taken_by(ranges(left, right), 1) is None
    left.ends[0].wire.settle()
    assert taken_by(ranges(left, right), 1) is not None
    assert first_taken(ranges(left, right), 1) is None


def test_events_of_a_frame_of_which_some_were_rejected_are_not_taken_to_be_there(tmp_path: Path) -> None:
    left, right = mesh(tmp_path, 2)
    left.context.clock = at(left.time.now_ms + 400_000)
    left.write("n1", "of a clock that is ahead")
    wire = Wire(left, right)
    wire.settle()
    assert right.rows() == {}
    assert [(each.hlc, each.kind) for each in ranges(left, right)] == [(None, ORDERED)]
    left.time.now_ms += 200_000
    for end in list(left.ends):
        end.timer()
    wire.settle()
    assert right.rows() != {}
    assert taken_by(ranges(left, right), 1) is not None
    assert MERGED not in {each.kind for each in ranges(left, right)}
