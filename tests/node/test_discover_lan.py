"""`discover` on a real network: with a running node, with none, and without a home (profile §11)."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.announcer import site_key
from support.lan import Lan, lan_available
from support.launch import launch
from support.nodes import PATIENCE_S, Process, free_port, pair_of_homes

from meshnode import Home
from meshnode.net.interfaces import OFF_LINE
from meshnode.net.mdns import NO_NETWORK
from meshnode.node.api import Operations
from meshnode.node.discoverviews import DiscoverView

pytestmark = pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")


async def discover(lan: Lan, host: int, home: Path, *sites: str) -> Any:
    """`meshnode discover` in a host, as JSON; again until all of these sites were seen."""
    command = [sys.executable, "-m", "meshnode", "--home", str(home), "discover", "--seconds", "3", "--output", "json"]
    while True:
        done = await asyncio.to_thread(lan.run, host, command)
        assert done.returncode == 0, done.stderr
        if all(site in done.stdout for site in sites):
            return json.loads(done.stdout)


async def seen_by(node: Operations, site: str) -> DiscoverView:
    """What a running node tells, once it has seen this site."""
    while True:
        found = await node.discover(seconds=0.1)
        if site in [each.site for each in found.strangers]:
            return found


async def test_who_is_told_apart_and_why_depends_on_who_looks(tmp_path: Path) -> None:
    first, second = await pair_of_homes(tmp_path, [free_port(), free_port()])
    port, stranger = Home(first).port, site_key(3).site.hex()
    with Lan(2) as lan:
        for command in ("link add docker0 type bridge", "address add 172.17.0.1/16 dev docker0", "link set docker0 up"):
            lan.configure(0, *command.split())
        launch(lan, 1, "announcer", who=3, members=[], name="evil\x1b[31m")
        node = Process(first, before=["ip", "netns", "exec", lan.namespace(0)])
        async with asyncio.timeout(PATIENCE_S), node as a:
            own = (await a.client.status()).site
            found, by_none, by_stranger = await asyncio.gather(
                seen_by(a.client, stranger),
                discover(lan, 1, second, stranger, f"10.47.0.1:{port}"),
                discover(lan, 1, tmp_path / "none", stranger, own),
            )
    assert {each.name: each.used for each in found.interfaces} == {"eth0": True, "docker0": False, "lo": False}
    (member,) = found.members  # it does not run
    assert (member.name, member.seen, member.linked) == ("b", (), False)
    assert member.dial.why
    assert {each.standing for each in found.strangers if each.site == stranger} == {"other-mesh"}
    (seen,) = by_none["members"]
    assert (seen["name"], seen["seen"][0]["standing"], seen["dial"]["state"]) == ("a", "verified", "no-node")
    assert not any("172.17" in address for address in seen["seen"][0]["addresses"])
    assert {each["standing"] for each in by_stranger["strangers"]} == {"unknown-site"}
    assert {each["site"] for each in by_stranger["strangers"]} == {own, stranger}
    assert not (tmp_path / "none").exists()


async def test_without_a_network_the_line_and_the_table_say_the_same(tmp_path: Path) -> None:
    """A pulled cable, an interface that is switched off and has no address left, and a name that is mistyped."""

    def eth0(found: Any) -> tuple[bool, str]:
        (one,) = [each for each in found["interfaces"] if each["name"] == "eth0"]
        return one["used"], one["reason"]

    home = tmp_path / "none"
    with Lan(1) as lan:
        assert eth0(await discover(lan, 0, home)) == (True, "")
        lan.cut(0)
        cut = await discover(lan, 0, home)
        lan.configure(0, "link", "set", "eth0", "down")
        lan.configure(0, "address", "flush", "dev", "eth0")
        down = await discover(lan, 0, home)
        lan.mend(0)
        lan.configure(0, "address", "add", "10.47.0.1/24", "dev", "eth0")
        lan.configure(0, "link", "set", "eth0", "up")
        home.mkdir()
        (home / "config.toml").write_text('allow_interfaces = ["nosuch"]\n')
        misnamed = await discover(lan, 0, home)
    for found in (cut, down):
        assert eth0(found) == (False, OFF_LINE)
        assert found["discovery"] == found["deaf"] == NO_NETWORK
    assert misnamed["deaf"] == misnamed["discovery"]
    assert misnamed["discovery"].startswith(
        "no interface is called nosuch, as allow_interfaces has it (there are: eth0"
    )
