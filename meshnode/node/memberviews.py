"""What a node shows of who belongs to the mesh, and of the records that say so (profile §9)."""

from __future__ import annotations

from collections.abc import Sequence

from meshnode.node.views import View


class MemberView(View, frozen=True, kw_only=True):
    """One device that is or was a member, this one included; those that let others in come first, seniors before."""

    site: str
    short: str
    name: str
    role: str  # authority, member or reader
    own: bool = False  # this very device
    seniority: int | None = None  # 1 is the most senior of the authorities; None of any other device
    by: str  # the name of who let it in
    by_site: str
    since_ms: int  # when that was, by the clock of who let it in
    retired: bool = False
    cutoff: tuple[int, int] | None = None  # what a retired one dated above it does not stand
    retired_by: str = ""
    linked: bool = False
    last_seen_ms: int | None = None
    address: str | None = None
    software: str = ""


class RecordView(View, frozen=True, kw_only=True):
    """A record that was signed here, counts, and is on its way to everybody."""

    record: str  # its id
    kind: str  # vouch, role or retirement
    site: str  # whom it is about
    short: str
    name: str
    by: str
    by_site: str
    issued: tuple[int, int]
    role: str = ""  # of a role
    cutoff: tuple[int, int] | None = None  # of a retirement
    lost: tuple[str, ...] = ()  # no members any more because of it: only the retired device had let them in


class LeaveView(View, frozen=True, kw_only=True):
    """This device has left the mesh."""

    site: str
    short: str
    name: str
    cutoff: tuple[int, int]
    untold: tuple[str, ...] = ()  # members that have not heard of it yet


def only_authority(views: Sequence[MemberView]) -> MemberView | None:
    """The one device that may let others in or retire them, where there is only one and somebody else is in."""
    standing = [view for view in views if view.seniority is not None]
    others = [view for view in views if not view.retired and view not in standing]
    return standing[0] if len(standing) == 1 and others else None
