"""The conflict ledger beside all else that happens to a row: bounds, erasure, taking back, `check`, compaction."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from support.engines import PLAIN, Bench, members
from support.mesh_context import START_MS
from support.records import site_key

from meshnode.engine import contest
from meshnode.engine.check import check_store
from meshnode.engine.conflicts import acknowledge, resolve
from meshnode.engine.forget import forget
from meshnode.engine.retention import compaction, evict, rehydrate
from meshnode.engine.standing import take_effect
from meshnode.engine.write import LocalChange
from meshnode.errors import UsageError
from meshnode.limits import CONFLICT_VALUE_BYTES
from meshnode.model.conflict import Status
from meshnode.model.event import Event, Scalar
from meshnode.model.hlc import Hlc
from meshnode.model.policy import TableClass
from meshnode.store import conflicts
from meshnode.store.conflicts import Conflict
from meshnode.store.database import Tx

KEYS = [site_key(number).public_key for number in (1, 2, 3)]


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path)
    bench.engine.register_table(PLAIN)
    bench.time.now_ms += 1000
    return bench


def write(bench: Bench, key: object, columns: dict[str, Scalar] | None) -> Event:
    """A write of this node; the clock of a foreign event is given against the tests' start, 1000 ms before this."""
    (event,) = bench.engine.write([LocalChange("main", "t", {"id": key}, columns)])  # type: ignore[dict-item]
    return event


def ledger(bench: Bench) -> list[Conflict]:
    found: list[Conflict] = bench.read(lambda tx: list(conflicts.all_of(tx)))
    return found


def shown(bench: Bench) -> list[tuple[str | None, object, object, str]]:
    return [(each.column, each.ours.value, each.theirs.value, each.status.value) for each in ledger(bench)]


def test_each_column_stands_for_itself_and_the_winner_is_not_what_decides(bench: Bench) -> None:
    write(bench, 1, {"a": 1, "b": "x", "c": None})
    bench.deliver([bench.event(2, 2000, {"id": 1}, {"a": True, "b": "x"}), bench.event(3, 1, {"id": 1}, {"c": 1.0})])
    assert shown(bench) == [("a", 1, True, "open"), ("b", "x", "x", "agreed"), ("c", None, 1.0, "open")]


def test_what_is_lost_to_a_delete_of_ours_is_kept_though_the_row_was_written_anew(bench: Bench) -> None:
    write(bench, 1, {"a": 1, "b": 1})
    write(bench, 1, None)
    write(bench, 1, {"a": 2})
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": 3, "b": 3})])
    assert shown(bench) == [(None, None, {"a": 3, "b": 3}, "open"), ("a", 2, 3, "open")]
    bench.deliver([bench.event(3, 1, {"id": 1}, {"a": 2})])
    assert shown(bench)[2:] == [("a", 2, 2, "agreed")]


def test_the_number_of_a_change_is_never_used_again(bench: Bench) -> None:
    """Whoever follows the ledger goes on from it, though the conflict that had it is gone."""
    for number in (1, 2):
        write(bench, number, {"a": 1})
        bench.deliver([bench.event(2, 2000 * number, {"id": number}, {"a": 2})])
        last = bench.read(conflicts.last_change)
        assert [each.change for each in ledger(bench)] == [last]
        assert bench.read(conflicts.changed_after, last, 9) == []
        assert len(bench.read(conflicts.changed_after, number - 1, 9)) == 1
        forget(bench.engine.context, "main", "t", {"id": number})


def test_a_value_that_is_too_large_is_not_kept_twice(bench: Bench) -> None:
    large = "x" * CONFLICT_VALUE_BYTES
    write(bench, 1, {"a": large})
    bench.deliver([bench.event(2, 2000, {"id": 1}, {"a": "y"})])
    (conflict,) = ledger(bench)
    assert (conflict.ours.kept, conflict.ours.value) == (False, None)
    assert resolve(bench.engine.context, conflict.id, site_key(1).site).event is not None
    row = bench.get({"id": 1})
    assert row is not None
    assert row["a"] == large


