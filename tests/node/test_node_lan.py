"""Three hosts on a LAN that were told no address: discovery, pairing, sync (profile §10, §11)."""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from support.lan import Lan, lan_available
from support.nodes import PATIENCE_S, TABLE, Process, add_notes, take

from meshnode.model.invite import parse_invite_untrusted
from meshnode.node.api import Operations

pytestmark = pytest.mark.skipif(not lan_available(), reason="needs root and iproute2 to make network namespaces")


def without_addresses(invite: str) -> str:
    """The invite as it would be without a word about where the inviter is."""
    return replace(parse_invite_untrusted(invite), addrs=()).text()


def join(lan: Lan, host: int, home: Path, invite: str) -> subprocess.Popen[str]:
    """`meshnode join -` in a host, the invite on its standard input."""
    command = [sys.executable, "-m", "meshnode", "--home", str(home), "join", "-", "--yes", "--name", home.name]
    program = lan.popen(host, command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    assert program.stdin is not None
    program.stdin.write(invite)
    program.stdin.close()
    return program


async def test_three_hosts_from_nothing_to_the_first_row(tmp_path: Path) -> None:
    homes = [tmp_path / name for name in ("one", "two", "three")]
    with Lan(3) as lan:
        nodes = [
            Process(home, "--name", home.name, before=["ip", "netns", "exec", lan.namespace(host)])
            for host, home in enumerate(homes)
        ]
        started = time.monotonic()
        async with nodes[0] as one:
            await add_notes(one.client)
            joining = [
                join(lan, host, homes[host], without_addresses((await one.client.invite(60_000)).invite))
                for host in (1, 2)
            ]
            assert [program.wait(PATIENCE_S) for program in joining] == [0, 0]
            async with nodes[1] as two, nodes[2] as three:
                await add_notes(two.client, three.client)
                await one.client.put(TABLE, {"id": "first"}, {"title": "row"})
                for node in (two, three):
                    (change,) = await take(node.client.changes(since=0), 1)
                    assert (change.key, change.columns) == ({"id": "first"}, {"title": "row"})
                seconds = time.monotonic() - started
                print(f"from nothing to the first row at two other hosts: {seconds:.2f} s")
                await _everybody_with_everybody([one.client, two.client, three.client])


async def _everybody_with_everybody(nodes: list[Operations]) -> None:
    """Also the two that met only by discovery are linked, and what they write reaches all."""
    for number, node in enumerate(nodes):
        await node.put(TABLE, {"id": f"by {number}"}, {"done": number})
    for node in nodes:
        assert (await node.wait(timeout_s=PATIENCE_S)).complete
    digests = [await node.digest() for node in nodes]
    assert digests[0] == digests[1] == digests[2]
    assert digests[0][0].rows == 1 + len(nodes)
    for node in nodes:
        status = await node.status()
        assert (status.discovery, [peer.linked for peer in status.peers]) == ("on", [True, True])
        assert all(peer.address is not None for peer in status.peers)
