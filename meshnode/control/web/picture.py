"""The mesh as a drawing: where this node, the others and the links between stand; templates draw it (pure).

Everybody keeps a place by the order of site ids, so that a look at it again finds the same device there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from meshnode.control.web.texts import count, hue, label, rate, shown
from meshnode.control.web.throughput import Rate
from meshnode.node.views import PeerView, Status

DRAWN: Final = 60  # members at most, linked ones first; the table beside has all

ROOMY: Final = 20  # members on a ring up to which labels are as large as elsewhere
THIN: Final = 1.5  # of a line over which nothing passes


@dataclass(frozen=True, slots=True)
class Canvas:
    """One size of the picture."""

    name: str
    width: int
    height: int
    few: int  # members up to which each is a card on an ellipse; beyond, a ring with labels
    label: int  # characters of a name on a card
    ring_label: int  # on the ring


WIDE: Final = Canvas("wide", 880, 410, few=8, label=16, ring_label=13)
WIDE_RING: Final = Canvas("wide ring", 880, 620, few=0, label=16, ring_label=15)
NARROW: Final = Canvas("narrow", 340, 340, few=6, label=11, ring_label=8)


@dataclass(frozen=True, slots=True)
class Standing:
    """How one member is, in a word for the eye and one for the ear."""

    kind: str  # good, warn, bad, idle
    text: str


@dataclass(frozen=True, slots=True)
class Spot:
    """One member."""

    x: float
    y: float
    name: str
    detail: str
    kind: str
    hue: int
    turn: float = 0.0  # degrees of the label, on a ring
    anchor: str = "middle"
    label_x: float = 0.0
    above: bool = False  # the label stands above it, out of the way of the line


@dataclass(frozen=True, slots=True)
class Line:
    """Between this node and one member."""

    x1: float
    y1: float
    x2: float
    y2: float
    kind: str
    width: float
    flow: str  # out, in, both, or empty where nothing passes
    arrow: str  # points of the mark that tells who dialed whom; empty where there is no link
    rates: tuple[str, ...]
    rate_x: float
    rate_y: float


@dataclass(frozen=True, slots=True)
class Picture:
    """All of it."""

    name: str
    width: int
    height: int
    x: float
    y: float
    ring: bool
    roomy: bool  # a ring with few on it
    spots: list[Spot]
    lines: list[Line]
    left_out: int


def standing_of(peer: PeerView) -> Standing:
    """The state of one member."""
    if peer.stuck:
        return Standing("bad", "stands still")
    if not peer.linked:
        return Standing("idle", "not linked")
    if peer.behind or peer.ahead:
        return Standing("warn", "catching up")
    if peer.groups_behind or peer.groups_ahead:
        return Standing("warn", "not all applied")
    return Standing("good", "level")


def lag_of(peer: PeerView) -> str:
    """How far the two are from each other."""
    parts = []
    if peer.behind:
        parts.append(f"{count(peer.behind, 'event')} to send")
    if peer.ahead:
        parts.append(f"{count(peer.ahead, 'group')} to get")
    if not parts and peer.groups_behind:
        parts.append(f"{count(peer.groups_behind, 'group')} not applied there: is a table missing?")
    if not parts and peer.groups_ahead:
        parts.append(f"{count(peer.groups_ahead, 'group')} not applied here: is a table missing?")
    return ", ".join(parts)


def members_of(status: Status) -> list[PeerView]:
    """Those that are in, in the order of the picture."""
    return sorted((peer for peer in status.peers if not peer.retired), key=lambda peer: peer.site)


def summary_of(status: Status) -> str:
    """The picture in a sentence."""
    members = members_of(status)
    if not members:
        return f"{shown(status.name, 40)} is the only member of this mesh."
    linked = [peer for peer in members if peer.linked]
    behind = sum(standing_of(peer).kind == "warn" for peer in linked)
    more = f"; {behind} of them not level" if behind else ""
    return f"{shown(status.name, 40)} is linked to {len(linked)} of {count(len(members), 'other member')}{more}."


def picture_of(status: Status, rate_of: Callable[[str], Rate], canvas: Canvas) -> Picture:
    """Where everything stands on a canvas."""
    members = members_of(status)
    drawn = sorted(sorted(members, key=lambda peer: not peer.linked)[:DRAWN], key=lambda peer: peer.site)
    if canvas is WIDE and len(drawn) > WIDE.few:
        canvas = WIDE_RING
    ring = len(drawn) > canvas.few
    x, y = canvas.width / 2, canvas.height / 2
    place = _ring if ring else _ellipse
    spots = [place(canvas, peer, at, len(drawn)) for at, peer in enumerate(drawn)]
    lines = [_line(x, y, spot, peer, rate_of(peer.short), ring) for spot, peer in zip(spots, drawn, strict=True)]
    return Picture(
        canvas.name,
        canvas.width,
        canvas.height,
        x,
        y,
        ring,
        len(drawn) <= ROOMY,
        spots,
        lines,
        len(members) - len(drawn),
    )


def pictures_of(status: Status, rate_of: Callable[[str], Rate]) -> Sequence[Picture]:
    """One for each width of page."""
    return [picture_of(status, rate_of, canvas) for canvas in (WIDE, NARROW)]


def _ellipse(canvas: Canvas, peer: PeerView, at: int, of: int) -> Spot:
    begin = 180.0 if of % 2 == 0 else -90.0 if of > 1 else 0.0
    angle = math.radians(begin + 360.0 * at / of)
    x = canvas.width / 2 + (canvas.width / 2 - (110 if canvas is WIDE else 52)) * math.cos(angle)
    y = canvas.height / 2 + (canvas.height / 2 - 76) * math.sin(angle)
    standing = standing_of(peer)
    detail = lag_of(peer).partition(":")[0] if canvas is WIDE else ""  # there is no room for what it may be due to
    return Spot(
        _round(x),
        _round(y),
        label(peer.name or peer.short, canvas.label),
        detail or standing.text,
        standing.kind,
        hue(peer.site),
        above=math.sin(angle) < -0.3,
    )


def _ring(canvas: Canvas, peer: PeerView, at: int, of: int) -> Spot:
    degrees = -90.0 + 360.0 * at / of
    radius = min(canvas.width, canvas.height) / 2 - (120 if canvas is WIDE_RING else 58)
    angle = math.radians(degrees)
    left = math.cos(angle) < -1e-9
    standing = standing_of(peer)
    return Spot(
        _round(canvas.width / 2 + radius * math.cos(angle)),
        _round(canvas.height / 2 + radius * math.sin(angle)),
        label(peer.name or peer.short, canvas.ring_label),
        "",
        standing.kind,
        hue(peer.site),
        turn=_round(degrees + 180.0 if left else degrees),
        anchor="end" if left else "start",
        label_x=-13.0 if left else 13.0,
    )


def _line(x: float, y: float, spot: Spot, peer: PeerView, passing: Rate, ring: bool) -> Line:
    length = math.hypot(spot.x - x, spot.y - y) or 1.0
    dx, dy = (spot.x - x) / length, (spot.y - y) / length
    near, far = (30.0, 7.0) if ring else (40.0, 27.0)
    passes = peer.linked and passing.any
    ways = [way for way, number in (("out", passing.sent), ("in", passing.received)) if number >= 1.0]
    rates = [f"↑ {rate(passing.sent)}"] * (passing.sent >= 1.0) + [f"↓ {rate(passing.received)}"] * (
        passing.received >= 1.0
    )
    middle = near + (length - near - far) * 0.55
    side = 1.0 if dx >= 0 else -1.0  # beside the line: above it, or right of one that is steep
    away = 12.0 + 34.0 * abs(dy)
    return Line(
        _round(x + dx * near),
        _round(y + dy * near),
        _round(spot.x - dx * far),
        _round(spot.y - dy * far),
        spot.kind,
        _thickness(passing, ring) if passes else THIN,
        ("both" if len(ways) == 2 else ways[0]) if passes else "",
        "" if not peer.linked or peer.opened_by_us is None or ring else _arrow(x, y, dx, dy, length - 40.0, peer),
        tuple(rates) if passes and not ring else (),
        _round(x + dx * middle + side * dy * away),
        _round(y + dy * middle - side * dx * away),
    )


def _thickness(passing: Rate, ring: bool) -> float:
    """More bytes, a thicker line: a step for each power of ten, up to a megabyte a second."""
    return _round(THIN + min(math.log10(1 + passing.sent + passing.received), 6.0) * (0.25 if ring else 0.5))


def _arrow(x: float, y: float, dx: float, dy: float, at: float, peer: PeerView) -> str:
    """A small triangle near the member, which points to whoever was dialed."""
    way = 1.0 if peer.opened_by_us else -1.0
    px, py = x + dx * at, y + dy * at
    tip = (px + dx * 6 * way, py + dy * 6 * way)
    base = (px - dx * 5 * way, py - dy * 5 * way)
    corners = (tip, (base[0] - dy * 5, base[1] + dx * 5), (base[0] + dy * 5, base[1] - dx * 5))
    return " ".join(f"{_round(cx)},{_round(cy)}" for cx, cy in corners)


def _round(number: float) -> float:
    return round(number, 1)
