"""How far behind whom, per authoring site and table: our watermarks against what peers told (SSP/1 §14.2).

Pure. Fail-closed: a group that a peer told nothing of is behind there by all of it, and never up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from heapq import nsmallest
from typing import Final, NamedTuple

from meshnode.model.delivery import GroupName, Told
from meshnode.model.hlc import ZERO, Hlc
from meshnode.model.site import site_text
from meshnode.node.views import GroupView, LaggingView, table_text
from meshnode.store.backlog import Allows
from meshnode.store.lagging import Lagging

GROUPS_SHOWN: Final = 100  # of this node, and of one peer half of it on each side: the largest gaps
BEHIND: Final = "behind"
AHEAD: Final = "ahead"
MISSING: Final = "missing"  # a peer told of later events, and they are not here

_Names = Callable[[bytes], str]


class Difference(NamedTuple):
    """One group in which a peer and this node differ."""

    group: GroupName
    side: str  # of the peer
    applied: Hlc | None
    told: Told | None

    @property
    def gap_ms(self) -> int | None:
        """Between the physical clocks; None where one side has nothing."""
        if self.applied is None or self.told is None:
            return None
        return abs(self.applied.physical - self.told.hlc.physical)


@dataclass(frozen=True, slots=True)
class PeerGroups:
    """What a peer is behind in, and what it is ahead in."""

    behind: int = 0
    ahead: int = 0
    told_ms: int | None = None  # when it last told anything
    shown: tuple[GroupView, ...] = ()


def peer_groups(
    applied: Mapping[GroupName, Hlc], told: Mapping[GroupName, Told], wants: Allows, name_of: _Names
) -> PeerGroups:
    """A peer against this node, within what it wants; `applied` are our watermarks."""
    behind, ahead = list(_behind(applied, told, wants)), list(_ahead(applied, told))
    largest = [each for side in (behind, ahead) for each in nsmallest(GROUPS_SHOWN // 2, side, _order)]
    return PeerGroups(
        behind=len(behind),
        ahead=len(ahead),
        told_ms=max((each.told_ms for each in told.values()), default=None),
        shown=tuple(_group_view(each, name_of) for each in sorted(largest, key=_order)),
    )


def lagging_views(
    here: Iterable[Lagging],
    applied: Mapping[GroupName, Hlc],
    told: Mapping[bytes, Mapping[GroupName, Told]],
    name_of: _Names,
) -> list[LaggingView]:
    """This node against all that it knows of: what stopped here, then what peers told of; the largest gaps first."""
    views = {each.group: _lagging_view(each, name_of) for each in here}
    best: dict[GroupName, tuple[Hlc, bytes]] = {}
    for peer, words in told.items():
        for group, word in words.items():
            if word.hlc > applied.get(group, ZERO) and group not in views:
                best[group] = max(best.get(group, (ZERO, b"")), (word.hlc, peer))
    for group, (known, peer) in best.items():
        lagging = Lagging(group, applied.get(group, ZERO), known, MISSING)
        views[group] = _lagging_view(lagging, name_of, told_by=name_of(peer))
    return sorted(views.values(), key=lambda view: (*_largest_first(view.gap_ms), view.table, view.site))


def _behind(applied: Mapping[GroupName, Hlc], told: Mapping[GroupName, Told], wants: Allows) -> Iterable[Difference]:
    for group, hlc in applied.items():
        word = told.get(group)
        if (word is None or word.hlc < hlc) and wants(*group[1:]):
            yield Difference(group, BEHIND, hlc, word)


def _ahead(applied: Mapping[GroupName, Hlc], told: Mapping[GroupName, Told]) -> Iterable[Difference]:
    for group, word in told.items():
        ours = applied.get(group)
        if ours is None or ours < word.hlc:
            yield Difference(group, AHEAD, ours, word)


def _order(difference: Difference) -> tuple[int, int, GroupName]:
    return (*_largest_first(difference.gap_ms), difference.group)


def _largest_first(gap_ms: int | None) -> tuple[int, int]:
    return (0, 0) if gap_ms is None else (1, -gap_ms)


def _group_view(difference: Difference, name_of: _Names) -> GroupView:
    (site, schema, table), told = difference.group, difference.told
    return GroupView(
        site=site_text(site),
        name=name_of(site),
        table=table_text(schema, table),
        side=difference.side,
        applied=None if difference.applied is None else (*difference.applied,),
        told=None if told is None else (*told.hlc,),
        gap_ms=difference.gap_ms,
        told_ms=None if told is None else told.told_ms,
    )


def _lagging_view(lagging: Lagging, name_of: _Names, told_by: str = "") -> LaggingView:
    site, schema, table = lagging.group
    nothing = lagging.applied == ZERO
    return LaggingView(
        site=site_text(site),
        name=name_of(site),
        table=table_text(schema, table),
        reason=lagging.reason,
        applied=None if nothing else (*lagging.applied,),
        known=(*lagging.known,),
        gap_ms=None if nothing else max(lagging.known.physical - lagging.applied.physical, 0),
        events=lagging.events,
        told_by=told_by,
    )
