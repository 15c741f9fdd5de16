"""How far behind the peers and this node are, a line each (SSP/1 §14.2: what an operator sees of watermarks)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final

from meshnode.cli.output import printable
from meshnode.model.wording import counted_text
from meshnode.node.views import GroupView, LaggingView, PeerView, Status

_OWN_LINES: Final = 5  # of this node's groups; JSON has the others
_SPANS: Final = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"), (1, "ms"))
_WHY: Final = {
    "rejected": "events of it were rejected and will be offered again",
    "hole": "later events are here, and earlier ones may be missing",
}


def peer_lines(peers: Iterable[PeerView]) -> Iterator[str]:
    """A line for each peer that is behind, and one for each that this node is behind of."""
    for peer in peers:
        told = "" if peer.linked or peer.told_ms is None else f" (told {ago(peer.told_ms)})"
        if peer.groups_behind:
            most = _most(peer, "behind", "of which it told nothing")
            if peer.behind or peer.unconfirmed:
                yield f"{_label(peer)}: {_groups(peer.groups_behind)} behind{most}{told}"
            else:  # two figures of two things: what it acknowledged, and what it said that it applied
                missing = _most(peer, "behind", "of which it told nothing: is the table missing there?")
                groups = f"{_groups(peer.groups_behind)}{missing}{told}"
                yield f"{_label(peer)}: has all events, and did not yet say that it applied them in {groups}"
        if peer.groups_ahead:
            most = _most(peer, "ahead", "of which nothing is applied here")
            yield f"{_label(peer)}: {_groups(peer.groups_ahead)} ahead of this node{most}{told}"


def own_lines(status: Status) -> Iterator[str]:
    """Where this node's own watermarks stand below what it knows of, and why."""
    for view in status.lagging[:_OWN_LINES]:
        gap = "nothing applied" if view.gap_ms is None else f"{span(view.gap_ms)} behind"
        yield f"this node: {_group(view)}: {gap}, {_why(view)}"
    more = len(status.lagging[_OWN_LINES:]) + status.lagging_more
    if more:
        yield f"this node: {_groups(more)} more, `--output json` lists them"


def span(ms: int) -> str:
    """A length of time in the largest unit that fits it once."""
    for length, unit in _SPANS:
        if ms >= length:
            return f"{ms // length} {unit}"
    return "less than 1 ms"


def _most(peer: PeerView, side: str, nothing: str) -> str:
    """The largest gap on one side, as far as it is among those that are listed."""
    group = next((each for each in peer.groups if each.side == side), None)
    if group is None:
        return ""
    by = f", {nothing}" if group.gap_ms is None else f" by {span(group.gap_ms)}"
    return f", most: {_group(group)}{by}"


def _why(view: LaggingView) -> str:
    if view.reason == "held":
        return f"held until there is such a table: {counted_text(view.events, 'event')}"
    if view.reason == "missing":
        return f"{printable(view.told_by)} told of later events"
    return _WHY.get(view.reason, view.reason)


def _group(view: GroupView | LaggingView) -> str:
    return printable(f"{view.table} of {view.name or view.site[:8]}")


def _label(peer: PeerView) -> str:
    return printable(peer.name or peer.short)


def _groups(count: int) -> str:
    return counted_text(count, "group")


def ago(at_ms: int) -> str:
    """How long that is ago."""
    return f"{span(max(time.time_ns() // 1_000_000 - at_ms, 0))} ago"
