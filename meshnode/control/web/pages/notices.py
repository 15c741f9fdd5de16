"""What came up here that somebody should know."""

from __future__ import annotations

from typing import Final

from meshnode.control.web.site import Page

PAGE: Final = Page("notices", "Notices", "n", count=lambda status: len(status.notices))
