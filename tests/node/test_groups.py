"""How far behind whom: fail-closed, both ways, the largest gaps first and a count of the rest (SSP/1 §14.2)."""

from __future__ import annotations

from collections.abc import Mapping

from support.records import site_key

from meshnode.model.delivery import GroupName, Told
from meshnode.model.hlc import Hlc
from meshnode.model.site import site_text
from meshnode.node.groups import AHEAD, BEHIND, GROUPS_SHOWN, MISSING, PeerGroups, lagging_views, peer_groups
from meshnode.node.views import GroupView, LaggingView
from meshnode.store.lagging import HELD, HOLE, Lagging

DESK, LAP = site_key(1).site, site_key(2).site
NAMES = {DESK: "desk", LAP: "lap"}


def group(table: str = "notes", site: bytes = DESK) -> GroupName:
    return (site, "main", table)


def everything(_schema: str, _table: str) -> bool:
    return True


def compare(applied: Mapping[GroupName, Hlc], told: Mapping[GroupName, Told]) -> PeerGroups:
    return peer_groups(applied, told, everything, NAMES.__getitem__)


def test_equal_watermarks_are_no_difference() -> None:
    assert compare({group(): Hlc(5, 1)}, {group(): Told(Hlc(5, 1), 9)}) == PeerGroups(told_ms=9)


def test_both_sides_are_told_apart_with_both_clocks_and_the_gap() -> None:
    applied = {group(): Hlc(5_000, 1), group("more"): Hlc(1_000, 0), group("same ms"): Hlc(7, 8)}
    told = {
        group(): Told(Hlc(2_000, 7), 9),
        group("more"): Told(Hlc(1_500, 0), 10),
        group("same ms"): Told(Hlc(7, 7), 8),
    }
    found = compare(applied, told)
    assert (found.behind, found.ahead, found.told_ms) == (2, 1, 10)
    assert found.shown == (
        GroupView(
            site=site_text(DESK),
            name="desk",
            table="notes",
            side=BEHIND,
            applied=(5_000, 1),
            told=(2_000, 7),
            gap_ms=3_000,
            told_ms=9,
        ),
        GroupView(
            site=site_text(DESK),
            name="desk",
            table="more",
            side=AHEAD,
            applied=(1_000, 0),
            told=(1_500, 0),
            gap_ms=500,
            told_ms=10,
        ),
        GroupView(
            site=site_text(DESK),
            name="desk",
            table="same ms",
            side=BEHIND,
            applied=(7, 8),
            told=(7, 7),
            gap_ms=0,
            told_ms=8,
        ),
    )


def test_what_was_never_told_is_never_up_to_date() -> None:
    found = compare({group(): Hlc(5, 0), group("x"): Hlc(9_000, 0)}, {group("x"): Told(Hlc(1, 0), 3)})
    first = found.shown[0]
    assert (found.behind, first.table, first.told, first.gap_ms, first.told_ms) == (2, "notes", None, None, None)
    assert compare({group(): Hlc(5, 0)}, {}).behind == 1


def test_what_is_not_applied_here_is_ahead_by_no_known_length() -> None:
    found = compare({}, {group(): Told(Hlc(5, 0), 3)})
    assert [(each.side, each.applied, each.told, each.gap_ms) for each in found.shown] == [(AHEAD, None, (5, 0), None)]


def test_what_a_peer_does_not_want_it_is_not_behind_in() -> None:
    applied = {group(): Hlc(5, 0), group("t"): Hlc(5, 0)}
    found = peer_groups(applied, {}, lambda _schema, table: table != "notes", NAMES.__getitem__)
    assert [each.table for each in found.shown] == ["t"]
    assert found.behind == 1


def test_so_many_groups_are_listed_and_all_are_counted() -> None:
    applied = {group(f"t{number}"): Hlc(10_000 + number, 0) for number in range(500)}
    told = {name: Told(Hlc(10_000, 0), 1) for name in applied}
    told |= {group(f"u{number}"): Told(Hlc(1, 0), 1) for number in range(3)}
    found = compare(applied, told)
    assert (found.behind, found.ahead) == (499, 3)
    assert len(found.shown) == GROUPS_SHOWN // 2 + 3
    gaps = [each.gap_ms for each in found.shown]
    assert gaps == [None] * 3 + list(range(499, 499 - GROUPS_SHOWN // 2, -1))
    assert GROUPS_SHOWN == 100


def lagging_of(
    *here: Lagging, applied: Mapping[GroupName, Hlc], told: Mapping[bytes, Mapping[GroupName, Told]]
) -> list[LaggingView]:
    return lagging_views(here, applied, told, NAMES.__getitem__)


def test_this_node_is_behind_in_what_stopped_and_in_what_peers_told() -> None:
    stopped = Lagging(group("late"), Hlc(0, 0), Hlc(9, 0), HELD, 4)
    hole = Lagging(group("hole"), Hlc(100, 0), Hlc(300, 0), HOLE)
    applied = {group(): Hlc(5, 0), group("hole"): Hlc(100, 0)}
    told = {
        LAP: {group(): Told(Hlc(1_005, 0), 1), group("late"): Told(Hlc(10, 0), 1), group("new"): Told(Hlc(7, 0), 1)},
        DESK: {group(): Told(Hlc(6, 0), 1), group("hole"): Told(Hlc(100, 0), 1)},
    }
    found = lagging_of(stopped, hole, applied=applied, told=told)
    assert [(each.table, each.reason, each.gap_ms, each.events, each.told_by) for each in found] == [
        ("late", HELD, None, 4, ""),
        ("new", MISSING, None, 0, "lap"),
        ("notes", MISSING, 1_000, 0, "lap"),
        ("hole", HOLE, 200, 0, ""),
    ]
    assert [(each.applied, each.known) for each in found][2:] == [((5, 0), (1_005, 0)), ((100, 0), (300, 0))]


def test_a_node_that_has_applied_all_that_it_knows_of_lags_in_nothing() -> None:
    assert lagging_of(applied={group(): Hlc(5, 0)}, told={LAP: {group(): Told(Hlc(5, 0), 1)}, DESK: {}}) == []
