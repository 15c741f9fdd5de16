"""Two sides of a comparison in one process: sets at hand, or engines on real databases (profile §15)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from meshnode.engine import compare_told
from meshnode.engine.compare_scan import Scan
from meshnode.engine.compare_side import Side
from meshnode.model import comparison as words
from meshnode.model.comparison import (
    Agreement,
    EventName,
    Range,
    TableTold,
    TableTotals,
    Total,
    agree,
    paired,
)
from meshnode.model.delivery import PATH
from meshnode.model.frames import CompareAsk, CompareTell, encode_frame
from meshnode.model.frames_untrusted import decode_control_untrusted
from meshnode.model.range_tree import RangeTree, leaf_of, leaves_of
from meshnode.model.scope import Scope
from meshnode.sync.comparing import Ask, Narrowing
from meshnode.sync.diverging import Divergence, divergence
from support.engines import Bench

NONCES = (b"n" * 16, b"m" * 16)
FEATURE = frozenset({"verify"})


class SetSide:
    """A side that has some events and nothing else; names are made of the items."""

    def __init__(self, items: Iterable[bytes]) -> None:
        self.items = sorted(items)
        self.tree = RangeTree.of(self.items)

    def answer(self, ask: Ask) -> tuple[Any, ...]:
        """What it says."""
        match ask.what:
            case words.TABLES:
                empty = Total(0, bytes(words.ITEM_BYTES))
                total = self.tree.total(Range(words.EVENTS, 0, 0))
                return tuple(TableTotals((total, empty, empty), 0, 0) for _ in ask.of)
            case words.RANGES:
                return tuple(self.tree.children(each) for each in ask.of)
            case words.ITEMS:
                return tuple(self._listed(each) for each in ask.of)
            case words.NAMES:
                return tuple(_name(each) for each in ask.of)
        return tuple(words.UNEXPLAINED for _ in ask.of)

    def _listed(self, wanted: Range) -> bytes:
        leaves = leaves_of(wanted)
        return b"".join(item for item in self.items if leaf_of(item) in leaves)


def _name(item: bytes) -> EventName:
    return EventName(words.EVENTS, 0, b"s" * 16, 1, 0, item * 2, b"", (), words.DELIVERED)


class Exchanged:
    """What would have gone over a link."""

    def __init__(self) -> None:
        self.bytes = 0
        self.frames = 0

    def sent(self, ask: Ask, of: tuple[Any, ...], no: int) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        """One question and its answer, as the other side reads them."""
        frames = CompareAsk(bytes(8), no, ask.what, ask.of), CompareTell(bytes(8), no, ask.what, of)
        read = []
        for each in frames:
            data = encode_frame(each)
            self.bytes += len(data)
            self.frames += 1
            decoded = decode_control_untrusted(data, FEATURE)
            assert isinstance(decoded, CompareAsk | CompareTell)
            read.append(decoded.of)
        return read[0], read[1]


def narrowed(own: SetSide, theirs: SetSide) -> tuple[Narrowing, Exchanged]:
    """Both sets compared to the end."""
    narrowing, exchanged = Narrowing([0]), Exchanged()
    while (step := narrowing.step()) is not None:
        told: tuple[Any, ...] = ()
        if step.theirs.of:
            _, told = exchanged.sent(step.theirs, theirs.answer(step.theirs), narrowing.steps)
        narrowing.take(own.answer(step.own), told)
    return narrowing, exchanged


class BenchSide:
    """A side over an engine's database; `peer` is the site at the other end."""

    def __init__(self, bench: Bench, peer: bytes, offered: Scope | None = None) -> None:
        self.bench = bench
        self.peer = peer
        self.offered = offered or Scope()
        self.side: Side

    def tell(self, named: Sequence[tuple[str, str]] = ()) -> compare_told.ToldTables:
        """What it has."""
        told: compare_told.ToldTables = self.bench.read(lambda tx: compare_told.tell(tx, self.offered, named=named))
        return told

    def taken(self, theirs: Sequence[TableTold]) -> list[int]:
        """What it goes into."""
        taken: list[int] = self.bench.read(lambda tx: compare_told.taken(tx, self.offered, theirs))
        return taken

    def read(self, agreement: Agreement) -> None:
        """Read it all."""
        scan = self.bench.read(lambda tx: Scan(tx, agreement, lambda _items: None))
        self.side = Side(scan, self.peer, PATH, self.offered)

    def answer(self, ask: Ask) -> tuple[Any, ...]:
        """What it says."""
        if not ask.of:
            return ()
        of: tuple[Any, ...] = self.bench.read(
            lambda tx: self.side.answer_untrusted(tx, ask.what, ask.of, self.bench.membership)
        )
        return of


class Compared:
    """Two benches compared by the one that opens."""

    def __init__(self, own: Bench, other: Bench, offered: Scope | None = None) -> None:
        self.own = BenchSide(own, other.key.site, offered)
        self.other = BenchSide(other, own.key.site, offered)
        own_told = self.own.tell()
        theirs = self.other.tell([(each.schema, each.name) for each in own_told.tables])
        chosen = self.own.taken(theirs.tables)
        every = list(paired(own_told.tables, theirs.tables).values())
        self.pairs = [every[each] for each in chosen]
        self.agreement = agree(
            NONCES, (own_told.hlc, theirs.hlc), self.pairs, thinned=own_told.thinned or theirs.thinned
        )
        self.narrowing = Narrowing(range(len(self.pairs)))

    def begin(self) -> Compared:
        """Both sides read what they have."""
        self.own.read(self.agreement)
        self.other.read(self.agreement)
        return self

    def run(self) -> Divergence:
        """To the end."""
        exchanged = Exchanged()
        while (step := self.narrowing.step()) is not None:
            told: tuple[Any, ...] = ()
            if step.theirs.of:
                of, _ = exchanged.sent(step.theirs, (), self.narrowing.steps)
                answer = self.other.answer(Ask(step.theirs.what, of))
                _, told = exchanged.sent(step.theirs, answer, self.narrowing.steps)
            self.narrowing.take(self.own.answer(step.own), told)
        return divergence(self.narrowing, self.agreement)


def compared(own: Bench, other: Bench, offered: Scope | None = None) -> Divergence:
    """What differs between two, as the first sees it."""
    return Compared(own, other, offered).begin().run()
