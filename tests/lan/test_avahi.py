"""An avahi-daemon on the same host: it lists our service, and neither it nor what it publishes disturbs us (§11)."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.avahi import Avahi, Entry, avahi_available
from support.lan import Lan, lan_available
from support.lan_mesh import PORT, LanMesh, links_to, row_at
from support.nodes import TABLE

from meshnode.model.site import short_text
from meshnode.net.announcement import attestation_opener, parse_txt_untrusted
from meshnode.node.home import Home

pytestmark = pytest.mark.skipif(
    not (lan_available() and avahi_available()), reason="needs root, iproute2, avahi-daemon, avahi-utils and dbus"
)

FIRST, SECOND = 0, 1  # avahi is there before the node of the first host, and after that of the second


def attested(entry: Entry, home: Home) -> bool:
    """Whether a listed service is this device's, whole: its TXT record opens, under its key and for its port."""
    with closing(sqlite3.connect(home.database_path)) as database:
        (mesh_id,) = database.execute("SELECT value FROM meshnode_meta WHERE name = 'mesh_id'").fetchone()
    key = home.site_key()
    announcement = parse_txt_untrusted(entry.name, entry.port, entry.properties, [entry.address])
    told = attestation_opener(mesh_id, {key.site: key.public_key}.get)(announcement.attestation)
    return (told.signer, told.port, announcement.site) == (key.site, PORT, key.site)


def instance_name(home: Home, name: str) -> str:
    return f"{name}-{short_text(home.site_key().site)}"


async def test_avahi_beside_us_in_both_starting_orders(homes: list[Path], tmp_path: Path) -> None:
    keepers = [Home.load(home) for home in homes[:2]]
    label = instance_name(keepers[FIRST], "n0")
    with Lan(2) as lan:
        mesh = LanMesh(lan, homes[:2], tmp_path)
        avahi = [Avahi(lan, host, tmp_path / f"avahi{host}") for host in (FIRST, SECOND)]
        starting = asyncio.create_task(asyncio.to_thread(avahi[FIRST].start))
        async with mesh.node(SECOND) as second:
            await asyncio.gather(starting, asyncio.to_thread(avahi[SECOND].start))
            await asyncio.gather(
                asyncio.to_thread(avahi[FIRST].publish, "A printer", "_ipp._tcp", 631, "rp=x"),
                asyncio.to_thread(avahi[FIRST].publish, "bogus", "_meshnode._udp", PORT, "v=1", "site=zz", "att=x"),
                # The very name that our service is about to ask for.
                asyncio.to_thread(avahi[SECOND].publish, label, "_meshnode._udp", 9, "v=0"),
            )
            async with mesh.node(FIRST) as first:
                await links_to(first.client, "n1")
                await links_to(second.client, "n0")
                await first.client.put(TABLE, {"id": "beside"}, {"done": 1})
                await row_at(second.client, "beside")
                for node in (first, second):
                    assert (await node.client.status()).discovery == "on"
                listed = await asyncio.gather(*(asyncio.to_thread(lists, each, lan, keepers) for each in avahi))
                assert listed == [{"bogus", label, f"{label}-2", instance_name(keepers[SECOND], "n1")}] * 2


def lists(avahi: Avahi, lan: Lan, keepers: list[Home]) -> set[str]:
    """What avahi lists of our kind of service: both nodes with their addresses, among the names that come back."""
    entries = avahi.browse("_meshnode._udp")
    for host, home in enumerate(keepers):
        found = [entry for entry in entries if entry.properties.get(b"site") == home.site_key().site.hex().encode()]
        assert "eth0" in {entry.interface for entry in found}, entries
        assert all(attested(entry, home) for entry in found)
        addresses = [avahi.resolve(found[0].host, family) for family in (4, 6)]
        assert addresses == [lan.address(host), lan.link_local(host)]
    return {entry.name for entry in entries}
