"""One side of a comparison once it was read: it answers questions, and sends again what the other has not got (§15)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from meshnode.engine.compare_names import Naming
from meshnode.engine.compare_scan import Place, Scan
from meshnode.engine.compare_told import Crossing
from meshnode.engine.context import Context
from meshnode.engine.outbox import stream_of
from meshnode.limits import COMPARED_BYTES
from meshnode.model import comparison as words
from meshnode.model.comparison import Name, Range, name_bytes
from meshnode.model.membership import Membership
from meshnode.model.range_tree import DEPTH, leaf_of
from meshnode.model.scope import Scope
from meshnode.store import reoffers
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream
from meshnode.store.names import SiteNumbers, TableNumbers

PLACES: Final = 65_536  # items whose places are remembered to be named: against a peer that lists everything

_NOWHERE: Final = -1  # the number of a peer that nothing is stored about


class Side:
    """Answers with what the store holds, over any snapshot; what moved since it was read shows as a difference."""

    def __init__(self, scan: Scan, peer: bytes, path: str, offered: Scope) -> None:
        self._scan = scan
        self._peer = peer
        self._path = path
        self._offered = offered
        self._places: dict[bytes, Place] = {}

    def answer_untrusted(self, tx: Tx, what: str, of: Sequence[Any], membership: Membership) -> tuple[Any, ...]:
        """The answers to one question but `again`; of what does not fit, the first entries."""
        match what:
            case words.TABLES:
                return self._scan.totals()
            case words.RANGES:
                return tuple(self._scan.children(each) for each in of)
            case words.ITEMS:
                return self._items(tx, of)
        naming = self._naming(tx, membership)
        if what == words.WHY:
            return tuple(naming.why_untrusted(each) for each in of)
        self._find(tx, of)
        return _fitting(naming, [self._places.get(each) for each in of])

    def positions(self, items: Sequence[bytes]) -> list[int]:
        """Where these events are, of those that were listed."""
        places = [self._places.get(each) for each in items]
        return [each.position for each in places if each is not None and each.set == words.EVENTS]

    def _items(self, tx: Tx, of: Sequence[Range]) -> tuple[bytes, ...]:
        lists = self._scan.items(tx, of)
        for found in lists:
            self._remember(found)
        return tuple(b"".join(found) for found in lists)

    def _remember(self, found: dict[bytes, Place]) -> None:
        if len(self._places) + len(found) > PLACES:
            self._places.clear()
        self._places.update(found)

    def _find(self, tx: Tx, items: Sequence[bytes]) -> None:
        """Look again for those whose places are not remembered any more."""
        known = {each: self._places[each] for each in items if each in self._places}
        leaves = sorted({leaf_of(each) for each in items if each not in known})
        ranges = [Range(set_no, DEPTH, leaf) for leaf in leaves for set_no in words.SETS]
        while ranges:
            lists = self._scan.items(tx, ranges)
            ranges = ranges[len(lists) :]
            known.update({item: found[item] for found in lists for item in items if item in found})
        self._remember(known)

    def _naming(self, tx: Tx, membership: Membership) -> Naming:
        stream = Stream(self._peer, SiteNumbers().find(tx, self._peer) or _NOWHERE, self._path)
        crossing, numbers = Crossing(tx, self._offered), TableNumbers()
        tables = self._scan.agreement.tables
        taken = [crossing.whole(numbers.entry(tx, each.schema, each.name)) for each in tables]
        return Naming(tx, self._scan.agreement, stream, membership, taken)


def _fitting(naming: Naming, places: Sequence[Place | None]) -> tuple[Name | None, ...]:
    names: list[Name | None] = []
    size = 0
    for place in places:
        name = None if place is None else naming.name(place)
        size += 1 if name is None else name_bytes(name)
        if names and size > COMPARED_BYTES:
            break
        names.append(name)
    return tuple(names)


def send_again(context: Context, peer: bytes, path: str, positions: Sequence[int]) -> int:
    """Put these events into the peer's re-offer set: they go out first, as far as the policy lets them."""
    with context.transaction() as tx:
        reoffers.add(tx, stream_of(context, tx, peer, path), reoffers.EVENT, positions, waiting=False)
    return len(positions)
