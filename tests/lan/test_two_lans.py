"""Two networks and a node on both: everybody gets everything, whatever addresses mean elsewhere (profile §11)."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.lan import Lan, lan_available
from support.lan_mesh import PORT, LanMesh, links_to, row_at
from support.nodes import TABLE, Process

pytestmark = pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")

LEFT, MIDDLE, RIGHT, OTHER = range(4)
FORWARD_S = 10.0  # far more than passing a row on takes, far less than the next cycle that would bring it anyway


async def everything_everywhere(nodes: list[Process]) -> None:
    """What each of them writes reaches all."""
    for number, node in enumerate(nodes):
        await node.client.put(TABLE, {"id": f"by {number}"}, {"done": number})
        for other in nodes:  # before anybody else writes, which would push it on
            await row_at(other.client, f"by {number}", seconds=FORWARD_S)
    digests = [await node.client.digest(TABLE) for node in nodes]
    assert all(digest == digests[0] for digest in digests)


async def address_of(node: Process, name: str) -> str | None:
    """Where the node has its link to a member."""
    return next(peer.address for peer in await node.client.peers() if peer.name == name)


async def test_two_lans_with_the_same_addresses_and_a_node_on_both(homes: list[Path], tmp_path: Path) -> None:
    """On the right LAN, whose hosts have addresses of the left one's network too, n3 has the very one that n1 tells."""
    with Lan(4, bridges=[[0], [0, 1], [1], [1]]) as lan:
        lan.configure(RIGHT, "address", "add", "10.47.0.99/24", "dev", "eth0")
        lan.configure(OTHER, "address", "add", f"{lan.address(MIDDLE)}/24", "dev", "eth0")
        async with LanMesh(lan, homes, tmp_path).running(LEFT, MIDDLE, RIGHT, OTHER) as nodes:
            left, middle, right, other = nodes
            await links_to(middle.client, "n0", "n2", "n3")
            await links_to(left.client, "n1")
            await links_to(right.client, "n1", "n3")
            await links_to(other.client, "n1", "n2")
            await everything_everywhere(nodes)
            assert await address_of(left, "n1") in (f"{lan.address(MIDDLE)}:{PORT}", _scoped(lan, LEFT, MIDDLE, "eth0"))
            for node in (right, other):
                assert f"10.47.0.2:{PORT}" != await address_of(node, "n1")


async def test_two_links_without_a_router_where_two_hosts_have_one_address(homes: list[Path], tmp_path: Path) -> None:
    """IPv6 link-local addresses and nothing else; the two outer hosts have the same, each on its own link."""
    same = "fe80::5"
    with Lan(3, bridges=[[0], [0, 1], [1]]) as lan:
        for host, device in ((LEFT, "eth0"), (MIDDLE, "eth0"), (MIDDLE, "eth1"), (RIGHT, "eth0")):
            lan.configure(host, "-4", "address", "flush", "dev", device)
        for host in (LEFT, RIGHT):
            lan.configure(host, "address", "flush", "dev", "eth0", "scope", "link")
            lan.configure(host, "address", "add", f"{same}/64", "dev", "eth0")
        async with LanMesh(lan, homes[:3], tmp_path).running(LEFT, MIDDLE, RIGHT) as nodes:
            left, middle, right = nodes
            await links_to(middle.client, "n0", "n2")
            await links_to(left.client, "n1")
            await links_to(right.client, "n1")
            await everything_everywhere(nodes)
            assert await address_of(middle, "n0") == f"[{same}%{lan.cable(MIDDLE, 'eth0').index}]:{PORT}"
            assert await address_of(middle, "n2") == f"[{same}%{lan.cable(MIDDLE, 'eth1').index}]:{PORT}"
            assert await address_of(left, "n1") == _scoped(lan, LEFT, MIDDLE, "eth0")
            assert await address_of(right, "n1") == _scoped(lan, RIGHT, MIDDLE, "eth1")


def _scoped(lan: Lan, host: int, other: int, device: str) -> str:
    """The other host's link-local address on that interface of its, as the host itself has to write it."""
    return f"[{lan.link_local(other, device)}%{lan.cable(host).index}]:{PORT}"
