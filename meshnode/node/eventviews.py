"""The retained log as people see it: which events are meant, and one view per event (SSP/1 §2)."""

from __future__ import annotations

from typing import Final

import msgspec

from meshnode.model.verdict import UNRESOLVED_KEY, Verdict
from meshnode.node.views import Values, View

EVENTS_PER_PAGE: Final = 500  # events that one call of `events` gives at most
VERDICTS: Final = (Verdict.APPLIED.value, Verdict.HELD.value, UNRESOLVED_KEY)


class EventQuery(View, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events are meant; None is any."""

    table: str | None = None
    site: str | None = None  # a site id, long or short, or a name
    since_ms: int | None = None  # by the event's own clock, both included
    until_ms: int | None = None
    verdict: str | None = None  # applied, held or unresolved-key
    bytes: bool = False  # the exact signed bytes too
    verify: bool = False  # check signature, id, canonical form, and the row's columns


class EventView(View, frozen=True, kw_only=True):
    """One retained event (SSP/1 §2)."""

    position: int  # in this node's log
    id: str
    site: str  # its author
    hlc: tuple[int, int]
    table: str
    key: Values | None = None
    op: str = ""  # upsert or delete
    columns: list[str] = msgspec.field(default_factory=list)
    size: int  # bytes
    verdict: str  # what became of it here: applied, held, or kept although its key resolved no more (profile §6)
    # Positions between the next older event shown and this one that were taken out on purpose, by the reason.
    removed: dict[str, int] = msgspec.field(default_factory=dict)
    bytes: str | msgspec.UnsetType = msgspec.UNSET  # hex
    fault: str = ""  # what is wrong with it


class EventPage(View, frozen=True, kw_only=True):
    """Some events in the order of the log, or against it, and where to go on."""

    events: list[EventView]
    position: int  # up to which, or down to which, the log was looked through
    more: bool
