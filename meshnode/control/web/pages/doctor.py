"""What is wrong with this node, and what to do."""

from __future__ import annotations

from typing import Final

from meshnode.control.web.site import Page

PAGE: Final = Page("doctor", "Doctor", "r")
