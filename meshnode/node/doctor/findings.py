"""What a check says: short words for the three verdicts, in one line each whatever an error was made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from meshnode.node.doctorviews import FAIL, PASS, WARN, FindingView

NAMED = 5  # things that one line names; further ones are counted


def passed(check: str, found: str) -> list[FindingView]:
    """All is well."""
    return [FindingView(check=check, verdict=PASS, found=_line(found))]


def warned(check: str, found: str, todo: str) -> FindingView:
    """It goes on, and somebody should look at it."""
    return FindingView(check=check, verdict=WARN, found=_line(found), todo=_line(todo))


def failed(check: str, found: str, todo: str) -> FindingView:
    """It does not work, or not for long."""
    return FindingView(check=check, verdict=FAIL, found=_line(found), todo=_line(todo))


def listed(names: Sequence[str]) -> str:
    """The first of them, and how many more there are."""
    more = len(names) - NAMED
    return ", ".join(names[:NAMED]) + (f" and {more} more" if more > 0 else "")


def or_passed(check: str, findings: Iterable[FindingView], well: str) -> list[FindingView]:
    """What was found, or that all is well."""
    return list(findings) or passed(check, well)


def time_of_day(ms: int) -> str:
    """`1 May 14:05 UTC`."""
    try:
        at = datetime.fromtimestamp(ms / 1000, UTC)
    except (OverflowError, OSError, ValueError):  # a clock of a far future
        return "a day beyond the calendar"
    return f"{at.day} {at:%b %H:%M} UTC"


def bytes_text(number: int) -> str:
    """`3 KiB`, `1.5 GiB`."""
    size = float(number)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit in ("bytes", "KiB") else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def _line(text: str) -> str:
    return " ".join(text.split())
