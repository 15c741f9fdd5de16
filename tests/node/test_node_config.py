"""Settings of a node that runs: changed by whatever way, confirmed by digest, taken when the file is saved."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import msgspec
import pytest
from support.command import meshnode
from support.nodes import PATIENCE_S, Process, free_port, loopback, until

from meshnode import Node
from meshnode.errors import ConfigError, NotFoundError, StoreError
from meshnode.node import reloading, watching
from meshnode.node.config import Config
from meshnode.node.configfile import load_config
from meshnode.node.inforce import digest_of
from meshnode.node.reloading import REFUSED


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes of this process look at their files often."""
    monkeypatch.setattr(reloading, "watch_file", partial(watching.watch_file, look_s=0.02))


async def test_a_change_is_in_force_or_waits_for_a_new_start(tmp_path: Path) -> None:
    started = loopback()
    async with Node(tmp_path / "n", config=started) as node:
        receipt = await node.set_config({"port": 9, "replay_budget_days": 5, "database": "x"})
        assert {name: each.after for name, each in receipt.changed.items()} == {
            "port": 9,
            "database": "x",
            "replay_budget_days": 5,
        }
        said = load_config(node.home.config_path)
        assert (receipt.reloaded, receipt.digest, receipt.site) == (True, digest_of(said), (await node.status()).site)
        assert receipt.restart_required == ("port", "database")
        assert set(receipt.overridden) == {"name", "port", "listen", "mdns_enabled"}
        assert (await node.policy()).replay_budget_days == 5
        assert (await node.status()).restart_required == ["port", "database"]
        view = {each.setting: each for each in (await node.config()).settings}
        assert (view["port"].value, view["port"].pending, view["database"].pending) == (started.port, 9, "x")

        assert (await node.status()).database.endswith("meshnode.db")
        applied = await node.apply_config("# all\nscope = ['main.x']\n")
        assert (await node.policy()).scope == ["main.x"]
        assert (applied.reloaded, applied.changed["replay_budget_days"].after) == (True, 0)
        assert (await node.set_config({"port": said.port})).changed["port"].before == 0
    async with Node(tmp_path / "n", config=started) as node:
        assert (await node.status()).restart_required == []


async def test_a_change_that_cannot_be_changes_nothing(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=loopback()) as node:
        before = node.home.config_path.read_text()
        for values in ({"scope": ["main.x"], "prot": 1}, {"scope": ["main.x"], "port": True}):
            with pytest.raises(ConfigError):
                await node.set_config(values)
        with pytest.raises(ConfigError, match="line 1"):
            await node.apply_config("prot = 1")
        assert (node.home.config_path.read_text(), (await node.policy()).scope) == (before, [])


async def test_many_changes_at_once_are_all_kept(tmp_path: Path) -> None:
    values = {"scope": ["main.x"], "replay_budget_days": 5, "peers": [], "deny_interfaces": ["x*"], "max_links": 4}
    async with Node(tmp_path / "n", config=loopback()) as node:
        receipts = await asyncio.gather(*(node.set_config({name: value}) for name, value in values.items()))
        assert all(receipt.reloaded for receipt in receipts)
        said = load_config(node.home.config_path)
        assert {name: getattr(said, name) for name in values} == values


async def test_a_file_that_cannot_be_used_is_a_notice_until_it_can(tmp_path: Path, hasty: None) -> None:
    async def notices() -> list[str]:
        return [notice.sample for notice in (await node.status()).notices if notice.kind == REFUSED]

    async def stands() -> bool:
        return bool(await notices())

    async def ended() -> bool:
        return not await notices()

    async with Node(tmp_path / "n", config=loopback()) as node:
        path = node.home.config_path
        await node.set_config({"replay_budget_days": 5})
        good = path.read_text()
        path.write_text(good + "prot = 1\n")
        await until(node, stands)
        assert "did you mean 'port'?; what was in force before stays so" in (await notices())[0]
        with pytest.raises(ConfigError, match="prot"):
            await node.set_config({"replay_budget_days": 6})
        assert (await node.policy()).replay_budget_days == 5
        path.unlink()
        with pytest.raises(ConfigError, match="is missing"):
            await node.reload()
        path.write_text(good)
        await until(node, ended)


