"""Whom to dial and where to be found changes while a node runs, as the network hears it."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.lan import DEVICE, Lan, lan_available
from support.launch import launch
from support.nodes import TABLE, Process, changes_until, free_port, pair_of_homes

from meshnode.node.config import Config
from meshnode.node.configfile import change_settings

pytestmark = pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")


async def test_discovery_interfaces_and_peers_follow_the_settings(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    homes = await pair_of_homes(tmp_path, ports)
    change_settings(homes[0] / "config.toml", {"mdns_enabled": False})
    with Lan(2) as lan:
        ear = launch(lan, 1, "listener", interface=DEVICE, address=lan.address(1))
        inside = [["ip", "netns", "exec", lan.namespace(host)] for host in (0, 1)]
        b = Process(homes[1], "--no-mdns", "--port", str(ports[1]), before=inside[1])
        async with Process(homes[0], "--name", "a", "--port", str(ports[0]), before=inside[0]) as a, b:
            name = f"a-{(await a.client.status()).short}._meshnode._udp.local."

            def hears(wanted: str) -> None:
                """A packet of host 0 that gives or takes back this instance."""
                ear.until(lambda line: line.get("host") == lan.address(0) and name in line.get(wanted, ()))

            assert (await a.client.status()).discovery == "off"
            await a.client.set_config({"mdns_enabled": True})
            hears("given")
            await a.client.set_config({"deny_interfaces": [DEVICE]})
            hears("taken")
            await a.client.set_config({"deny_interfaces": []})
            hears("given")
            await a.client.set_config({"mdns_enabled": False})
            hears("taken")
            assert (await a.client.status()).discovery == "off"

            there = f"{lan.address(1)}:{ports[1]}"
            receipt = await a.client.set_config({"peers": [there]})
            assert (receipt.restart_required, (await a.client.status()).restart_required) == ((), [])
            await a.client.put(TABLE, {"id": "1"}, {"title": "over the link"})
            await changes_until(b.client, "1")
            await a.client.set_config({"peers": Config().peers})
            found = await a.client.discover(seconds=0)
            assert (found.peers, found.members[0].linked) == ((), True)
