"""What a comparison found, put down to rows and told apart: horizon, policy, schema, on its way, fault (§15). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from meshnode.model import comparison as words
from meshnode.model.comparison import Agreement, EventName, RowName, TableTold
from meshnode.sync.comparing import Found, Narrowing


class Kind(IntEnum):
    """Why two sides differ in something, from the least to the worst."""

    POLICY = 1  # a side does not take it, or not any more: class, scope, the standing of its author
    HORIZON = 2  # a side does not keep it: below its horizon, compacted, forgotten
    SCHEMA = 3  # the table is another on either side
    PENDING = 4  # it is still on its way
    FAULT = 5  # it should be there and is not, or rows differ that the same events made

    @property
    def text(self) -> str:
        """Its name."""
        return self.name.lower()


_BY_CODE: Final = {
    words.HORIZON: Kind.HORIZON,
    words.POLICY: Kind.POLICY,
    words.SCHEMA: Kind.SCHEMA,
    words.WAITED_FOR: Kind.PENDING,
}


@dataclass(slots=True)
class Difference:
    """One row in which two sides differ, or events whose row nobody can tell."""

    table: int
    key: bytes
    kind: Kind = Kind.POLICY
    what: str = ""
    ours: list[EventName] = field(default_factory=list)  # events that only this side has
    theirs: list[EventName] = field(default_factory=list)  # events that only the other side has

    def worsen(self, kind: Kind, what: str) -> None:
        """Something more was found in the row; the worst of it names it."""
        if kind > self.kind or not self.what:
            self.kind, self.what = kind, what


@dataclass(slots=True)
class Divergence:
    """All of it."""

    differences: list[Difference] = field(default_factory=list)  # the worst first
    moved: int = 0  # items that were gone before they could be named
    missing: tuple[list[bytes], list[bytes]] = field(default_factory=lambda: ([], []))
    """Items of events that are missing for no reason: those that only this side has, those that only the other has."""


def divergence(narrowed: Narrowing, agreement: Agreement) -> Divergence:
    """What was narrowed down, by rows."""
    found = Divergence()
    rows: dict[tuple[int, bytes], Difference] = {}
    for side, ours in ((narrowed.ours, True), (narrowed.theirs, False)):
        for item in side.items:
            name = side.names.get(item)
            if name is None:
                found.moved += 1
            elif isinstance(name, EventName) and name.table < len(agreement.tables):
                row = rows.setdefault((name.table, name.key), Difference(name.table, name.key))
                kind = _add_event(row, name, side.why.get(item, words.UNEXPLAINED), ours=ours)
                if kind is Kind.FAULT and name.state != words.DAMAGED:
                    found.missing[0 if ours else 1].append(item)
    _add_rows(rows, narrowed, agreement)
    found.differences = sorted(rows.values(), key=lambda each: (-each.kind, each.table, each.key))
    return found


def _add_event(row: Difference, name: EventName, code: int, *, ours: bool) -> Kind:
    (row.ours if ours else row.theirs).append(name)
    where = "here" if ours else "there"
    if name.state == words.DAMAGED:
        kind, what = Kind.FAULT, f"the bytes of an event cannot be read {where}"
    elif code != words.UNEXPLAINED:
        kind, what = _BY_CODE[code], f"an event is only {where}: {_excuse(code, 'there' if ours else 'here')}"
    elif name.state == words.PENDING:
        kind, what = Kind.PENDING, f"an event is only {where}, still on its way"
    else:
        kind, what = Kind.FAULT, f"an event is only {where}"
    row.worsen(kind, what)
    return kind


def _excuse(code: int, where: str) -> str:
    return {
        words.HORIZON: f"it is not kept {where}",
        words.POLICY: f"it is not taken {where}",
        words.SCHEMA: f"it names no row of the table {where}",
        words.WAITED_FOR: f"it is waited for {where}",
    }[code]


def _add_rows(rows: dict[tuple[int, bytes], Difference], narrowed: Narrowing, agreement: Agreement) -> None:
    ours, theirs = _rows_of(narrowed.ours), _rows_of(narrowed.theirs)
    for at in sorted(ours.keys() | theirs.keys()):
        if at in rows or at[0] >= len(agreement.tables):
            continue  # other events make another row
        one, other = ours.get(at), theirs.get(at)
        kind, what = _row_kind(one and one[0], other and other[0], [each[1] for each in (one, other) if each])
        row = rows[at] = Difference(*at)
        row.worsen(kind, what)


def _rows_of(side: Found) -> dict[tuple[int, bytes], tuple[RowName, int]]:
    found = {}
    for item in side.items:
        name = side.names.get(item)
        if isinstance(name, RowName):
            found[name.table, name.key] = (name, side.why.get(item, words.UNEXPLAINED))
    return found


def _row_kind(one: RowName | None, other: RowName | None, codes: Iterable[int]) -> tuple[Kind, str]:
    named = [each for each in (one, other) if each is not None]
    excuses = [_BY_CODE[code] for code in codes if code != words.UNEXPLAINED]
    if excuses:
        return max(excuses), f"the rows differ, by what is {_word(max(excuses))}"
    if any(each.set == words.FROZEN for each in named):
        return Kind.HORIZON, "the rows differ, and reach below a horizon"
    if one is None or other is None:
        return Kind.FAULT, f"the row is only {'here' if other is None else 'there'}, and nothing says why"
    if one.clocks != other.clocks:
        return Kind.FAULT, "the rows have other clocks, though the events are the same"
    states = {one.state, other.state}
    if words.MISSING in states:
        where = "here" if one.state == words.MISSING else "there"
        return Kind.FAULT, f"the row is missing from its table {where}"
    if words.WITHHELD in states:
        where = "here" if one.state == words.WITHHELD else "there"
        return Kind.SCHEMA, f"the row is withheld {where}: constraints of the table differ"
    return Kind.FAULT, "the rows hold other values, though events and clocks are the same"


def _word(kind: Kind) -> str:
    return {Kind.POLICY: "not taken", Kind.HORIZON: "not kept", Kind.SCHEMA: "no such table"}.get(kind, "on its way")


def schema_note(own: TableTold, theirs: TableTold) -> str:
    """How a table is another on either side, empty where it is the same."""
    if not own.key and not theirs.key:
        return "no table on either side"
    if not own.key or not theirs.key:
        return f"no table {'there' if own.key else 'here'}"
    if own.key != theirs.key:
        return "another primary key there"
    one, other = dict(own.columns), dict(theirs.columns)
    parts = [
        _columns("only here", one.keys() - other.keys()),
        _columns("only there", other.keys() - one.keys()),
        _columns("of another type there", {each for each in one.keys() & other.keys() if one[each] != other[each]}),
    ]
    return "; ".join(filter(None, parts))


_NAMED_COLUMNS: Final = 8


def _columns(where: str, names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _NAMED_COLUMNS} more" if len(ordered) > _NAMED_COLUMNS else ""
    return f"{where}: {', '.join(ordered[:_NAMED_COLUMNS])}{more}" if ordered else ""
