"""What `open-dashboard` answers, and where its verb leaves the way in for the browser."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from meshnode.node.views import View

WAY_IN: Final = "dashboard.html"  # in the home: a page of mode 0600, since a command line is seen by other users


class DashboardView(View, frozen=True, kw_only=True):
    """A way into the dashboard that works once, until a time in ms since 1970."""

    url: str
    expires_ms: int


def way_in(home: Path) -> Path:
    """The page that takes the browser there."""
    return home / WAY_IN
