"""Asking a node who is around it: members and strangers apart, and why each is dialed or is not (profile §11)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from meshnode.model.member import Member
from meshnode.model.site import short_text, site_text
from meshnode.net.addresses import Address
from meshnode.net.interfaces import ALLOW, DENY, OFF_LINE
from meshnode.net.seen import Seen, Standing
from meshnode.node.dialreason import Dialing, DialReason
from meshnode.node.discoverviews import (
    AnnouncementView,
    DialView,
    DiscoverView,
    FoundMemberView,
    InterfaceView,
    PassedOverView,
    PeerAddressView,
)
from meshnode.node.peering import Heard, Mesh
from meshnode.node.stored import Stored
from meshnode.store import meta
from meshnode.store.database import Tx

if TYPE_CHECKING:  # mDNS is of no use to most verbs
    from meshnode.net.interfaces import Interface
    from meshnode.node.config import Config
    from meshnode.node.surroundings import Surroundings

_SETTLED = frozenset({Dialing.LINKED, Dialing.OWN})  # what went wrong before is of no interest
OFF = "off"
IN_NO_MESH = "this device is in no mesh yet, so that nothing in it can be checked"
SERVICE = "._meshnode._udp.local."
NO_NODE = "no node runs here: start it with `meshnode up`"
CUT_OFF = "this node is cut off from others on purpose"
RETIRED = "it is retired, and nobody dials it"


class Discovering(Stored):
    """`discover` over a node's storage; the running node refines who looks around."""

    async def discover(self, *, seconds: float) -> DiscoverView:
        """Who is in sight after so many seconds; nothing is announced or dialed for it."""
        around, nobody = await self._look_around(seconds)
        heard = self._heard()  # of the event loop
        return await self.storage.read(lambda tx: discover_view(around, self._mesh(tx, heard), nobody))

    async def _look_around(self, seconds: float) -> tuple[Surroundings, str]:
        """What is around, and why nobody is dialed at all, if so: without a running node, this process looks."""
        from meshnode.node.surroundings import MeshKeys, look_around

        def read(tx: Tx) -> MeshKeys:
            own, membership = meta.read_bytes(tx, meta.SITE), self._membership(tx)
            return MeshKeys(meta.read_bytes(tx, meta.MESH_ID), own, membership.key_of)

        return await look_around(self.home.config, seconds, await self.storage.read(read)), NO_NODE


async def strangers_around(config: Config, seconds: float) -> DiscoverView:
    """Who is in sight of a device without a node: strangers, all of them."""
    from meshnode.node.surroundings import look_around

    return discover_view(await look_around(config, seconds), None, NO_NODE)


def discover_view(around: Surroundings, mesh: Mesh | None, nobody: str) -> DiscoverView:
    """`nobody` says why nobody is dialed at all, if so."""
    members = [] if mesh is None else mesh.others()
    proven: dict[bytes, list[AnnouncementView]] = {member.site: [] for member in members}
    strangers: list[AnnouncementView] = []
    own: list[AnnouncementView] = []
    for seen in around.seen:
        theirs = proven.get(seen.site or b"") if seen.standing is Standing.VERIFIED else None
        others = own if seen.standing is Standing.OWN else strangers
        if mesh is None and seen.standing is Standing.UNKNOWN_SITE:
            seen = replace(seen, reason=IN_NO_MESH)
        (others if theirs is None else theirs).append(_announcement(seen))
    return DiscoverView(
        running=nobody != NO_NODE,
        discovery=around.discovery,
        interfaces=tuple(_interfaces(around)),
        members=tuple(_member(mesh, each, proven[each.site], around, nobody) for each in members if mesh is not None),
        peers=tuple(_peer(name, around, nobody) for name in around.dialing if isinstance(name, Address)),
        strangers=tuple(strangers),
        own=tuple(own),
        deaf=around.deaf,
        notes=tuple(note for note in map(around.selection.misnamed, (ALLOW, DENY)) if note not in around.discovery),
    )


def _interfaces(around: Surroundings) -> list[InterfaceView]:
    reasons = {interface.name: _unused(interface, around) for interface in around.selection.every}
    return [
        InterfaceView(
            name=interface.name,
            used=not reasons[interface.name],
            reason=reasons[interface.name],
            up=interface.up,
            addresses=tuple(address.ip.compressed for address in interface.addresses),
        )
        for interface in around.selection.every
    ]


def _unused(interface: Interface, around: Surroundings) -> str:
    """Why mDNS does not use an interface, nothing where it does: the table says no other thing than the line above."""
    skipped, name = dict(around.selection.skipped), interface.name
    if name in skipped:
        return skipped[name]
    if not interface.up:
        return OFF_LINE
    if name in around.listening:
        return ""
    if not around.listening:
        return "mDNS is off" if around.discovery == OFF else "mDNS does not use it at the moment"
    for sentence in around.refused:
        if sentence.startswith((f"{name}: ", f"{name} (")):
            return f"it cannot multicast: {sentence}"
    return "loopback, and there are others" if interface.loopback else "more interfaces than mDNS uses at a time"


