"""Who is in, as the members page says it: how each stands, what can be done here, and why it cannot (profile §9).

Pure. What is offered here is a help: whether a record counts, the node decides when it is asked to sign it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from meshnode.control.web.shell import State
from meshnode.control.web.texts import shown
from meshnode.node.memberviews import MemberView, only_authority

NAMED: Final = 3  # devices that a sentence names
ROLES_SAID: Final = {
    "authority": "lets others in, ranks and retires them; reads and writes",
    "member": "reads and writes",
    "reader": "receives everything, writes nothing",
}


def standing_of(member: MemberView) -> State:
    """How it is with one device now."""
    if member.retired:
        return State("idle", "retired")
    if member.own:
        return State("good", "this device")
    if member.linked:
        return State("good", "linked")
    if member.last_seen_ms is None:
        return State("warn", "let in, not seen yet")
    return State("idle", "not linked")


def rank_of(member: MemberView) -> str:
    """Where it stands among those that let others in."""
    if member.seniority is None:
        return ""
    return "most senior" if member.seniority == 1 else f"senior no. {member.seniority}"


def own_of(members: Sequence[MemberView]) -> MemberView | None:
    """This very device, None where it is no member."""
    return next((each for each in members if each.own), None)


def own_site(members: Sequence[MemberView]) -> str:
    """Its id, empty where it is no member."""
    own = own_of(members)
    return "" if own is None else own.site


def hindrance(members: Sequence[MemberView]) -> str:
    """Why nobody can be let in, ranked or retired on this device, and where that can be done; empty where it can."""
    own = own_of(members)
    if own is not None and own.seniority is not None:
        return ""
    if own is None:
        why = "This device is no member of the mesh any more: what it signs counts nowhere."
    elif own.retired:
        why = "This device was retired from the mesh: it can sign nothing."
    else:
        why = f"This device is a {own.role}: letting others in, roles and retiring are for authorities."
    able = [shown(each.name or each.short, 40) for each in members if each.seniority is not None]
    if not able:
        return f"{why} No device is one: `meshnode role SITE authority --recovery FILE` makes one."
    more = f" and {len(able) - NAMED} more" if len(able) > NAMED else ""
    return f"{why} Do it on {', '.join(able[:NAMED])}{more}."


def untouchable(member: MemberView, members: Sequence[MemberView]) -> str:
    """Why nothing can be changed about this member on this device; empty where something can."""
    own = own_of(members)
    if own is None or own.seniority is None:
        return hindrance(members)
    if member.retired:
        return "A retired device stays retired: it can come back as a new one, by a new invite."
    if member.own:
        return "This is the device that you look at: it leaves the mesh by `meshnode leave`."
    if member.seniority is not None and member.seniority < own.seniority:
        return "It is senior to this device, and nothing that a junior signs touches a senior."
    return ""


def lonely(members: Sequence[MemberView]) -> bool:
    """Whether this device alone can let others in, and could make another one able to."""
    only = only_authority(members)
    return only is not None and only.own


def called(members: Sequence[MemberView], site: str) -> MemberView | None:
    """The one with this id."""
    return next((each for each in members if each.site == site), None)
