"""A text as a QR code: one path, drawn by a template like any other picture."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import Final

QUIET: Final = 4  # modules of white around it, without which cameras do not find it (ISO/IEC 18004)


@dataclass(frozen=True, slots=True)
class QrCode:
    """A square of `size` modules, the white around it included; `path` fills the dark ones."""

    size: int
    path: str


def qr_of(text: str) -> QrCode:
    """In capitals, which mean the same in an invite (profile §10): that takes a third less room."""
    import segno  # 15 ms, and most pages show none

    rows = list(segno.make(text.upper(), error="l", micro=False).matrix_iter(border=QUIET))
    return QrCode(len(rows), "".join(_line(row, y) for y, row in enumerate(rows)))


def _line(row: Iterable[int], y: int) -> str:
    x, drawn = 0, []
    for dark, run in groupby(row):
        width = len(list(run))
        if dark:
            drawn.append(f"M{x} {y}h{width}v1h-{width}z")
        x += width
    return "".join(drawn)
