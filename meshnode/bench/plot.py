"""How the catch-up rate changes with the log, as an SVG: one curve, and the ceiling above it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from math import ceil, floor, log10
from typing import Final

from meshnode.bench.figures import Figures, Window

WIDTH: Final = 720
HEIGHT: Final = 360
LEFT, RIGHT, TOP, BOTTOM = 80, 30, 50, 50
_GRID: Final = 5  # lines at most over the rates


def svg(figures: Figures) -> str:
    """The picture; a line of text in it says where there was nothing to draw."""
    ceiling = figures.ceilings.verify_per_s if figures.ceilings is not None else None
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="sans-serif" font-size="12" fill="#222">',
        "<title>meshnode bench: catch-up between two processes by the size of the log</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
        _text(LEFT, 24, "Catch-up, events a second, by the events that are there", size=15),
        *_drawn(figures.growth, ceiling),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _drawn(growth: Sequence[Window], ceiling: float | None) -> Iterator[str]:
    if not growth:
        yield _text(LEFT, HEIGHT // 2, "nothing was measured: `meshnode bench` without --only, or with --only growth")
        return
    decades = floor(log10(growth[0].events)), max(ceil(log10(growth[-1].events)), floor(log10(growth[0].events)) + 1)
    step = _step(max([each.per_s for each in growth] + ([ceiling] if ceiling else [])) / _GRID)
    top = step * _GRID

    def x(events: float) -> float:
        return LEFT + (log10(events) - decades[0]) / (decades[1] - decades[0]) * (WIDTH - LEFT - RIGHT)

    def y(rate: float) -> float:
        return HEIGHT - BOTTOM - rate / top * (HEIGHT - TOP - BOTTOM)

    for line in range(_GRID + 1):
        yield f'<path d="M{LEFT} {y(line * step):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>'
        yield _text(LEFT - 8, y(line * step) + 4, f"{line * step:,.0f}", anchor="end")
    for power in range(decades[0], decades[1] + 1):
        yield f'<path d="M{x(10**power):.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>'
        yield _text(x(10**power), HEIGHT - BOTTOM + 18, f"{10**power:,}", anchor="middle")
    if ceiling:
        yield f'<path d="M{LEFT} {y(ceiling):.1f}H{WIDTH - RIGHT}" stroke="#b33" stroke-dasharray="6 4"/>'
        yield _text(WIDTH - RIGHT, y(ceiling) - 6, f"raw verify of one core: {ceiling:,.0f}", anchor="end", fill="#b33")
    points = [(x(each.events), y(each.per_s)) for each in growth]
    path = " ".join(f"{at:.1f},{height:.1f}" for at, height in points)
    yield f'<polyline points="{path}" fill="none" stroke="#26a" stroke-width="2"/>'
    for (at, height), each in zip(points, growth, strict=True):
        told = f"<title>{each.events:,} events: {each.per_s:,.0f} a second</title>"
        yield f'<circle cx="{at:.1f}" cy="{height:.1f}" r="4" fill="#26a">{told}</circle>'


def _step(least: float) -> float:
    """The next of 1, 2, 5 and their tens."""
    power = 10.0 ** floor(log10(max(least, 1e-9)))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least)


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12, fill: str = "#222") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{fill}">{escape(text)}</text>'
    )