def _announcement(seen: Seen) -> AnnouncementView:
    return AnnouncementView(
        instance=seen.instance.removesuffix(SERVICE),
        standing=seen.standing.value,
        reason=seen.reason,
        site="" if seen.site is None else site_text(seen.site),
        short="" if seen.site is None else short_text(seen.site),
        mesh_tag="" if seen.tag is None else seen.tag.hex(),
        addresses=tuple(Address(host, seen.port).text() for host in seen.addresses),
    )


def _member(
    mesh: Mesh, member: Member, seen: list[AnnouncementView], around: Surroundings, nobody: str
) -> FoundMemberView:
    heard = mesh.heard.get(member.site, Heard())
    retired = member.cutoff is not None
    reason = around.dialing.get(member.site, DialReason(Dialing.NO_TARGET))
    against = RETIRED if retired and reason.state is not Dialing.LINKED else nobody
    return FoundMemberView(
        site=site_text(member.site),
        short=short_text(member.site),
        name=mesh.name_of(member.site),
        retired=retired,
        linked=heard.linked,
        seen=tuple(seen),
        dial=_dial(reason, against, heard),
    )


def _peer(address: Address, around: Surroundings, nobody: str) -> PeerAddressView:
    site = around.owners.get(address)
    return PeerAddressView(
        address=address.text(),
        site="" if site is None else site_text(site),
        short="" if site is None else short_text(site),
        dial=_dial(around.dialing[address], nobody, Heard()),
    )


def _dial(reason: DialReason, against: str, heard: Heard) -> DialView:
    if against:
        state = "retired" if against == RETIRED else "cut-off" if against == CUT_OFF else "no-node"
        return DialView(state=state, why=against)
    waits = reason.state in (Dialing.WAITING, Dialing.YIELDING)
    return DialView(
        state=reason.state.value,
        why=dial_words(reason, heard),
        in_s=round(reason.in_s, 1) if waits else None,
        failures=reason.failures,
        error=reason.error,
        addresses=tuple(address.text() for address in reason.addresses),
        passed_over=tuple(
            PassedOverView(address=address.text(), site=site_text(site), short=short_text(site))
            for address, site in reason.elsewhere
        ),
    )


def dial_words(reason: DialReason, heard: Heard) -> str:
    """The reason as a sentence."""
    words = [_WORDS[reason.state](reason, heard)]
    if reason.failures and reason.state not in _SETTLED:
        words.append(f"{_counted(reason.failures, 'failure', 'failures')} so far")
    if reason.error and reason.state not in _SETTLED:
        words.append(f"the last: {reason.error}")
    for address, site in reason.elsewhere:
        words.append(f"{address.text()} was passed over, {short_text(site)} answers there")
    return "; ".join(words)


def _counted(number: int, one: str, several: str) -> str:
    return f"{number} {one if number == 1 else several}"


def _linked(reason: DialReason, heard: Heard) -> str:
    if heard.address is None:
        return "linked"
    by = "" if heard.opened_by_us else ", which dialed this node"
    others = "" if heard.address in {address.text() for address in reason.addresses} else "; its others are not needed"
    return f"linked at {heard.address}{by}{others if reason.addresses else ''}"


_WORDS: Mapping[Dialing, Callable[[DialReason, Heard], str]] = {
    Dialing.LINKED: _linked,
    Dialing.DIALING: lambda reason, _: (
        f"is being dialed now, at {_counted(len(reason.addresses), 'address', 'addresses')}"
    ),
    Dialing.WAITING: lambda reason, _: f"the next attempt is in {math.ceil(reason.in_s)} s",
    Dialing.YIELDING: lambda reason, _: f"the smaller site dials first: for {reason.in_s:.1f} s more",
    Dialing.QUEUED: lambda _reason, _heard: "its turn has come, after the attempts that are under way",
    Dialing.NO_ADDRESS: lambda _reason, _heard: "no address is known: it is not seen here, and none worked before",
    Dialing.NO_PLACE: lambda _reason, _heard: (
        "this node has as many links as it may (max_links), and dials it when a place is free"
    ),
    Dialing.DOUBLED: lambda _reason, _heard: "one of its addresses is being dialed already",
    Dialing.OWN: lambda _reason, _heard: "this very node: remove it from peers, or leave it, it does no harm",
    Dialing.NO_TARGET: lambda _reason, _heard: "it is not dialed yet: it was let in just now",
}
