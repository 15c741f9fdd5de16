"""Who is in the mesh, and letting others in."""

from __future__ import annotations

from typing import Final

from meshnode.control.web.site import Page

PAGE: Final = Page("members", "Members", "d")
