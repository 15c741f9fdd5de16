"""What two devices wrote, and which row it is of, as a page shows it: the kind of a value in words, its text, cut.

Pure. A card has to stay small whatever its values are: a page holds some of them, and is sent anew when one changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from meshnode.node.conflict_views import ConflictView, SideView
from meshnode.node.views import Value

CHARACTERS: Final = 4000  # of a value in a card; `meshnode conflicts -o json` has all
CHARACTERS_OF_ROW: Final = 800  # the same of each value, where a whole row was written
COLUMNS: Final = 16  # of a row that are shown
KEY_CHARACTERS: Final = 60  # of each part of a row's key


@dataclass(frozen=True, slots=True)
class Written:
    """One value: `kind` says in a word what it is, and is all there is to say where `text` is empty."""

    kind: str
    text: str = ""
    left_out: str = ""  # how much more of it there is
    name: str = ""  # of the column, where a row was written


def written(value: Value, most: int = CHARACTERS, name: str = "") -> Written:
    """A value as text with its kind: `1`, `1.0`, `true` and the text `1` are four."""
    if value is None:
        return Written("no value (null)", name=name)
    if isinstance(value, bool):
        return Written("boolean", "true" if value else "false", name=name)
    if isinstance(value, int | float):
        return Written("integer" if isinstance(value, int) else "real", repr(value), name=name)
    if isinstance(value, bytes):
        more = f"{len(value) - most // 2:,} more bytes" if len(value) > most // 2 else ""
        return Written(f"{len(value):,} byte{'' if len(value) == 1 else 's'}", value[: most // 2].hex(), more, name)
    if not value:
        return Written("empty text", name=name)
    more = f"{len(value) - most:,} more characters" if len(value) > most else ""
    return Written("text", value[:most], more, name)


def values_of(conflict: ConflictView, side: SideView) -> list[Written]:
    """What one of the two wrote: one value, or some columns of a row, or that it is deleted."""
    if not side.kept:
        return [Written("not kept any more: it is not in the log, and was too large for the ledger")]
    if side.left_out:
        return [Written("too large for this list: `meshnode events` has it")]
    if conflict.column is not None:
        return [written(side.value)]
    value: object = side.value
    if not isinstance(value, Mapping):
        return [Written("deleted the row")]
    shown = [written(each, CHARACTERS_OF_ROW, name) for name, each in list(value.items())[:COLUMNS]]
    more = [Written(f"and {len(value) - COLUMNS} more columns")] if len(value) > COLUMNS else []
    return [*shown, *more] or [Written("wrote the row, without a column")]


def key_of(conflict: ConflictView) -> str:
    """Which row: its key's value, with names where there are several."""
    parts = {name: _short(value) for name, value in conflict.key.items()}
    if not parts:
        return "a key too large to show"
    return (
        next(iter(parts.values())) if len(parts) == 1 else ", ".join(f"{name} {text}" for name, text in parts.items())
    )


def _short(value: Value) -> str:
    if isinstance(value, bytes):
        value = value[:KEY_CHARACTERS].hex()
    text = value if isinstance(value, str) else str(value)
    return text if len(text) <= KEY_CHARACTERS else f"{text[:KEY_CHARACTERS]}…"
