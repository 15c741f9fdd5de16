"""The mesh as a living picture, the same as a table, how this node is, and requests for a sync."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from meshnode.control.web.live import Wake
from meshnode.control.web.picture import lag_of, members_of, pictures_of, standing_of, summary_of
from meshnode.control.web.site import Context, Fragment, Page, Query, Web, form_of, said
from meshnode.control.web.texts import asked, count, shown, span
from meshnode.node.views import LaggingView, Status

ROWS: Final = 256  # members in the table: as many as a mesh is made for
LINES: Final = 12  # of what needs attention; `meshnode status` has all
_WHY: Final = {
    "held": "events wait for a table that is not here",
    "rejected": "some were rejected and come again",
    "hole": "earlier ones may be missing",
    "missing": "a peer told of later ones",
}


@dataclass(frozen=True, slots=True)
class Attention:
    """Something that its owner should know of, or do."""

    kind: str  # bad, warn, info
    text: str


async def _mesh(web: Web, _query: Query) -> Context:
    status = settled(await web.looks.status())
    throughput = await web.looks.throughput()
    members = members_of(status)[:ROWS]
    attention = list(attention_of(status))
    return {
        "status": status,
        "summary": summary_of(status),
        "pictures": pictures_of(status, throughput.of),
        "members": [(peer, standing_of(peer), lag_of(peer), throughput.of(peer.short)) for peer in members],
        "retired": sum(peer.retired for peer in status.peers),
        "attention": attention[:LINES],
        "attention_more": max(len(attention) - LINES, 0),
    }


def settled(status: Status) -> Status:
    """A retired device has nothing to send and nothing to get."""
    if not status.retired:
        return status
    even = {"behind": 0, "ahead": 0, "groups_behind": 0, "groups_ahead": 0}
    peers = [msgspec.structs.replace(peer, **even) for peer in status.peers]
    return msgspec.structs.replace(status, peers=peers, lagging=[])


def attention_of(status: Status) -> Iterator[Attention]:
    """What stands still here, and why; the worst first."""
    if status.retired:
        yield Attention("bad", "This device is retired: nothing goes out or comes in any more. Its rows stay.")
    if status.moved:
        yield Attention("bad", status.moved)
    elif not status.publishing:
        yield Attention("bad", "Nothing is offered to others until its owner chose: see `meshnode identity --help`.")
    for peer in status.peers:
        if peer.stuck:
            yield Attention("bad", f"The stream to {shown(peer.name or peer.short, 40)} stands still: {peer.note}")
    for who in status.asking:
        yield Attention("warn", f"{shown(who.name or who.short, 40)} asks to be let in.")
    for warning in status.warnings:
        yield Attention("warn", warning)
    for table, why in status.unusable.items():
        yield Attention("warn", f"Table {shown(table)} takes no part as it stands: {why}")
    for table, waiting in status.waiting.items():
        waits = "waits" if waiting == 1 else "wait"
        yield Attention("warn", f"{count(waiting, 'event')} {waits} for table {shown(table)}, which is not here.")
    if not status.online:
        yield Attention("warn", "This node is cut off from others on purpose.")
    if status.discovery not in ("on", "off"):
        yield Attention("warn", f"Discovery: {status.discovery}")
    for group in status.lagging:
        yield Attention("info", _lagging_text(group))
    if status.restart_required:
        yield Attention("info", f"After the next start: {', '.join(status.restart_required)}.")


def _lagging_text(group: LaggingView) -> str:
    far = "" if group.gap_ms is None else f" by {span(group.gap_ms)}"
    told = f" ({shown(group.told_by, 40)})" if group.told_by else ""
    name = shown(group.name or group.site[:8], 40)
    return f"{shown(group.table)} of {name} is behind here{far}: {_WHY.get(group.reason, group.reason)}{told}."


def _routes(web: Web) -> Sequence[BaseRoute]:
    async def request_sync(request: Request) -> Response:
        form = await form_of(request)
        receipt = await web.operations.request_sync(form.get("peer") or None)
        text = asked("everything", len(receipt.asked), sum(each.linked for each in receipt.asked))
        back = "/doctor" if form.get("back") == "/doctor" else None
        return said(web, request, text, back=back)

    return [Route("/mesh/request-sync", request_sync, methods=["POST"])]


PAGE: Final = Page(
    "mesh",
    "Mesh",
    "m",
    path="/",
    fragments=(Fragment("mesh", frozenset({Wake.TICK}), _mesh),),
    routes=_routes,
)