def test_what_is_preferred_and_is_not_kept_anywhere_is_refused(bench: Bench) -> None:
    write(bench, 1, {"a": "x" * CONFLICT_VALUE_BYTES})
    bench.deliver([bench.event(2, 2000, {"id": 1}, {"a": "y"}), bench.event(2, 2001, {"id": 1}, {"b": "z"})])
    sweep = compaction(bench.engine.context, "main", "t")
    while sweep.step():
        pass
    (conflict,) = ledger(bench)
    with pytest.raises(UsageError, match="not in the log any more"):
        resolve(bench.engine.context, conflict.id, conflict.ours.site)
    found = bench.read(check_store, sqlite3, bench.membership.key_of)
    assert (found.count, found.differences) == (0, [])


def test_check_names_a_conflict_whose_event_was_lost(bench: Bench) -> None:
    write(bench, 1, {"a": 1})
    bench.deliver([bench.event(2, 2000, {"id": 1}, {"a": 2})])
    (conflict,) = ledger(bench)
    bench.sql("UPDATE meshnode_conflicts SET theirs = ?", conflict.theirs.rank[:32] + bytes(32))
    found = bench.read(check_store, sqlite3, bench.membership.key_of)
    assert [each.what for each in found.differences] == [
        "its id is not that of its two events",
        "the event that is theirs is not in the log, and was not removed",
    ]


def test_what_was_compacted_and_comes_again_is_no_conflict(bench: Bench) -> None:
    theirs = bench.event(2, 1, {"id": 1}, {"a": 1})
    bench.deliver([theirs, bench.event(2, 2, {"id": 2}, {"a": 1})])
    write(bench, 1, {"a": 2})
    sweep = compaction(bench.engine.context, "main", "t")
    while sweep.step():
        pass
    assert bench.deliver([theirs]) == ["applied"]
    assert ledger(bench) == []


def test_what_was_evicted_and_comes_again_is_no_conflict(bench: Bench) -> None:
    theirs = bench.event(2, 1, {"id": 1}, {"a": 1})
    bench.deliver([theirs])
    write(bench, 1, {"a": 2})
    sweep = evict(bench.engine.context, "main", "t", Hlc(START_MS + 2, 0), everything=True)
    while sweep.step():
        pass
    rehydrate(bench.engine.context, "main", "t")
    assert bench.deliver([theirs]) == ["applied"]
    assert ledger(bench) == []


def test_what_this_device_wrote_before_its_database_was_restored_is_part_of_none(bench: Bench) -> None:
    """What it had seen then, and who had seen it, is not known any more."""
    bench.deliver([bench.event(1, 500, {"id": 1}, {"a": 1}), bench.event(1, 500, {"id": 2}, {"a": 1})])
    bench.deliver([bench.event(2, 400, {"id": 1}, {"a": 2}), bench.event(2, 600, {"id": 2}, {"a": 2})])
    assert ledger(bench) == []
    bench.deliver([bench.event(1, 501, {"id": 3}, {"a": 1}), bench.event(2, 401, {"id": 3}, {"a": 2})])  # in one batch
    assert ledger(bench) == []
    write(bench, 4, {"a": 1})
    bench.deliver([bench.event(2, 402, {"id": 4}, {"a": 2})])
    assert len(ledger(bench)) == 1


def test_forgetting_a_row_erases_what_the_ledger_has_of_it(bench: Bench) -> None:
    bench.engine.context.db._connection.execute("PRAGMA secure_delete = OFF")
    write(bench, "PRIVATE", {"a": "SECRET" * 50})
    write(bench, "other", {"a": "x"})
    bench.deliver([bench.event(2, 2000, {"id": key}, {"a": "SECRET"}) for key in ("PRIVATE", "other")])
    assert len(ledger(bench)) == 2
    forget(bench.engine.context, "main", "t", {"id": "PRIVATE"})
    assert [each.key_bytes for each in ledger(bench)] == [bench.event(2, 1, {"id": "other"}, {}).key_bytes]
    files = [each for each in bench.path.parent.iterdir() if each.name.startswith(bench.path.name)]
    assert not any(b"PRIVATE" in each.read_bytes() for each in files)


