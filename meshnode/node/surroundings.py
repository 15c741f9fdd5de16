"""What can be told of a node's surroundings at one moment, and looking around where no node runs (profile §11)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from meshnode.model.nearby import NO_MESH
from meshnode.model.site import mesh_tag
from meshnode.net.addresses import Address
from meshnode.net.announcement import attestation_opener
from meshnode.net.interfaces import Selection
from meshnode.net.mdns import Discovery
from meshnode.net.seen import Seen
from meshnode.node.config import Config
from meshnode.node.dialreason import DialReason
from meshnode.node.interfaces import guard_of, selection_of

OFF = "off"
MDNS_OFF = "mdns_enabled is false"
TOLD_OFF = "the node was started so, as --no-mdns does"
NO_TIME = "no time was given for it (--seconds 0)"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """One moment, as frozen values: any thread may read it."""

    discovery: str  # `on`, `off`, or why it is limited
    selection: Selection
    seen: tuple[Seen, ...] = ()
    deaf: str = ""  # why nobody out there could be heard, if so
    listening: frozenset[str] = frozenset()  # the interfaces of `selection` that are in use, by name
    refused: tuple[str, ...] = ()  # a sentence for each that was to be used and cannot be
    # By site, and by addresses that the operator gave; and who answered at those.
    dialing: Mapping[bytes | Address, DialReason] = field(default_factory=dict)
    owners: Mapping[Address, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MeshKeys:
    """Whose members are to be told from strangers."""

    mesh_id: bytes
    own_site: bytes
    key_of: Callable[[bytes], bytes | None]


STRANGER = MeshKeys(NO_MESH, b"", lambda _site: None)


def state_of(discovery: Discovery | None) -> str:
    """`on`, `off`, or why discovery is limited."""
    if discovery is None:
        return OFF
    state = discovery.state
    return state.reason or ("on" if state.working else "not working")


def around_of(discovery: Discovery, deaf: str = "") -> Surroundings:
    """What a discovery that runs sees at this moment."""
    return Surroundings(
        state_of(discovery),
        discovery.selection,
        tuple(discovery.seen()),
        deaf or discovery.deaf,
        discovery.listening,
        discovery.refused,
    )


async def look_around(config: Config, seconds: float, mesh: MeshKeys = STRANGER) -> Surroundings:
    """Browse for so long without announcing anything; nothing at all where the settings turn mDNS off."""
    if not config.mdns_enabled:
        return Surroundings(OFF, selection_of(config), deaf=MDNS_OFF)
    discovery = Discovery(
        None,
        open_attestation=attestation_opener(mesh.mesh_id, mesh.key_of),
        on_sighting=lambda _sighting: None,
        on_gone=lambda _site: None,
        on_notice=lambda _kind, _site, _text: None,
        random=random.random,
        scan=lambda: selection_of(config),
        guard=guard_of(config),
        own=None if mesh is STRANGER else (mesh.own_site, mesh_tag(mesh.mesh_id)),
    )
    discovery.start()
    try:
        await asyncio.sleep(seconds)
        return around_of(discovery, NO_TIME if seconds == 0 else "")
    finally:
        await discovery.stop()
