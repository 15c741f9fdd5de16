"""The tables that take part, and their rows."""

from __future__ import annotations

from typing import Final

from meshnode.control.web.site import Page

PAGE: Final = Page("tables", "Tables", "t")
