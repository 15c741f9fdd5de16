"""What `verify` tells of two members that were compared (profile §15)."""

from __future__ import annotations

from msgspec import Struct

from meshnode.node.views import Values


class VerifyProgress(Struct, frozen=True, kw_only=True):
    """How far a comparison is: `reading` this side's log and rows, `waiting`, `comparing`, `repairing`."""

    state: str
    items: int = 0  # events and rows read so far


class ComparedEvent(Struct, frozen=True, kw_only=True):
    """An event that one side alone has."""

    id: str
    site: str
    short: str
    hlc: tuple[int, int]
    where: str  # `here` or `there`
    columns: list[str] | None  # None: it deletes the row


class ComparedRowView(Struct, frozen=True, kw_only=True):
    """A row in which the two differ; `kind` is `fault`, `pending`, `schema`, `horizon` or `policy`."""

    table: str
    key: Values | None  # None where the bytes of its event cannot be read
    kind: str
    what: str
    events: list[ComparedEvent] = []
    events_more: int = 0


class ComparedTableView(Struct, frozen=True, kw_only=True):
    """One table, as either side has it."""

    table: str
    compared: bool
    equal: bool = False
    events_here: int = 0
    events_there: int = 0
    rows_here: int = 0
    rows_there: int = 0
    above_here: int = 0  # events that are later than what is compared
    above_there: int = 0
    below_here: int = 0  # events below the later horizon of the two
    below_there: int = 0
    kind: str = ""  # `schema`, `horizon` or `policy` where that explains what is not compared
    note: str = ""


class VerifyReport(Struct, frozen=True, kw_only=True):
    """Two members compared up to an HLC."""

    site: str
    short: str
    name: str
    up_to: tuple[int, int]
    equal: bool  # whatever was compared is the same
    fault: bool  # something differs that nothing explains
    counts: dict[str, int] = {}  # rows that differ, by kind
    rows: list[ComparedRowView] = []  # the worst first, bounded
    rows_more: int = 0
    unnamed: int = 0  # differences beyond what a comparison looks into, at least
    tables: list[ComparedTableView] = []
    tables_more: int = 0  # tables that did not fit
    exchanges: int = 0
    asked_again: int = 0  # events that a repair asked the peer for
    sent_again: int = 0  # events that a repair sent
    seconds: float = 0.0
