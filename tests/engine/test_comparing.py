"""Two engines compared: what was planted is found, named by its row, and told apart by why it differs (profile §15)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from support.compared import BenchSide, Compared, compared
from support.engines import PLAIN, Bench, members
from support.mesh_context import TestTime
from support.records import site_key

from meshnode.codec import cbor
from meshnode.engine import compare_side, retention
from meshnode.engine.asking import ask_site
from meshnode.engine.compare_side import send_again
from meshnode.engine.compare_told import tell
from meshnode.engine.forget import forget
from meshnode.engine.outbox import stream_of
from meshnode.engine.policy import classify, take_policy
from meshnode.engine.registry import TableSpec
from meshnode.errors import NotFoundError, UsageError
from meshnode.merge.rows import RowState
from meshnode.model import comparison as words
from meshnode.model.delivery import PATH
from meshnode.model.event import Event
from meshnode.model.hlc import Hlc
from meshnode.model.policy import Policy, TableClass
from meshnode.model.scope import Scope
from meshnode.store import delivery, reoffers
from meshnode.store.delivery import Outbound
from meshnode.sync.diverging import Divergence, schema_note

NOW = TestTime().now_ms
OTHER = 4  # the second bench's site
Pair: TypeAlias = tuple[Bench, Bench]


def settle(bench: Bench, peer: Bench) -> None:
    """As far as this side knows, the other one has got everything."""
    with bench.engine.context.transaction() as tx:
        stream = stream_of(bench.engine.context, tx, peer.key.site, PATH)
        delivery.write_outbound(tx, stream, Outbound(b"epoch--1", cursor=bench.engine.context.next_position - 1))


def both(pair: Pair, events: list[Event]) -> None:
    for bench in pair:
        bench.deliver(events)
    settle(*pair)
    settle(*pair[::-1])


def events(bench: Bench) -> list[Event]:
    """Forty rows; two of them written again, one deleted."""
    make = bench.event
    rows = [make(2, number, {"id": f"r{number}"}, {"a": number, "b": "x"}) for number in range(40)]
    again = [make(2, 100, {"id": "r7"}, {"a": 107}), make(3, 101, {"id": "r8"}, {"c": b"\x00"})]
    return [*rows, *again, make(3, 102, {"id": "r9"}, None)]


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    """Two benches that hold the same."""
    keys = [site_key(number).public_key for number in (1, 2, 3, OTHER)]
    benches = tuple(
        Bench(tmp_path, own=own, name=f"{own}.db", membership=members(keys), time=TestTime()) for own in (1, OTHER)
    )
    for bench in benches:
        bench.engine.register_table(PLAIN)
        bench.time.now_ms = NOW + 100_000
    both(benches, events(benches[0]))  # type: ignore[arg-type]
    return benches  # type: ignore[return-value]


def said(found: Divergence) -> list[tuple[str, str, str]]:
    """Of each row that differs its key, kind, and what is said of it."""
    return [
        (str(cbor.decode_untrusted(each.key)["id"]) if each.key else "?", each.kind.text, each.what)  # type: ignore[index,call-overload]
        for each in found.differences
    ]


def last_log_row(bench: Bench) -> None:
    bench.sql("DELETE FROM meshnode_log WHERE position = (SELECT max(position) FROM meshnode_log)")


def lose(bench: Bench, row: str) -> None:
    """The first event of a row is taken out of the log by hand."""
    bench.sql(
        "DELETE FROM meshnode_log WHERE position ="
        " (SELECT min(position) FROM meshnode_log WHERE instr(event, CAST(? AS BLOB)) > 0)",
        cbor.encode({"id": row}),
    )


def test_two_that_hold_the_same_are_equal_after_one_question(pair: Pair) -> None:
    comparison = Compared(*pair).begin()
    found = comparison.run()
    assert (said(found), comparison.narrowing.steps) == ([], 1)
    (totals,) = comparison.narrowing.own_totals
    assert [each.size for each in totals.sets] == [43, 40, 0]


FAULTS: dict[str, tuple[Callable[[Bench], object], str, str]] = {
    "an event": (lambda b: lose(b, "r5"), "r5", "an event is only {0}"),
    "a superseded event": (lambda b: lose(b, "r9"), "r9", "an event is only {0}"),
    "the newest event": (last_log_row, "r9", "an event is only {0}"),
    "the bytes of an event": (
        lambda b: b.sql("UPDATE meshnode_log SET event = x'00' WHERE position = 4"),
        "?",
        "the bytes of an event cannot be read {1}",
    ),
    "a value": (
        lambda b: b.sql("UPDATE t SET b = 'y' WHERE id = 'r3'"),
        "r3",
        "the rows hold other values, though events and clocks are the same",
    ),
    "the type of a value": (
        lambda b: b.sql("UPDATE t SET a = 3.0 WHERE id = 'r3'"),
        "r3",
        "the rows hold other values, though events and clocks are the same",
    ),
    "a row in SQL": (lambda b: b.sql("DELETE FROM t WHERE id = 'r3'"), "r3", "the row is missing from its table {1}"),
    "a row's clocks": (
        lambda b: b.sql("DELETE FROM meshnode_rows WHERE key = ?", cbor.encode({"id": "r3"})),
        "r3",
        "the row is only {0}, and nothing says why",
    ),
    "other clocks": (
        lambda b: b.sql(
            "UPDATE meshnode_rows SET state = (SELECT state FROM meshnode_rows WHERE key = ?) WHERE key = ?",
            cbor.encode({"id": "r4"}),
            cbor.encode({"id": "r3"}),
        ),
        "r3",
        "the rows have other clocks, though the events are the same",
    ),
}


@pytest.mark.parametrize("here", [True, False], ids=["here", "there"])
@pytest.mark.parametrize("planted", FAULTS)
def test_a_fault_is_found_and_its_row_named_by_either_side(pair: Pair, planted: str, here: bool) -> None:
    plant, row, what = FAULTS[planted]
    plant(pair[0 if here else 1])
    holder, victim = ("there", "here") if here else ("here", "there")
    found = said(compared(*pair))
    assert (row, "fault", what.format(holder, victim)) in found
    assert len(found) == (2 if planted == "the bytes of an event" else 1)  # there is the event that they were as well


def test_what_is_missing_is_named_so_that_it_can_be_sent_again(pair: Pair) -> None:
    own, other = pair
    lose(own, "r5")
    lose(other, "r6")
    comparison = Compared(own, other).begin()
    found = comparison.run()
    ours, theirs = found.missing
    assert (len(ours), len(theirs)) == (1, 1)
    for side, items in ((comparison.own, ours), (comparison.other, theirs)):
        positions = side.side.positions(items)
        send_again(side.bench.engine.context, side.peer, PATH, positions)
        with side.bench.engine.context.transaction() as tx:
            stream = stream_of(side.bench.engine.context, tx, side.peer, PATH)
            assert reoffers.due(tx, stream, reoffers.EVENT, 10) == positions


def test_what_the_holder_has_not_delivered_is_on_its_way(pair: Pair) -> None:
    own, other = pair
    own.deliver([own.event(2, 200, {"id": "new"}, {"a": 1})])
    other.deliver([own.event(3, 300, {"id": "later"}, {"a": 1})])
    settle(other, own)
    own.deliver([own.event(3, 300, {"id": "later"}, {"a": 1})])
    assert said(compared(own, other)) == [("new", "pending", "an event is only here, still on its way")]
    assert said(compared(other, own)) == [("new", "pending", "an event is only there, still on its way")]


def test_what_is_later_than_both_clocks_is_left_out_with_its_row(pair: Pair) -> None:
    own, other = pair
    own.time.now_ms += 1_000
    own.deliver([own.event(2, 101_000, {"id": "r3"}, {"a": "later"}), own.event(2, 101_000, {"id": "n"}, {"a": 1})])
    settle(own, other)
    comparison = Compared(own, other).begin()
    # The row that it wrote again is older on the other side, and the same is said of it there.
    assert said(comparison.run()) == [("r3", "pending", "the rows differ, by what is on its way")]
    assert [each.above for each in comparison.narrowing.own_totals] == [2]


def test_what_this_side_asked_for_is_on_its_way(pair: Pair) -> None:
    own, other = pair
    lose(own, "r5")
    with own.engine.context.transaction() as tx:
        ask_site(own.engine.context, tx, own.engine.context.sites.number(tx, other.key.site), site_key(2).site)
    assert said(compared(own, other)) == [("r5", "pending", "an event is only there: it is waited for here")]


def evict(bench: Bench, before: int, *, everything: bool = False) -> None:
    sweep = retention.evict(bench.engine.context, "main", "t", Hlc(NOW + before, 0), everything=everything)
    while sweep.step():
        pass
    sweep.finish()
    retention.evicted(bench.engine.context, "main", "t")


def test_below_the_horizon_of_either_events_are_left_out_and_rows_compared_apart(pair: Pair) -> None:
    own, other = pair
    evict(other, 20, everything=True)
    comparison = Compared(own, other).begin()
    assert said(comparison.run()) == []
    (own_totals,), (their_totals,) = comparison.narrowing.own_totals, comparison.narrowing.their_totals
    assert (own_totals.below, their_totals.below) == (20, 0)
    assert [each.size for each in own_totals.sets] == [23, 21, 19]
    other.sql("UPDATE t SET b = 'y' WHERE id = 'r3'")
    other.sql("UPDATE t SET b = 'y' WHERE id = 'r30'")
    assert said(compared(own, other)) == [
        ("r30", "fault", "the rows hold other values, though events and clocks are the same"),
        ("r3", "horizon", "the rows differ, and reach below a horizon"),
    ]


def test_what_was_compacted_is_not_kept_and_what_rows_need_is_missed_all_the_same(pair: Pair) -> None:
    own, other = pair
    sweep = retention.compaction(other.engine.context, "main", "t")
    while sweep.step():
        pass
    sweep.finish()
    lose(other, "r5")
    assert said(compared(own, other)) == [
        ("r5", "fault", "an event is only here"),
        ("r9", "horizon", "an event is only here: it is not kept there"),
    ]


@pytest.mark.parametrize("here", [True, False], ids=["here", "there"])
def test_a_forgotten_row_is_not_kept(pair: Pair, here: bool) -> None:
    forget(pair[0 if here else 1].engine.context, "main", "t", {"id": "r5"})
    where, side = ("there", "here") if here else ("here", "there")
    assert said(compared(*pair)) == [("r5", "horizon", f"an event is only {where}: it is not kept {side}")]


def test_what_a_retired_author_wrote_is_not_taken(pair: Pair) -> None:
    own, other = pair
    event = own.event(2, 200, {"id": "late"}, {"a": 1})
    own.deliver([event])
    settle(own, other)
    keys = [site_key(number).public_key for number in (1, 2, 3, OTHER)]
    other.membership = members(keys, cutoffs={site_key(2).site: Hlc(NOW + 150, 0)})
    assert said(compared(own, other)) == [("late", "policy", "an event is only here: it is not taken there")]


def test_a_table_that_one_side_lacks_has_its_events_compared_and_no_rows(tmp_path: Path, pair: Pair) -> None:
    own, other = pair
    table = TableSpec("main", "u", {"id": "TEXT"}, {"a": "TEXT"})
    own.engine.register_table(table)
    both(pair, [own.event(2, 500 + each, {"id": f"u{each}"}, {"a": "x"}, table="u") for each in range(3)])
    comparison = Compared(own, other).begin()
    assert said(comparison.run()) == []  # there they are held
    at = next(at for at, each in enumerate(comparison.agreement.tables) if each.name == "u")
    assert [each.size for each in comparison.narrowing.own_totals[at].sets] == [3, 0, 0]
    assert schema_note(*comparison.pairs[at]) == "no table there"
    other.sql("DELETE FROM meshnode_log WHERE position = (SELECT max(position) FROM meshnode_log)")
    assert said(compared(own, other)) == [("u2", "fault", "an event is only here")]


def test_an_event_that_names_no_row_there_is_a_matter_of_the_schema(pair: Pair) -> None:
    own, other = pair
    other.engine.register_table(TableSpec("main", "u", {"no": "INTEGER"}, {"a": "TEXT"}, own_numbers=True))
    event = own.event(2, 500, {"id": "u"}, {"a": "x"}, table="u")
    assert (own.deliver([event]), other.deliver([event])) == (["held"], ["dropped:unresolved-key"])
    settle(own, other)
    found = said(compared(own, other))
    assert found == [("u", "schema", "an event is only here: it names no row of the table there")]


def test_columns_that_only_one_side_has_are_left_out_of_its_rows(pair: Pair) -> None:
    own, other = pair
    own.sql("ALTER TABLE t ADD COLUMN z INTEGER")
    own.engine.follow_schema()
    both(pair, [own.event(2, 500, {"id": "r1"}, {"z": 5, "b": "new"}), own.event(2, 501, {"id": "r2"}, {"z": 5})])
    comparison = Compared(own, other).begin()
    assert said(comparison.run()) == []
    assert schema_note(*comparison.pairs[0]) == "only here: z"
    other.sql("UPDATE t SET b = 'y' WHERE id = 'r1'")
    assert [each[:2] for each in said(compared(own, other))] == [("r1", "fault")]


def test_events_of_several_tables_one_after_the_other_are_told_apart(pair: Pair) -> None:
    own, other = pair
    for bench in pair:
        bench.engine.register_table(TableSpec("main", "u", {"id": "TEXT"}, {"a": "TEXT"}))
    both(pair, [own.event(2, 500 + at, {"id": f"m{at}"}, {"a": at}, table="tu"[at % 2]) for at in range(90)])
    lose(other, "m61")
    lose(own, "m62")
    comparison = Compared(own, other).begin()
    assert [each[:2] for each in said(comparison.run())] == [("m62", "fault"), ("m61", "fault")]
    assert [each.sets[words.EVENTS].size for each in comparison.narrowing.own_totals] == [87, 45]


def test_a_row_without_any_clock_is_none(pair: Pair) -> None:
    own, other = pair
    empty = RowState().pack()
    own.sql("INSERT INTO meshnode_rows VALUES ((SELECT no FROM meshnode_tables), ?, ?, NULL)", b"\xa1aaaa", empty)
    assert said(compared(own, other)) == []


def test_a_default_that_shows_in_sql_is_no_value_of_the_row(pair: Pair) -> None:
    own, other = pair
    for bench, default in ((own, 1), (other, 2)):
        bench.sql(f"CREATE TABLE d (id TEXT PRIMARY KEY, a TEXT, s INTEGER NOT NULL DEFAULT {default})")
        bench.engine.register_table(TableSpec("main", "d"))
    both(pair, [own.event(2, 500, {"id": "x"}, {"a": "x"}, table="d")])
    assert own.sql("SELECT s FROM d") != other.sql("SELECT s FROM d")
    assert said(compared(own, other)) == []


def test_a_row_that_is_withheld_on_one_side_is_a_matter_of_the_schema(pair: Pair) -> None:
    own, other = pair
    for bench, check in ((own, "1"), (other, "a <> 'x'")):
        bench.sql(f"CREATE TABLE w (id TEXT PRIMARY KEY, a TEXT CHECK ({check}))")
        bench.engine.register_table(TableSpec("main", "w"))
    both(pair, [own.event(2, 500, {"id": "x"}, {"a": "x"}, table="w")])
    assert said(compared(own, other)) == [("x", "schema", "the row is withheld there: constraints of the table differ")]


def test_text_that_is_not_utf_8_and_keys_of_many_kinds_are_compared(pair: Pair) -> None:
    own, other = pair
    for bench in pair:
        bench.sql("CREATE TABLE k (one, two TEXT, a, PRIMARY KEY (one, two)) WITHOUT ROWID")
        bench.engine.register_table(TableSpec("main", "k"))
    keys = [{"one": one, "two": "ä" * two} for one in (1, "1", b"1") for two in (0, 30)]
    both(pair, [own.event(2, 500 + at, key, {"a": 0.5}, table="k") for at, key in enumerate(keys)])
    assert said(compared(own, other)) == []
    other.sql("UPDATE k SET a = CAST(x'ff' AS TEXT) WHERE one = '1' AND two = ''")
    found = compared(own, other).differences
    assert [cbor.decode_untrusted(each.key) for each in found] == [{"one": "1", "two": ""}]


def test_what_came_while_the_two_were_read_is_on_its_way(pair: Pair) -> None:
    own, other = pair
    event = own.event(2, 50, {"id": "new"}, {"a": 1})
    other.deliver([event])
    settle(other, own)
    comparison = Compared(own, other).begin()
    own.deliver([event])
    assert said(comparison.run()) == [("new", "pending", "an event is only there: it is waited for here")]


def test_places_that_are_not_remembered_are_looked_for_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare_side, "PLACES", 0)
    own, other = pair
    lose(own, "r5")
    lose(other, "r6")
    found = said(compared(own, other))
    assert [each[:2] for each in found] == [("r5", "fault"), ("r6", "fault")]


# --- What crosses.


def test_a_table_that_does_not_cross_is_not_told(pair: Pair) -> None:
    own, other = pair
    names = [each.name for each in BenchSide(own, other.key.site).tell().tables]
    assert names == ["t"]
    assert BenchSide(own, other.key.site, Scope(("main.other",))).tell().tables == ()
    classify(own.engine.context, "main", "t", TableClass.PRIVATE)
    assert BenchSide(own, other.key.site).tell().tables == ()
    their = BenchSide(other, own.key.site).tell()
    assert BenchSide(own, other.key.site).taken(their.tables) == []
    take_policy(other.engine.context, Policy(scope=Scope(("main.u",))))
    assert BenchSide(other, own.key.site).tell().tables == ()


def test_one_table_has_to_be_known_and_to_cross(pair: Pair) -> None:
    own, other = pair
    assert [each.name for each in own.read(lambda tx: tell(tx, Scope(), only=("main", "t"))).tables] == ["t"]
    with pytest.raises(NotFoundError, match="nothing is known of a table 'u'"):
        own.read(lambda tx: tell(tx, Scope(), only=("main", "u")))
    with pytest.raises(UsageError, match="does not cross whole"):
        own.read(lambda tx: tell(tx, Scope(("main.u",)), only=("main", "t")))
    assert other is not own


def test_a_table_that_a_side_never_heard_of_is_empty_there(pair: Pair) -> None:
    own, other = pair
    own.engine.register_table(TableSpec("main", "u", {"id": "TEXT"}, {"a": "TEXT"}))
    own.deliver([own.event(2, 50, {"id": "u"}, {"a": "x"}, table="u")])
    settle(own, other)
    for found in (compared(own, other), compared(other, own)):
        assert [each[:2] for each in said(found)] == [("u", "fault")]


def test_a_name_that_a_hostile_peer_makes_up_explains_nothing(pair: Pair) -> None:
    own, other = pair
    comparison = Compared(own, other).begin()
    made_up = [
        words.EventName(words.EVENTS, 1000, b"s" * 16, 1, 0, bytes(32), b"", None, 0),
        words.EventName(words.EVENTS, 0, site_key(2).site, 1, 0, bytes(32), b"\xff", None, 0),
        words.RowName(words.ROWS, 0, b"\xff", Hlc(0, 0), Hlc(0, 0), bytes(16), words.SHOWN),
    ]
    answer = comparison.own.side.answer_untrusted
    codes = own.read(lambda tx: answer(tx, words.WHY, made_up, own.membership))
    assert codes == (words.POLICY, words.SCHEMA, words.UNEXPLAINED)
    assert own.read(lambda tx: answer(tx, words.NAMES, [bytes(16)], own.membership)) == (None,)
    assert comparison.own.side.positions([bytes(16)]) == []
