"""Who is in the mesh, and letting others in."""

from __future__ import annotations

from typing import Final

from meshnode.control.web import roster
from meshnode.control.web.live import Wake
from meshnode.control.web.pages import members_actions
from meshnode.control.web.site import Context, Fragment, Page, Query, Web
from meshnode.model.record import AUTHORITY, MEMBER, READER

ROWS: Final = 256  # members in the table: as many as a mesh is made for
QUESTIONS: Final = 12  # devices that ask at once; the others follow when these are answered
_TICK: Final = frozenset({Wake.TICK})
_ROLES: Final = (AUTHORITY, MEMBER, READER)


async def _asking(web: Web, _query: Query) -> Context:
    status = await web.looks.status()
    return {
        "asking": status.asking[:QUESTIONS],
        "asking_more": max(len(status.asking) - QUESTIONS, 0),
        "warnings": status.warnings,
        "lonely": roster.lonely(await web.looks.members()),
    }


async def _pairing(web: Web, _query: Query) -> Context:
    status, members = await web.looks.status(), await web.looks.members()
    invites = await web.invites.look(web.operations)
    here = {made.id for made, _ in invites}
    elsewhere = [each for each in await web.operations.invites() if each.id not in here]
    return {
        "hindrance": roster.hindrance(members),
        "invites": invites,
        "elsewhere": elsewhere[:QUESTIONS],
        "elsewhere_more": max(len(elsewhere) - QUESTIONS, 0),
        "near": await web.operations.nearby(),
        "ttls": members_actions.TTLS,
        "own_name": status.name,
    }


async def _device(web: Web, query: Query) -> Context:
    members = await web.looks.members()
    device = roster.called(members, query.get("device", ""))
    return {
        "device": device,
        "device_standing": None if device is None else roster.standing_of(device),
        "device_by_own": device is not None and roster.own_site(members) == device.by_site,
        "device_rank": "" if device is None else roster.rank_of(device),
        "untouchable": "" if device is None else roster.untouchable(device, members),
        "roles": [(role, roster.ROLES_SAID[role]) for role in _ROLES],
        "gone": "device" in query and device is None,
    }


async def _members(web: Web, query: Query) -> Context:
    members = await web.looks.members()
    rows = [(each, roster.standing_of(each), roster.rank_of(each)) for each in members[:ROWS]]
    return {
        "rows": rows,
        "rows_left": max(len(members) - ROWS, 0),
        "in_now": sum(not each.retired for each in members),
        "out_now": sum(each.retired for each in members),
        "able": not roster.hindrance(members),
        "chosen": query.get("device", ""),
    }


PAGE: Final = Page(
    "members",
    "Members",
    "d",
    fragments=(
        Fragment("asking", _TICK, _asking),
        Fragment("pairing", _TICK, _pairing),
        Fragment("device", _TICK, _device),
        Fragment("members", _TICK, _members),
    ),
    routes=members_actions.routes,
    count=lambda status: len(status.asking),
    urgent=True,
)
