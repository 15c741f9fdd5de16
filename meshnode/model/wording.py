"""How keys, clocks and numbers are written for people: one way, in messages, notices and tables (pure)."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

_FIRST_MS: Final = -62_135_596_800_000  # of the year 1
_LAST_MS: Final = 253_402_300_799_999  # of the year 9999
KEY_CHARACTERS: Final = 100  # of a key or a name in a message: a peer or a caller chooses it


def value_text(value: Any) -> str:
    """One value of a key: text in quotes as in JSON, bytes as SQL has them."""
    if isinstance(value, bytes):
        return f"x'{value.hex()}'"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)


def key_text(key: Any) -> str:
    """`id="n1"`, with the names of the key columns; what is no key stands as it is."""
    if not isinstance(key, Mapping):
        return value_text(key)[:KEY_CHARACTERS]
    return ", ".join(f"{name}={value_text(value)}" for name, value in key.items())[:KEY_CHARACTERS]


def quoted(named: object) -> str:
    """What somebody named, in quotes, and no longer than a key is shown: a caller chooses it."""
    text = repr(named[: KEY_CHARACTERS + 1] if isinstance(named, str) else named)
    return text if len(text) <= KEY_CHARACTERS + 2 else f"{text[:KEY_CHARACTERS]}…"


def clock_text(clock: tuple[int, int]) -> str:
    """A reading of the hybrid clock: its time, and its count within that millisecond where there is one."""
    physical, logical = clock
    return f"{time_text(physical)}/{logical}" if logical else time_text(physical)


def time_text(ms: int) -> str:
    """A time as people write it; a clock that no calendar has, as its number."""
    if not _FIRST_MS <= ms <= _LAST_MS:
        return str(ms)
    days, rest = divmod(ms, 86_400_000)
    era, day = divmod(days + 719_468, 146_097)  # eras of 400 years from 1 March of the year 0 on
    years = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * years + years // 4 - years // 100
    month = (5 * day + 2) // 153  # from March on
    date, month = day - (153 * month + 2) // 5 + 1, month + 3 if month < 10 else month - 9
    year = 400 * era + years + (month <= 2)
    hour, minute, second = rest // 3_600_000, rest // 60_000 % 60, rest // 1_000 % 60
    return f"{year:04}-{month:02}-{date:02}T{hour:02}:{minute:02}:{second:02}.{rest % 1000:03}Z"


def counted_text(number: int, noun: str) -> str:
    """`1 row`, `2 rows`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def nearest(name: str, known: Iterable[str]) -> str:
    """`, did you mean …?`, with the known name that is most like it; empty where none is."""
    names = {each.casefold(): each for each in known}
    near = difflib.get_close_matches(name.casefold(), names, n=1)
    return f", did you mean {names[near[0]]!r}?" if near else ""