async def test_what_could_not_be_put_in_force_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hasty: None
) -> None:
    async def follow(self: Node, config: Config) -> None:
        if failures:
            raise failures.pop()
        await take(self, config)

    async def followed() -> bool:
        return (await node.policy()).replay_budget_days == 5

    take, failures = Node._put_in_force, list[StoreError]()
    monkeypatch.setattr(Node, "_put_in_force", follow)
    async with Node(tmp_path / "n", config=loopback()) as node:
        failures.append(StoreError("the disk is full"))
        receipt = await node.set_config({"scope": ["main.x"]})
        assert (receipt.changed["scope"].after, receipt.reloaded) == (["main.x"], False)
        await node.reload()
        assert (await node.policy()).scope == ["main.x"]
        failures.append(StoreError("the disk is full"))
        with node.home.config_path.open("a") as file:
            file.write("replay_budget_days = 5\n")
        await until(node, followed)
        assert not failures


async def test_without_a_running_node_nothing_is_reloaded_and_nothing_waits(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=loopback()):
        pass
    home = tmp_path / "n"
    done = await meshnode("config", "set", "port", "9", "scope", '["main.x"]', "--output", "json", home=home)
    assert (done.code, done.json["reloaded"], done.json["restart_required"], done.json["site"]) == (0, False, [], "")
    assert done.json["changed"]["scope"] == {"before": [], "after": ["main.x"]}
    assert done.json["digest"] == digest_of(load_config(home / "config.toml"))


async def test_a_real_node_confirms_by_digest_and_takes_what_is_saved(tmp_path: Path) -> None:
    home = tmp_path / "n"
    async with Node(home, config=loopback(name="desk")):
        pass
    async with Process.on_loopback(home, free_port()) as process:
        done = await meshnode(
            "config", "set", "replay_budget_days", "7", "name", "other", "--output", "json", home=home
        )
        site = (await process.client.status()).site
        assert (done.json["reloaded"], done.json["site"], done.json["restart_required"]) == (True, site, ["name"])
        assert (
            done.json["digest"]
            == (await process.client.reload()).digest
            == digest_of(load_config(home / "config.toml"))
        )
        shown = await meshnode("status", home=home)
        assert "at the next start config.toml changes: name" in shown.out

        path = home / "config.toml"
        path.write_text(path.read_text().replace("replay_budget_days = 7", "replay_budget_days = 8"))
        async with asyncio.timeout(PATIENCE_S):
            while (await process.client.policy()).replay_budget_days != 8:
                pass
        path.write_text("replay_budget_days = [\n")
        async with asyncio.timeout(PATIENCE_S):
            while not (status := await meshnode("status", home=home)).out.count(REFUSED):
                assert status.code == 0
        applied = await meshnode("config", "apply", "-", "--output", "json", home=home, stdin=b"name = 'desk' # mine\n")
        assert (applied.code, applied.json["reloaded"], applied.json["restart_required"]) == (0, True, ["port"])
        assert path.read_text() == "name = 'desk' # mine\n"
        assert (await process.client.policy()).replay_budget_days == 0
        assert REFUSED not in (await meshnode("status", home=home)).out
        await process.stop()


async def test_only_a_running_node_reloads(tmp_path: Path) -> None:
    from meshnode.node.local import open_local

    async with Node(tmp_path / "n", config=loopback()) as node:
        home = node.home
    async with open_local(home, writing=False) as alone:
        with pytest.raises(NotFoundError, match="no node runs"):
            await alone.reload()
        assert not (await alone.config()).running
        assert msgspec.structs.asdict(await alone.config())["site"] == ""
