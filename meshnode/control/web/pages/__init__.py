"""The pages of the dashboard, in the order of its navigation; `control/web/__init__.py` says how to add to one."""

from __future__ import annotations

from typing import Final

from meshnode.control.web.pages import conflicts, doctor, events, members, mesh, notices, tables
from meshnode.control.web.site import Page

PAGES: Final[tuple[Page, ...]] = (
    mesh.PAGE,
    members.PAGE,
    tables.PAGE,
    events.PAGE,
    conflicts.PAGE,
    notices.PAGE,
    doctor.PAGE,
)
EVERY: Final[tuple[Page, ...]] = (*PAGES, *tables.PARTS, *events.PARTS)
"""With those that other pages lead to."""
