"""Concurrent writes of one cell, and deciding them: both values side by side, and a button for each of the two."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from meshnode.control.web.live import Wake
from meshnode.control.web.paging import part_of
from meshnode.control.web.site import Context, Fragment, Page, Query, Web, form_of, said
from meshnode.control.web.texts import shown
from meshnode.control.web.written import Written, key_of, values_of
from meshnode.errors import NotFoundError
from meshnode.node.api import CONFLICTS_PER_PAGE
from meshnode.node.conflict_views import ConflictReceipt, ConflictView, SideView
from meshnode.node.views import Status

CARDS: Final = 10  # conflicts on a page
PATH: Final = "/conflicts"
NAME: Final = 32  # characters of a device's name on a button
_UNDECIDED: Final = ("open", "acknowledged")  # what may be decided, or decided otherwise
_OUTCOMES: Final = {"ours": 0, "theirs": 1}


@dataclass(frozen=True, slots=True)
class SideCard:
    """One of the two writes."""

    site: str
    name: str
    here: bool  # this very device
    values: Sequence[Written]
    written_ms: int
    shows: bool
    usable: bool  # it can be preferred


@dataclass(frozen=True, slots=True)
class ConflictCard:
    """One conflict."""

    id: str
    table: str
    key: str
    column: str | None
    sides: Sequence[SideCard]
    certainty: str
    neither: bool
    status: str
    reason: str
    recorded_ms: int
    undecided: bool

    @property
    def what(self) -> str:
        """Which conflict it is, for a button's name."""
        column = "whether it exists" if self.column is None else f"column {shown(self.column, NAME)}"
        return f"{shown(self.table, NAME)}, row {shown(self.key, NAME)}, {column}"


async def _cards(web: Web, query: Query) -> Context:
    everything = query.get("show") == "all"
    table = query.get("table") or None
    missing = ""
    try:
        found = await web.operations.conflicts(table, everything=everything, limit=CONFLICTS_PER_PAGE)
    except NotFoundError as error:
        found, missing = [], str(error)
    kept = {name: text for name, text in (("show", "all" if everything else ""), ("table", table or "")) if text}
    status = await web.looks.status()
    part = part_of(found, CARDS, PATH, {**kept, "page": query.get("page", "1")})
    return {
        "counts": status.conflicts,
        "cards": [card_of(each, status.site) for each in part.items],
        "part": part,
        "everything": everything,
        "table": table,
        "missing": missing,
        "cut": len(found) >= CONFLICTS_PER_PAGE,
    }


def card_of(conflict: ConflictView, own: str) -> ConflictCard:
    """What a card shows of it."""
    names = distinct_names(conflict.ours, conflict.theirs)
    views = list(zip((conflict.ours, conflict.theirs), names, ("ours", "theirs"), strict=True))
    sides = [
        SideCard(
            site=side.site,
            name=name,
            here=side.site == own,
            values=values_of(conflict, side),
            written_ms=side.hlc[0],
            shows=conflict.shown == which,
            usable=side.kept,
        )
        for side, name, which in views
    ]
    return ConflictCard(
        id=conflict.id,
        table=conflict.table,
        key=key_of(conflict),
        column=conflict.column,
        sides=sides,
        certainty=certainty_of(conflict.certainty, *names),
        neither=conflict.shown not in _OUTCOMES,
        status=conflict.status,
        reason=reason_of(conflict.reason, {side.site: name for side, name, _ in views}),
        recorded_ms=conflict.recorded_ms,
        undecided=conflict.status in _UNDECIDED,
    )


def distinct_names(*sides: SideView) -> list[str]:
    """What each side's button calls it: by name, and by its id too where that alone would not tell them apart."""
    names = [shown(side.name, NAME) or side.site[:8] for side in sides]
    if len(set(names)) == len(names):
        return names
    return [f"{name} {side.site[:8]}" for name, side in zip(names, sides, strict=True)]


def certainty_of(certainty: str, ours: str, theirs: str) -> str:
    """How sure it is that it is one."""
    if certainty == "certain":
        return "Certain: neither of the two had seen what the other wrote."
    return f"Possible: nothing tells whether {theirs} had seen what {ours} wrote."


def reason_of(reason: str, names: Mapping[str, str]) -> str:
    """Why it is over, as a sentence with the names that its card has."""
    for site, name in names.items():
        reason = re.sub(rf"\b{site[:8]}(?:{site[8:]})?\b", lambda _, name=name: name, reason)  # type: ignore[misc]
    return f"{reason[:1].upper()}{reason[1:].removesuffix('.')}." if reason else ""


def outcome(receipt: ConflictReceipt, name: str) -> str:
    """What deciding it did."""
    now = {"ours": "What this device wrote shows.", "theirs": "What the other device wrote shows."}
    shows = now.get(receipt.shown, "Something that was written since shows.")
    if receipt.preferred is None:
        return f"Conflict {receipt.id[:8]} is left as it is. {shows}"
    did = "showed already" if receipt.event is None else f"was written again, as event {receipt.event[:8]}, and shows"
    return f"Conflict {receipt.id[:8]} is decided: what {name} wrote {did}."


def _name_of(status: Status, site: str) -> str:
    known = {status.site: status.name} | {peer.site: peer.name for peer in status.peers}
    return shown(known.get(site, ""), NAME) or shown(site, 8)


def _routes(web: Web) -> Sequence[BaseRoute]:
    async def resolve(request: Request) -> Response:
        form = await form_of(request)
        site = form.get("site", "")
        receipt = await web.operations.resolve_conflict(form.get("id", ""), prefer=site)
        return _told(request, outcome(receipt, _name_of(await web.looks.status(), site)))

    async def leave(request: Request) -> Response:
        form = await form_of(request)
        return _told(request, outcome(await web.operations.acknowledge_conflict(form.get("id", "")), ""))

    def _told(request: Request, text: str) -> Response:
        web.looks.again()
        web.hub.wake(Wake.CONFLICTS)
        return said(web, request, text, back=PATH)

    return [Route(f"{PATH}/resolve", resolve, methods=["POST"]), Route(f"{PATH}/leave", leave, methods=["POST"])]


PAGE: Final = Page(
    "conflicts",
    "Conflicts",
    "c",
    path=PATH,
    fragments=(Fragment("conflicts", frozenset({Wake.CONFLICTS, Wake.COARSE}), _cards),),
    routes=_routes,
    count=lambda status: status.conflicts.certain + status.conflicts.possible,
    urgent=True,
)