def test_a_conflict_with_what_is_taken_back_is_withdrawn(bench: Bench) -> None:
    write(bench, 1, {"a": 1})
    write(bench, 2, {"a": 1})
    bench.deliver([bench.event(2, 2000, {"id": 1}, {"a": 2}), bench.event(3, 2000, {"id": 2}, {"a": 2})])
    context, after = bench.engine.context, members(KEYS, cutoffs={site_key(2).site: Hlc(START_MS, 0)})

    def work(tx: Tx) -> None:
        before = context.membership
        context.set_membership(after)
        take_effect(context, tx, before, after)

    context.transact(work)
    while bench.engine.follow_schema():
        pass
    assert [each.status for each in ledger(bench)] == [Status.WITHDRAWN, Status.OPEN]
    assert ledger(bench)[0].reason == "one of the two events was taken back"


def test_one_member_cannot_push_out_what_is_open_with_another(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (contest, conflicts):
        monkeypatch.setattr(module, "CONFLICTS_PER_SITE", 3)
    monkeypatch.setattr(conflicts, "CONFLICTS", 5)
    for number in range(8):
        write(bench, number, {"a": 0})
    bench.deliver([bench.event(3, 2000, {"id": number}, {"a": 3}) for number in range(2)])
    bench.deliver([bench.event(2, 2000, {"id": number}, {"a": 2}) for number in range(2, 8)])
    kept = [(each.theirs.site, each.status) for each in ledger(bench)]
    assert kept == [(site_key(3).site, Status.OPEN)] * 2 + [(site_key(2).site, Status.OPEN)] * 3
    notice = bench.notices()["conflicts-dropped"]
    assert (notice.site, notice.count) == (site_key(2).site, 1)
    assert "3 were dropped" in notice.sample
    acknowledge(bench.engine.context, ledger(bench)[3].id)
    write(bench, 9, {"a": 0})
    bench.deliver([bench.event(2, 2001, {"id": 9}, {"a": 2})])
    assert [each.status for each in ledger(bench)] == [Status.OPEN] * 5  # the acknowledged one went first


def test_equal_writes_of_two_imports_cost_little(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contest, "AGREED_PER_BATCH", 2)
    for number in range(5):
        write(bench, number, {"a": 0})
    bench.deliver([bench.event(2, 2000, {"id": number}, {"a": 0}) for number in range(5)])
    assert [status for *_, status in shown(bench)] == ["agreed"] * 2
    assert bench.read(lambda tx: conflicts.page(tx, table_no=None, everything=True, limit=9)) == []


def test_a_private_table_has_none(bench: Bench) -> None:
    context = bench.engine.context
    write(bench, 1, {"a": 1})
    with context.transaction() as tx:
        context.tables.set_class(tx, context.tables.entry(tx, "main", "t"), TableClass.PRIVATE)
    bench.deliver([bench.event(2, 2000, {"id": 1}, {"a": 2})])
    assert ledger(bench) == []


def test_the_ledger_goes_on_after_a_restart(bench: Bench) -> None:
    write(bench, 1, {"a": 1})
    bench.deliver([bench.event(2, 2000, {"id": 1}, {"a": 2})])
    bench.reopen()
    bench.deliver([bench.event(2, 2001, {"id": 1}, {"a": 3})])
    assert [(each.theirs.value, each.status) for each in ledger(bench)] == [(2, Status.RESOLVED), (3, Status.OPEN)]
    write(bench, 1, {"a": 4})
    assert {each.status for each in ledger(bench)} == {Status.RESOLVED}


def test_a_stored_conflict_that_cannot_be_read_is_named(bench: Bench) -> None:
    write(bench, 1, {"a": 1})
    bench.deliver([bench.event(2, 2000, {"id": 1}, {"a": 2})])
    bench.sql("UPDATE meshnode_conflicts SET our_value = x'ff'")
    found = bench.read(check_store, sqlite3, bench.membership.key_of)
    assert "a conflict in the database cannot be read" in found.differences[0].what
