"""The policy of running nodes changes without a restart: settings, classes of tables, scopes, the file and SIGHUP."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from support.nodes import (
    COLUMNS,
    KEY,
    PATIENCE_S,
    TABLE,
    Process,
    free_port,
    linked,
    loopback,
    note,
    pair_of_homes,
    until,
)

from meshnode import Node
from meshnode.errors import ConfigError, NotFoundError, UsageError
from meshnode.node.configfile import load_config


@asynccontextmanager
async def two_nodes(folder: Path, **settings: object) -> AsyncIterator[tuple[Node, Node]]:
    """A and B, linked, with the shared table; `settings` are B's."""
    ports = free_port(), free_port()
    homes = await pair_of_homes(folder, ports)
    other = msgspec.structs.replace(loopback(ports[0], port=ports[1]), **settings)
    async with Node(homes[0], config=loopback(port=ports[0])) as a, Node(homes[1], config=other) as b:
        await linked(b, a)
        yield a, b


async def titles(node: Node) -> list[str]:
    return [str(row.columns["title"]) for row in await node.rows(TABLE)]


async def has(node: Node, *expected: str) -> None:
    async def holds() -> bool:
        return await titles(node) == list(expected)

    await until(node, holds)


async def complete(*nodes: Node) -> None:
    for node in nodes:
        result = await node.wait(timeout_s=PATIENCE_S)
        assert result.complete, result


async def test_a_class_changes_under_a_live_link(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (a, b):
        assert (await a.classify(TABLE, "private")).classes == {TABLE: "private"}
        await a.import_rows(TABLE, [note(number, "a's") for number in range(600)])
        await b.put(TABLE, {"id": "z"}, {"title": "b's"})
        await complete(a, b)
        assert (len(await a.rows(TABLE)), await titles(b)) == (600, ["b's"])
        assert (await a.tables())[0].table_class == "private"
        assert (await a.classify(TABLE, "shared")).classes == {}
        await complete(a, b)

        async def equal() -> bool:
            return await a.digest() == await b.digest()

        await until(a, equal)
        assert len(await b.rows(TABLE)) == 601
        with pytest.raises(UsageError, match="no class of tables"):
            await a.classify(TABLE, "secret")
        with pytest.raises(NotFoundError, match="add it first"):
            await a.classify("nothing", "raw")


async def test_raw_tables_cross_from_the_moment_both_ends_say_so(tmp_path: Path) -> None:
    async with two_nodes(tmp_path) as (a, b):
        for node in (a, b):
            await node.add_table(TABLE, KEY, COLUMNS, table_class="raw")
        await a.put(TABLE, {"id": "1"}, {"title": "raw"})
        await complete(a, b)
        assert await titles(b) == []
        changed = await b.set_policy("replicate_raw_ingress", True)
        assert (changed.replicate_raw_ingress, changed.classes) == (True, {TABLE: "raw"})
        await a.set_policy("replicate_raw_ingress", True)
        await has(b, "raw")
        await a.set_policy("replay_budget_days", 1)
        await a.set_policy("replicate_raw_ingress", False)
        await a.put(TABLE, {"id": "2"}, {"title": "kept"})
        await complete(a, b)
        assert await titles(b) == ["raw"]
        assert load_config(a.home.config_path).replay_budget_days == 1
        with pytest.raises(ConfigError, match="1 to 90"):
            await a.set_policy("replay_budget_days", 91)


async def test_a_scope_that_changes_takes_a_new_link_by_itself(tmp_path: Path) -> None:
    async with two_nodes(tmp_path, scope=["*.*", f"!main.{TABLE}"]) as (a, b):
        await a.put(TABLE, {"id": "1"}, {"title": "out of scope"})
        await complete(a, b)
        assert await titles(b) == []
        assert (await b.set_policy("scope", [])).scope == []
        await has(b, "out of scope")
        await linked(a, b)
        await b.set_policy("scope", ["main.other"])
        await linked(b, a)
        await a.put(TABLE, {"id": "2"}, {"title": "out again"})
        await complete(a, b)
        assert await titles(b) == ["out of scope"]
    stored = load_config(b.home.config_path)
    assert stored.scope == ["main.other"]


async def test_a_policy_that_was_set_while_no_node_ran_is_in_force_from_the_start(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    homes = await pair_of_homes(tmp_path, ports)
    async with Node(homes[1], config=loopback(ports[0], port=ports[1])) as b:
        await b.put(TABLE, {"id": "1"}, {"title": "b's"})
        await b.classify(TABLE, "private")
    async with (
        Node(homes[0], config=loopback(port=ports[0])) as a,
        Node(homes[1], config=loopback(ports[0], port=ports[1])) as b,
    ):
        await linked(b, a)
        await complete(a, b)
        assert await titles(a) == []


async def test_a_hangup_reads_the_settings_again(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    homes = await pair_of_homes(tmp_path, ports)
    async with Process.on_loopback(homes[0], ports[0]) as process:
        path = homes[0] / "config.toml"
        path.write_text(path.read_text() + "\nreplay_budget_days = 9\n")
        os.kill(process.pid, signal.SIGHUP)
        while (await process.client.policy()).replay_budget_days != 9:
            pass
        path.write_text("replay_budget_days = [\n")
        os.kill(process.pid, signal.SIGHUP)
        while not any("config-refused" in line for line in process.said):
            await process.client.status()
        assert (await process.client.policy()).replay_budget_days == 9
        await process.stop()


async def test_what_a_node_was_started_with_stands_until_its_setting_changes(tmp_path: Path) -> None:
    started = msgspec.structs.replace(loopback(), replay_budget_days=5)
    async with Node(tmp_path / "n", config=started) as node:
        assert (await node.policy()).replay_budget_days == 5
        node.home.change_setting("scope", ["main.x"])
        assert (await node.reload()).changed == ("scope",)
        reloaded = await node.policy()
        assert (reloaded.replay_budget_days, reloaded.scope) == (5, ["main.x"])
        assert (await node.set_policy("replay_budget_days", 0)).replay_budget_days == 0
