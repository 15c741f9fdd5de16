"""Concurrent writes of one cell, and deciding them."""

from __future__ import annotations

from typing import Final

from meshnode.control.web.site import Page

PAGE: Final = Page(
    "conflicts",
    "Conflicts",
    "c",
    count=lambda status: status.conflicts.certain + status.conflicts.possible,
    urgent=True,
)
