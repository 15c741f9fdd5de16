"""What peers told of their watermarks: kept over restarts, the last word of the last link, bounded (SSP/1 §14.2)."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest
from support.pair import Node, mesh
from support.records import site_key

from meshnode import limits
from meshnode.engine import told as keeping
from meshnode.engine.told import keep_told_untrusted
from meshnode.model.delivery import GroupName, Told
from meshnode.model.frames import After, WatermarkEntry, Watermarks
from meshnode.model.hlc import Hlc
from meshnode.model.scope import Scope
from meshnode.store import peers, schema, told
from meshnode.store.database import Database
from meshnode.store.peers import PeerRow
from meshnode.sync import watermarks
from meshnode.sync.watermarks import ENTRIES_PER_MESSAGE, HeardWatermarks

PEER, OTHER, STRANGER = site_key(2).site, site_key(3).site, site_key(9).site
EPOCH = bytes(8)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return mesh(tmp_path, 3)[0]


def group(table: str = "notes", site: bytes = OTHER) -> GroupName:
    return (site, "main", table)


def at(ms: int, told_ms: int = 7) -> Told:
    return Told(Hlc(ms, 0), told_ms)


def keep(node: Node, words: Mapping[GroupName, Told], *, peer: bytes = PEER, anew: bool = False) -> None:
    with node.context.transaction() as tx:
        keep_told_untrusted(node.context, tx, peer, words, anew=anew)


def kept(node: Node, peer: bytes = PEER) -> dict[GroupName, Told]:
    with node.context.transaction() as tx:
        return told.of_peer(tx, peer)


def test_it_outlives_a_restart_and_stays_apart_by_peer(node: Node) -> None:
    highest = Told(Hlc(2**64 - 1, 2**63), 8)
    keep(node, {group(): at(5), group(site=PEER): highest})
    keep(node, {group(): at(6)}, peer=OTHER)
    node.crash()
    assert kept(node) == {group(): at(5), group(site=PEER): highest}
    assert kept(node, OTHER) == {group(): at(6)}
    assert kept(node, STRANGER) == {}


def test_the_last_link_has_the_last_word(node: Node) -> None:
    """A peer that lost its database, or was restored from an old copy, is no further than it says now."""
    keep(node, {group(): at(5), group(site=PEER): at(9)})
    keep(node, {group(): at(6)})
    assert kept(node) == {group(): at(6), group(site=PEER): at(9)}
    keep(node, {group(): at(2)}, anew=True)
    assert kept(node) == {group(): at(2)}


def test_groups_of_sites_that_are_no_members_are_not_kept(node: Node) -> None:
    keep(node, {group(site=STRANGER): at(5), group(): at(5)})
    assert kept(node) == {group(): at(5)}
    assert node.query("SELECT count(*) FROM meshnode_sites WHERE site = ?", STRANGER) == [(0,)]


def test_invented_tables_are_bounded_per_peer_and_author(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "UNKNOWN_GROUPS_PER_SITE", 3)
    keep(node, {group(f"u{number}"): at(1) for number in range(5)})
    keep(node, {group(f"v{number}"): at(1) for number in range(5)} | {group("u1"): at(2), group(): at(3)})
    assert kept(node) == {group("u0"): at(1), group("u1"): at(2), group("u2"): at(1), group(): at(3)}
    assert node.query("SELECT count(*) FROM meshnode_tables WHERE name <> 'notes'") == [(0,)], "none is opened here"
    keep(node, {group("w", site=PEER): at(1)})
    keep(node, {group("w"): at(1)}, peer=OTHER)
    assert (len(kept(node)), len(kept(node, OTHER))) == (5, 1)


def message(*entries: WatermarkEntry) -> Watermarks:
    return Watermarks(after=After(EPOCH, 0), entries=entries)


def entry(name: str, ms: int) -> WatermarkEntry:
    return WatermarkEntry(OTHER, "main", name, ms, 0)


def test_a_link_remembers_a_bounded_number_of_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watermarks, "TOLD_GROUPS_PER_PEER", 3)
    heard = HeardWatermarks()
    heard.take_untrusted(message(*(entry(f"t{number}", 1) for number in range(9))), 10)
    heard.take_untrusted(message(entry("t1", 5), entry("t8", 5)), 11)
    assert heard.entries == {group("t0"): at(1, 10), group("t1"): at(5, 11), group("t2"): at(1, 10)}
    assert limits.TOLD_GROUPS_PER_PEER == 16_384


def test_what_rose_is_handed_over_once_and_in_parts() -> None:
    heard = HeardWatermarks()
    heard.take_untrusted(message(entry("a", 5), entry("b", 5)), 10)
    heard.take_untrusted(message(entry("a", 6), entry("b", 4)), 11)
    assert heard.take_risen() == {group("a"): at(6, 11), group("b"): at(5, 10)}
    heard.take_untrusted(message(entry("a", 6)), 12)
    assert heard.take_risen() == {}
    heard.take_untrusted(message(*(entry(f"t{number}", 1) for number in range(ENTRIES_PER_MESSAGE + 1))), 13)
    assert [len(heard.take_risen()) for _ in range(3)] == [ENTRIES_PER_MESSAGE, 1, 0]


def test_what_a_peer_wants_is_kept_with_what_it_said(node: Node) -> None:
    row = PeerRow(PEER, "lap", "test", 5, 0)
    with node.context.transaction() as tx:
        assert peers.scope_of(tx, PEER) == Scope()
        peers.heard(tx, row, Scope(("main.*", "!main.notes")))
    node.crash()
    with node.context.transaction() as tx:
        assert peers.scope_of(tx, PEER).patterns == ("main.*", "!main.notes")
        peers.heard(tx, row, Scope())
        assert (peers.scope_of(tx, PEER), peers.all_heard(tx)) == (Scope(), {PEER: row})


def test_a_database_of_the_format_before_is_brought_up(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as old:
        old.executescript(schema._FORMAT_1)
        old.execute("INSERT INTO meshnode_meta VALUES ('format', 1)")
        old.execute("INSERT INTO meshnode_peers VALUES (?, 'lap', 'test', 5, 0)", (PEER,))
    row = PeerRow(PEER, "lap", "test", 5, 0)
    database = Database(path, sqlite=sqlite3)
    with database.transaction() as tx:
        schema.migrate(tx)
        schema.check_readable(tx)
        assert (told.of_peer(tx, PEER), peers.scope_of(tx, PEER), peers.all_heard(tx)) == ({}, Scope(), {PEER: row})
    database.close()
