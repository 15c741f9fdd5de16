"""Homes that were begun and never finished, or that lost a file since (profile §8, §9)."""

from __future__ import annotations

import logging
import sqlite3
import stat
from pathlib import Path

import pytest
from support.command import meshnode
from support.nodes import loopback

from meshnode import Node, join
from meshnode.errors import PairingError, StoreError, UsageError
from meshnode.model.site import site_text
from meshnode.node.databases import database_of
from meshnode.node.founding import found
from meshnode.node.home import Home
from meshnode.node.noticelog import EVERY_S, NoticeLog
from meshnode.node.storage import Storage
from meshnode.store.notices import Notice


async def founded(path: Path) -> Home:
    """A mesh of one."""
    home = Home(path)
    home.prepare()
    await found(home, name="desk")
    return home


def query(path: Path, sql: str) -> list[tuple[object, ...]]:
    """What a database says."""
    connection = sqlite3.connect(path)
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


async def test_a_home_that_was_begun_is_made_again_with_the_same_key(tmp_path: Path) -> None:
    home = await founded(tmp_path)
    before = home.site_key()
    home.unfinished_path.touch()
    (tmp_path / ".site.key.4711").write_text("a draft")
    assert not home.founded
    again = await founded(tmp_path)
    assert again.founded
    assert again.site_key() == before
    assert not (tmp_path / ".site.key.4711").exists()


async def test_where_joining_was_begun_no_mesh_is_founded_by_the_way(tmp_path: Path) -> None:
    async with Node(tmp_path / "a", config=loopback(name="a")) as a:
        invite = (await a.invite()).invite
        port = (await a.status()).port or 0
    for folder in ("b", "c"):
        with pytest.raises(PairingError, match="cannot be reached"):
            await join(tmp_path / folder, invite, timeout_s=0.5)
    with pytest.raises(UsageError, match="go on with `meshnode join INVITE`"):
        async with Node(tmp_path / "b", config=loopback()):
            pass
    refused = await meshnode("up", "--no-mdns", home=tmp_path / "b")
    assert (refused.code, "joining a mesh was begun" in refused.err) == (2, True), refused
    assert not (tmp_path / "b" / "recovery.key").exists()
    key = Home(tmp_path / "b").site_key()
    async with Node(tmp_path / "a", config=loopback(port=port)) as a:
        assert (await join(tmp_path / "b", invite)).site == site_text(key.site)
        async with Node(tmp_path / "b", config=loopback(port)) as b:
            assert {each.site for each in await b.members()} == {each.site for each in await a.members()}
    said = await meshnode("init", "--name", "c", "--output", "json", home=tmp_path / "c")  # whoever says so
    assert (said.code, said.json["name"]) == (0, "c"), said


async def test_in_a_database_of_the_application_only_the_nodes_tables_are_made_again(tmp_path: Path) -> None:
    database = tmp_path / "app.db"
    query(database, "CREATE TABLE own (a)")
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(f'database = "{database}"\n')
    home = await founded(tmp_path / "home")
    site = query(database, "SELECT value FROM meshnode_meta WHERE name = 'mesh_id'")
    home.unfinished_path.touch()
    await founded(tmp_path / "home")
    assert query(database, "SELECT value FROM meshnode_meta WHERE name = 'mesh_id'") != site
    assert query(database, "SELECT count(*) FROM own") == [(0,)]


@pytest.mark.parametrize("lost", ["incarnation", "site.key", "config.toml"])
async def test_a_home_that_lost_a_file_is_never_made_over(tmp_path: Path, lost: str) -> None:
    home = await founded(tmp_path)
    before = query(home.database_path, "SELECT value FROM meshnode_meta WHERE name = 'mesh_id'")
    (tmp_path / lost).unlink()
    with pytest.raises(UsageError, match="there is a node"):
        await founded(tmp_path)
    assert query(home.database_path, "SELECT value FROM meshnode_meta WHERE name = 'mesh_id'") == before


async def test_a_lost_database_is_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    home = await founded(tmp_path)
    home.database_path.unlink()
    with pytest.raises(StoreError, match="missing"):
        Storage.open(database_of(home), home.site_key())
    assert not home.database_path.exists()


async def test_the_database_is_for_its_owner_alone(tmp_path: Path) -> None:
    home = await founded(tmp_path)
    assert stat.S_IMODE(home.database_path.stat().st_mode) == 0o600


def test_a_kind_of_notice_is_one_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [0.0]
    log = NoticeLog(lambda: now[0])
    notice = Notice("skew", b"s" * 16, "", 1, 0, 0, "too far ahead")
    for _ in range(100):
        log.tell([notice])
    assert len(caplog.records) == 1
    now[0] = EVERY_S
    log.tell([notice])
    assert "count=100" in caplog.records[-1].getMessage()


def test_good_news_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "meshnode.notices")
    NoticeLog(lambda: 0.0).tell([Notice(kind, b"s" * 16, "", 1, 0, 0, "text") for kind in ("joined", "skew")])
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]


async def test_a_port_is_kept_beside_settings_without_one(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('name = "mine"\n')
    home = await founded(tmp_path)
    assert home.port == Home.load(tmp_path).port != 0
    assert (tmp_path / "config.toml").read_text() == 'name = "mine"\n'
