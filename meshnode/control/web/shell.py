"""What is around every page: the node's name and state, and the navigation with its counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshnode.control.web.picture import standing_of
from meshnode.control.web.site import Context, Page
from meshnode.node.views import Status


@dataclass(frozen=True, slots=True)
class State:
    """How the mesh is, in a word and a few."""

    kind: str  # good, warn, bad, idle
    text: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the navigation."""

    title: str
    url: str
    key: str
    current: bool
    count: int
    urgent: bool


def state_of(status: Status) -> State:
    """The most important thing first."""
    peers = [peer for peer in status.peers if not peer.retired]
    linked = sum(peer.linked for peer in peers)
    if status.retired:
        return State("bad", "this device is retired")
    if not status.publishing:
        return State("bad", "nothing is offered to others")
    if not status.online:
        return State("warn", "cut off on purpose")
    if any(peer.stuck for peer in peers):
        return State("bad", f"{linked} of {len(peers)} linked, a stream stands still")
    if not peers:
        return State("idle", "no other members yet")
    if linked == 0:
        return State("warn", f"none of {len(peers)} linked")
    linked_ones = f"{linked} of {len(peers)} linked"
    uneven = [standing_of(peer) for peer in peers if peer.linked and standing_of(peer).kind != "good"]
    if uneven:
        return State("warn", f"{linked_ones}, {uneven[0].text}")
    if linked < len(peers):
        return State("warn", linked_ones)
    return State("good", f"{linked_ones}, level")


def entries(pages: Sequence[Page], current: str, status: Status) -> list[Entry]:
    """The navigation as it is on the page `current`."""
    return [
        Entry(page.title, page.url, page.key, page.name == current, page.count(status), page.urgent) for page in pages
    ]


def shell_context(pages: Sequence[Page], current: str, status: Status, now_ms: int) -> Context:
    """What the shell and its two fragments need."""
    return {
        "status": status,
        "state": state_of(status),
        "entries": entries(pages, current, status),
        "current": current,
        "now_ms": now_ms,
    }
