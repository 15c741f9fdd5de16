"""The mesh: clocks, links between members, and who may let others in (SSP/1 §5.1, profile §8, §9, §11)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meshnode.limits import CLOCK_OFFSET_NOTICE_MS, SKEW_MS
from meshnode.model.wording import counted_text
from meshnode.node.doctor.findings import failed, listed, or_passed, passed, time_of_day, warned
from meshnode.node.doctorviews import FindingView
from meshnode.node.memberviews import MemberView, only_authority
from meshnode.node.views import PeerView

FRESH_MS = 24 * 3_600_000  # milliseconds for which an offset that was told tells of clocks as they are


@dataclass(frozen=True, slots=True)
class ClockFacts:
    """Wall clocks of others against ours, as they said them at hello, and our own HLC against our wall clock."""

    now_ms: int
    hlc_ms: int
    peers: tuple[PeerView, ...] = ()


def judge_clock(facts: ClockFacts) -> list[FindingView]:
    """Whether others take what this device dates, and it takes what they date."""
    told = [
        peer
        for peer in facts.peers
        if peer.clock_offset_ms is not None and not peer.retired and facts.now_ms - (peer.last_seen_ms or 0) <= FRESH_MS
    ]
    findings = list(_offsets(told, facts.now_ms)) + list(_own_clock(facts, told))
    if not told:
        return or_passed("clock", findings, "nobody told the time in the last day, so there is nothing to compare")
    most = max(abs(peer.clock_offset_ms or 0) for peer in told)
    return or_passed(
        "clock", findings, f"at most {most / 1000:.0f} s off, by what {counted_text(len(told), 'other')} told"
    )


def _offsets(told: Sequence[PeerView], now_ms: int) -> Iterator[FindingView]:
    off = [peer for peer in told if abs(peer.clock_offset_ms or 0) >= CLOCK_OFFSET_NOTICE_MS]
    ours = len(off) == len(told) > 1 and len({(peer.clock_offset_ms or 0) > 0 for peer in off}) == 1
    for peer in off:
        offset = peer.clock_offset_ms or 0
        when = "is" if peer.linked else f"was, {(now_ms - (peer.last_seen_ms or 0)) // 60_000} min ago,"
        found = f"the clock of {peer.name} ({peer.short}) {when} {offset / 1000:+.0f} s off this device's"
        todo = "set this device's clock right: it is off everybody's" if ours else "set one of the two clocks right"
        if abs(offset) > SKEW_MS:
            ahead = "what it writes is refused here" if offset > 0 else "what this device writes is refused there"
            yield failed("clock", f"{found}: {ahead}", todo)
        else:
            yield warned("clock", found, f"{todo}, before what is written is refused at 300 s")


def _own_clock(facts: ClockFacts, told: Sequence[PeerView]) -> Iterator[FindingView]:
    ahead = facts.hlc_ms - facts.now_ms
    linked = [peer for peer in told if peer.linked]
    off = [peer for peer in linked if abs(peer.clock_offset_ms or 0) >= CLOCK_OFFSET_NOTICE_MS]
    if len(off) < len(linked) - len(off):  # most of those who tell the time now agree with it
        if ahead > SKEW_MS:
            found = f"this device's clock agrees with its peers', and what it wrote is dated {ahead / 1000:.0f} s ahead"
            todo = (
                "nothing is to be set: what it writes goes on from that date, and others take it from "
                f"{time_of_day(facts.hlc_ms - SKEW_MS)} on; until then they refuse it, and it is offered again"
            )
            yield warned("clock", found, todo)
    elif ahead >= CLOCK_OFFSET_NOTICE_MS:
        found = f"this device's clock is {ahead / 1000:.0f} s behind what was written already"
        todo = "set it right: it went back; where it is right now and was ahead before, a link to a member shows that"
        yield failed("clock", found, todo) if ahead > SKEW_MS else warned("clock", found, todo)


@dataclass(frozen=True, slots=True)
class Reach:
    """One other member, or one address of the settings, and why there is no link."""

    who: str
    linked: bool
    why: str


@dataclass(frozen=True, slots=True)
class LinkFacts:
    """How it is with every other member that is not retired."""

    running: bool
    online: bool = True
    members: tuple[Reach, ...] = ()
    peers: tuple[Reach, ...] = ()  # addresses that the settings name
    retired: bool = False  # this device: nobody links with it


def judge_links(facts: LinkFacts) -> list[FindingView]:
    """Who is not linked, and why: the plan of whom to dial says it."""
    if not facts.running:
        return passed("links", f"no node runs here, so none of {counted_text(len(facts.members), 'other')} is dialed")
    if not facts.online:
        return [warned("links", "this node is cut off from others on purpose", "let it talk again, or start it anew")]
    todo = "is it on, and in reach? see `interfaces` and `mdns`"
    if facts.retired:
        todo = "no member links with a device that was retired: see `membership`"
    findings = [
        warned("links", f"no link to {each.who}: {each.why}", todo)
        for each in (*facts.members, *facts.peers)
        if not each.linked
    ]
    if not facts.members and not findings:
        return passed("links", "no other member yet: `meshnode invite` lets one in")
    return or_passed("links", findings, f"linked to {counted_text(len(facts.members), 'other')}, to all")


@dataclass(frozen=True, slots=True)
class MembershipFacts:
    """Who is in, and who wants to be."""

    members: tuple[MemberView, ...] = ()
    expired_invites: int = 0  # that nobody used
    open_invites: int = 0
    asking: tuple[str, ...] = ()  # short ids of who waits for a yes


def judge_membership(facts: MembershipFacts) -> list[FindingView]:
    """Whether this device is in, and whether the mesh can still be managed."""
    own = next((member for member in facts.members if member.own), None)
    rest = [member for member in facts.members if not member.retired]
    role = "none" if own is None else own.role
    well = f"{role} of a mesh of {counted_text(len(rest), 'device')}, {counted_text(facts.open_invites, 'open invite')}"
    return or_passed("membership", (*_own_place(own), *_authorities(facts), *_invites(facts)), well)


def _own_place(own: MemberView | None) -> Iterator[FindingView]:
    if own is None:
        todo = "its records may be on their way; otherwise ask for another invite, and join in a new home"
        yield failed("membership", "this device is no member of its mesh", todo)
    elif own.retired:
        found = f"this device was retired{f' by {own.retired_by}' if own.retired_by else ''}"
        todo = (
            "nobody takes what it writes: `meshnode identity renew INVITE` makes it another device that keeps the rows"
        )
        yield failed("membership", found, todo)


def _authorities(facts: MembershipFacts) -> Iterator[FindingView]:
    if facts.members and not any(member.seniority is not None for member in facts.members):
        todo = "`meshnode role SITE authority --recovery FILE` makes one"
        yield warned("membership", "no device can let others in or retire them", todo)
    only = only_authority(facts.members)
    if only is not None:
        todo = "`meshnode role SITE authority` there makes another one, in case it is lost"
        yield warned("membership", f"{only.name} is the only device that can let others in or retire them", todo)


def _invites(facts: MembershipFacts) -> Iterator[FindingView]:
    if facts.expired_invites:
        found = f"{counted_text(facts.expired_invites, 'invite')} expired before anybody used them"
        yield warned("membership", found, "`meshnode invite` makes another one, and takes the expired ones away")
    if facts.asking:
        todo = f"`meshnode invite approve {facts.asking[0]}` lets it in, `deny` does not"
        yield warned("membership", f"waits for a yes to join: {listed(facts.asking)}", todo)
