"""`discover`: who is around a node, members and strangers apart, and why each is dialed or is not (profile §11)."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from support.nodes import free_port, linked, loopback, pair_of_homes, until

from meshnode import Home, Node
from meshnode.model.site import SiteKey
from meshnode.net.addresses import Address
from meshnode.net.interfaces import Selection
from meshnode.net.seen import Seen, Standing
from meshnode.node.dialreason import Dialing, DialReason
from meshnode.node.discovering import dial_words, discover_view, strangers_around
from meshnode.node.local import open_local
from meshnode.node.peering import Heard
from meshnode.node.surroundings import TOLD_OFF, Surroundings

HERE, THERE = Address("10.0.0.1", 4747), Address("fe80::1%2", 4747)
LINKED = Heard(linked=True, address="10.0.0.1:4747", opened_by_us=True)


@pytest.mark.parametrize(
    ("reason", "heard", "says"),
    [
        (DialReason(Dialing.LINKED, addresses=(HERE,)), LINKED, "linked at 10.0.0.1:4747"),
        (
            DialReason(Dialing.LINKED, failures=2, error="old", addresses=(THERE,)),
            Heard(linked=True, address="10.0.0.1:4747", opened_by_us=False),
            "linked at 10.0.0.1:4747, which dialed this node; its others are not needed",
        ),
        (DialReason(Dialing.LINKED), Heard(), "linked"),
        (DialReason(Dialing.DIALING, addresses=(HERE, THERE)), Heard(), "is being dialed now, at 2 addresses"),
        (DialReason(Dialing.DIALING, addresses=(HERE,)), Heard(), "is being dialed now, at 1 address"),
        (
            DialReason(Dialing.WAITING, 11.2, 2, "10.0.0.1:4747: no answer within 10 s", (HERE,)),
            Heard(),
            "the next attempt is in 12 s; 2 failures so far; the last: 10.0.0.1:4747: no answer within 10 s",
        ),
        (
            DialReason(Dialing.WAITING, 1.0, 1, "", (HERE, THERE), ((HERE, b"\xab" * 16),)),
            Heard(),
            "the next attempt is in 1 s; 1 failure so far; 10.0.0.1:4747 was passed over, abababab answers there",
        ),
        (DialReason(Dialing.YIELDING, 0.42), Heard(), "the smaller site dials first: for 0.4 s more"),
        (DialReason(Dialing.QUEUED), Heard(), "its turn has come, after the attempts that are under way"),
        (DialReason(Dialing.NO_ADDRESS), Heard(), "no address is known: it is not seen here, and none worked before"),
        (
            DialReason(Dialing.NO_PLACE),
            Heard(),
            "this node has as many links as it may (max_links), and dials it when a place is free",
        ),
        (DialReason(Dialing.DOUBLED), Heard(), "one of its addresses is being dialed already"),
        (
            DialReason(Dialing.OWN, error="10.0.0.1:4747: that address is this node itself"),
            Heard(),
            "this very node: remove it from peers, or leave it, it does no harm",
        ),
        (DialReason(Dialing.NO_TARGET), Heard(), "it is not dialed yet: it was let in just now"),
    ],
    ids=lambda value: value.state.value if isinstance(value, DialReason) else "",
)
def test_every_reason_is_a_sentence(reason: DialReason, heard: Heard, says: str) -> None:
    assert dial_words(reason, heard) == says


def test_without_a_node_everybody_is_a_stranger() -> None:
    seen = Seen(
        "desk-01.", Standing.UNKNOWN_SITE, "no member", b"\x01" * 16, b"\x02" * 8, 4747, ("10.0.0.1", "fe80::1%2")
    )
    found = discover_view(Surroundings("on", Selection(()), (seen,)), None, "nobody looks")
    assert (found.members, found.peers) == ((), ())
    (stranger,) = found.strangers
    assert stranger.reason.startswith("this device is in no mesh yet")
    assert (stranger.instance, stranger.short, stranger.mesh_tag) == ("desk-01.", "01" * 4, "02" * 8)
    assert stranger.addresses == ("10.0.0.1:4747", "[fe80::1%2]:4747")


async def test_a_running_node_explains_each_member_and_each_address_of_its_settings(tmp_path: Path) -> None:
    ports, dead = [free_port(), free_port()], free_port()
    first, second = await pair_of_homes(tmp_path, ports)
    async with Node(first, config=loopback(ports[1], dead, port=ports[0], name="a")) as a:
        async with Node(second, config=loopback(port=ports[1], name="b")) as b:
            await linked(a, b)
            site_of_b = (await b.status()).site

            async def owner_known() -> bool:
                return any(peer.site for peer in (await a.discover(seconds=0)).peers)

            await until(a, owner_known)
            found = await a.discover(seconds=0)
            (member,) = found.members
            assert (found.running, found.discovery, found.strangers) == (True, "off", ())
            assert found.deaf == (await a.status()).discovery_off == TOLD_OFF
            assert {each.reason for each in found.interfaces if each.up} == {"mDNS is off"}
            assert (member.name, member.linked, member.dial.state) == ("b", True, "linked")
            assert f"linked at 127.0.0.1:{ports[1]}" in member.dial.why
            by_address = {peer.address: peer for peer in found.peers}
            assert by_address[f"127.0.0.1:{ports[1]}"].site == site_of_b
            assert by_address[f"127.0.0.1:{dead}"].dial.state == "dialing"

        async def dialed_again() -> bool:
            (left,) = (await a.discover(seconds=0)).members
            states, at = ("waiting", "dialing", "doubled"), f"127.0.0.1:{ports[1]}"
            return not left.linked and left.dial.state in states and at in left.dial.addresses

        await until(a, dialed_again)
        await a.retire("b")
        (ended,) = (await a.discover(seconds=0)).members
        assert (ended.retired, ended.dial.state) == (True, "retired")
        await a.set_online(False)
        cut = await a.discover(seconds=0)
        assert (cut.running, cut.discovery) == (True, "this node is cut off from others on purpose")


async def test_where_no_node_runs_that_is_the_reason_and_mdns_that_is_off_stays_off(
    tmp_path: Path,
) -> None:
    home, _ = await pair_of_homes(tmp_path, [free_port(), free_port()])
    quiet = Home(home, msgspec.structs.replace(Home(home).config, mdns_enabled=False))
    async with open_local(quiet, writing=False) as local:
        found = await local.discover(seconds=60)
    (member,) = found.members
    assert (found.running, found.discovery, member.name, member.dial.state) == (False, "off", "b", "no-node")
    assert found.interfaces
    assert (await strangers_around(quiet.config, 60)).members == ()


async def test_an_address_at_which_another_member_answers_is_passed_over_and_named(tmp_path: Path) -> None:
    ports, away = [free_port(), free_port()], SiteKey.from_seed(bytes(32))
    first, second = await pair_of_homes(tmp_path, ports)
    async with Node(first, config=loopback(port=ports[0], name="a")) as a:
        await a.vouch(away.public_key.hex(), name="c")
    with closing(sqlite3.connect(first / "meshnode.db", isolation_level=None)) as database:
        database.execute("INSERT INTO meshnode_addresses VALUES (?, ?, 1)", (away.site, f"127.0.0.1:{ports[1]}"))
    async with (
        Node(second, config=loopback(port=ports[1], name="b")) as b,
        Node(first, config=loopback(port=ports[0], name="a")) as a,
    ):
        wanted = (f"127.0.0.1:{ports[1]}", (await b.status()).site)

        async def told() -> bool:
            (c,) = [each for each in (await a.discover(seconds=0)).members if each.name == "c"]
            return [(each.address, each.site) for each in c.dial.passed_over] == [wanted]

        await until(a, told)


async def test_an_address_of_the_node_itself_is_told_as_such_and_left_alone(tmp_path: Path) -> None:
    port = free_port()
    async with Node(tmp_path / "home", config=loopback(port, port=port, name="a")) as node:

        async def told() -> bool:
            (peer,) = (await node.discover(seconds=0)).peers
            return peer.dial.state == "own" and peer.dial.why.startswith("this very node")

        await until(node, told)
