"""The two steps of the door: what is verified early is judged by what holds at commit; what is odd is surfaced."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.engines import PLAIN, Bench, members
from support.mesh_context import TestTime
from support.records import site_key

from meshnode.engine.commit import commit_events
from meshnode.engine.write import LocalChange
from meshnode.errors import NotFoundError, UsageError
from meshnode.model.hlc import Hlc
from meshnode.model.scope import Scope
from meshnode.store.database import Tx


def _bench(folder: Path) -> Bench:
    bench = Bench(folder)
    bench.engine.register_table(PLAIN)
    return bench


def _keys(*numbers: int) -> list[bytes]:
    return [site_key(number).public_key for number in numbers]


def test_commit_verifies_again_under_a_newer_keyring(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    context, peer = bench.engine.context, site_key(2).site
    events = [bench.event(2, 1, {"id": 1}, {"a": 1}), bench.event(4, 2, {"id": 1}, {"a": 2})]
    checked = bench.engine.verify([event.data for event in events])
    context.set_membership(members(_keys(1, 4)))
    judgements = context.transact(
        lambda tx: commit_events(context, tx, checked, author_stream=True, scope=Scope(), peer=peer)
    )
    assert [each.text() for each in judgements] == ["dropped:unknown-signer", "applied"]
    assert bench.get({"id": 1}) == {"a": 2}


def test_forgeries_are_put_down_to_who_delivered_them(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    event = bytearray(bench.event(3, 1, {"id": 1}, {}).data)
    event[-1] ^= 1
    assert bench.deliver([bytes(event), b"junk"], peer=2) == ["dropped:bad-signature", "dropped:malformed"]
    assert bench.notices()["bad-signature"].site == site_key(2).site
    assert bench.sql("SELECT count(*) FROM meshnode_watermarks") == [(0,)]


def test_a_late_event_of_a_retired_site_is_kept_and_surfaced(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    cutoff = Hlc(TestTime().now_ms + 5, 0)
    bench.engine.context.set_membership(members(_keys(1, 2), {}, {site_key(2).site: cutoff}))
    events = [bench.event(2, 5, {"id": 1}, {"a": 1}), bench.event(2, 6, {"id": 1}, {"a": 2})]
    assert bench.deliver(events) == ["applied", "dropped:retired-signer"]
    assert bench.notices()["late-below-cutoff"].count == 1


def test_the_clock_observes_what_is_kept_or_below_the_horizon(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    bench.engine.set_horizon("main", "t", Hlc(TestTime().now_ms + 20_000, 0))
    before = bench.engine.context.clock
    dropped = bench.event(2, 50_000, {}, {})
    bench.deliver([dropped])
    assert bench.engine.context.clock == before
    for clock, table, verdict in ((10_000, "t", "below-horizon"), (20_000, "later", "held"), (30_000, "t", "applied")):
        event = bench.event(2, clock, {"id": 1}, {}, table=table)
        assert bench.deliver([event]) == [verdict]
        assert bench.engine.context.clock == Hlc(event.hlc.physical, 1)
    bench.reopen()
    assert bench.engine.context.clock == Hlc(TestTime().now_ms + 30_000, 1)


def test_65538_events_within_one_frozen_millisecond(tmp_path: Path) -> None:
    """The logical counter is 64 bits wide: many events of one frozen millisecond never run into the physical part."""
    bench = _bench(tmp_path)
    now = bench.time.now_ms
    assert bench.deliver([bench.event(2, (now, 65_537), {"id": 1}, {"a": 1})]) == ["applied"]
    assert bench.engine.context.clock == Hlc(now, 65_538)


def test_a_resurrection_below_the_horizon_is_partial(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    bench.deliver([bench.event(2, 1, {"id": 1}, {"a": 1}), bench.event(2, 2, {"id": 1}, None)])
    bench.engine.set_horizon("main", "t", Hlc(TestTime().now_ms + 10, 0))
    bench.deliver([bench.event(2, 11, {"id": 1}, {"b": 1})])
    assert "horizon" in bench.notices()["partial"].sample
    assert bench.get({"id": 1}) == {"a": None, "b": 1, "c": None}


def test_what_was_surfaced_is_handed_on_once(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    bench.deliver([bench.event(2, 1, {}, {})])
    assert [notice.kind for notice in bench.engine.context.take_surfaced()] == ["empty-key"]
    assert bench.engine.context.take_surfaced() == []
    bench.deliver([bench.event(2, 2, None, {})])
    assert bench.notices()["empty-key"].count == 2


def test_a_failed_transaction_takes_its_membership_with_it(tmp_path: Path) -> None:
    bench = _bench(tmp_path)
    context = bench.engine.context
    before = context.generation
    with pytest.raises(NotFoundError):
        bench.engine.write([LocalChange("main", "nowhere", {"id": 1}, {})])
    bench.engine.write([])
    assert context.generation == before  # it did not touch the membership

    def empty_and_fail(_tx: Tx) -> None:
        context.set_membership(members([]))
        raise UsageError("undone")

    with pytest.raises(UsageError):
        context.transact(empty_and_fail)
    bench.engine.write([])
    assert context.membership.key_of(site_key(2).site) is not None
    assert context.generation > before + 1
