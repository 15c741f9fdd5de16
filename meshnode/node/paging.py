"""How much of a page a row takes: pages are bounded by bytes as well as by rows (`node.api.PAGE_BYTES`).

One value may be 1 MiB (profile §4), so 1,000 rows are anything from nothing to a gigabyte. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_SMALL: Final = 16  # bytes that a number, or the fact that there is none, counts as


def values_size(values: Mapping[str, Any]) -> int:
    """Bytes of the names and values of one row, nearly: of text its characters, at least a quarter of its bytes."""
    return sum(len(name) + (len(value) if isinstance(value, str | bytes) else _SMALL) for name, value in values.items())
