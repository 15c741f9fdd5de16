"""How values read on a page: cut to a sane length, times and sizes as people say them, what steers text made visible.

Pure, but for the zone of this machine. Markup is escaped by the templates, always; this is about what would still lie
to a reader once it is escaped.
"""

from __future__ import annotations

import datetime
import re
from typing import Final

SHOWN: Final = 80  # characters of a value in a table or a line
_STEERS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]")
_KEEPS: Final = frozenset("\n\t")
_HUES: Final = 12
_BYTES: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_SPANS: Final = (("day", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_LATEST_MS: Final = 253_402_300_799_999  # the last moment of year 9999: later ones have no date


def shown(value: object, most: int = SHOWN) -> str:
    """One line: controls and marks that turn the line around as escapes, and cut."""
    text = str(value)
    cut = text[: most + 1]
    line = _STEERS.sub(_escape, cut[:most]).encode("utf-8", "backslashreplace").decode()
    return line if len(cut) <= most else f"{line}…"


def label(value: object, most: int) -> str:
    """The same for little room: what is left out is in the middle, since names of one kind end differently."""
    text = shown(value, 4 * most)
    if len(text) <= most:
        return text
    tail = most // 3
    return f"{text[: most - tail - 1]}…{text[len(text) - tail :]}"


def whole(value: object, most: int = 100_000) -> str:
    """For a view of details: line ends and tabs stay, the rest as above."""
    text = str(value)
    kept = "".join(c if c in _KEEPS else _STEERS.sub(_escape, c) for c in text[:most])
    kept = kept.encode("utf-8", "backslashreplace").decode()
    return kept if len(text) <= most else f"{kept}…"


def hue(site: str) -> int:
    """The colour of a site, always the same: a number from 0 on."""
    try:
        return int(site[:4], 16) % _HUES
    except ValueError:
        return 0


def size(number: float) -> str:
    """Bytes, as the command line says them: `12 KiB`."""
    at = 0
    while number >= 1024 and at < len(_BYTES) - 1:
        number, at = number / 1024, at + 1
    return f"{number:.0f} {_BYTES[at]}" if at == 0 or number >= 10 else f"{number:.1f} {_BYTES[at]}"


def rate(number: float) -> str:
    """Bytes a second."""
    return f"{size(number)}/s"


def span(ms: float) -> str:
    """`5 min`."""
    seconds = max(int(ms // 1000), 0)
    for unit, length in _SPANS:
        if seconds >= length:
            count = seconds // length
            return f"{count} {unit}{'s' if unit == 'day' and count != 1 else ''}"
    return "0 s"


def ago(ms: int, now_ms: int) -> str:
    """`5 min ago`, `in 5 min`: what is past in whole units that went by, what is to come to the nearest one."""
    if abs(now_ms - ms) < 2000:
        return "now"
    return f"{span(now_ms - ms)} ago" if ms < now_ms else f"in {_nearest(ms - now_ms)}"


def _nearest(ms: int) -> str:
    unit_ms = next((1000 * length for _, length in _SPANS if ms >= 1000 * length), 1000)
    return span((2 * ms + unit_ms) // (2 * unit_ms) * unit_ms)


def left(ms: int, now_ms: int) -> str:
    """`1:05`, of something that ends soon."""
    seconds = max(ms - now_ms, 0) // 1000
    return f"{seconds // 60}:{seconds % 60:02}"


def moment(ms: int) -> datetime.datetime:
    """For the absolute time; clocks that peers chose stay within what a date can be."""
    at = min(max(ms, 0), _LATEST_MS)
    return datetime.datetime.fromtimestamp(at / 1000, datetime.UTC)


def iso(ms: int) -> str:
    """`2026-12-01T12:00:00Z`."""
    return moment(ms).strftime("%Y-%m-%dT%H:%M:%SZ")


def absolute(ms: int) -> str:
    """`2026-12-01 14:00:00 UTC+2`, where this machine is: its own person looks at the page."""
    at = moment(ms)
    try:
        at = at.astimezone()
    except (OverflowError, OSError, ValueError):  # the zone of a day at the end of the calendar
        return at.strftime("%Y-%m-%d %H:%M:%S UTC")
    return f"{at:%Y-%m-%d %H:%M:%S} {zone(at.utcoffset() or datetime.timedelta())}"


def zone(offset: datetime.timedelta) -> str:
    """`UTC`, `UTC+2`, `UTC-3:30`."""
    minutes = round(offset.total_seconds() / 60)
    if not minutes:
        return "UTC"
    hours, rest = divmod(abs(minutes), 60)
    return f"UTC{'-' if minutes < 0 else '+'}{hours}" + (f":{rest:02}" if rest else "")


def count(number: int, one: str, many: str = "") -> str:
    """`1 event`, `2 events`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def asked(what: str, members: int, linked: int) -> str:
    """Who was asked for something, and who hears of it later."""
    if not members:
        return f"Nobody was asked for {what}: there is no other member yet."
    later = members - linked
    whom = "it hears" if later == members == 1 else f"{later} of them {'hears' if later == 1 else 'hear'}"
    return (
        f"Asked {count(members, 'member')} for {what}."
        if not later
        else (f"Asked {count(members, 'member')} for {what}: {whom} of it at the next link.")
    )


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
