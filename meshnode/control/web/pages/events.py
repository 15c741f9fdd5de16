"""The log as it grows."""

from __future__ import annotations

from typing import Final

from meshnode.control.web.site import Page

PAGE: Final = Page("events", "Events", "e")
