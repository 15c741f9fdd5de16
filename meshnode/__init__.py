"""meshnode: plain SQLite tables that sync between the devices of one person or team, without a server.

The public API is what `__all__` names; nothing else is public. Names are loaded when they are first used, so that a
program which needs no network imports none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshnode.errors import MeshError
    from meshnode.node.config import Config
    from meshnode.node.configviews import ConfigReceipt, ConfigView, ReloadView
    from meshnode.node.conflict_views import ConflictReceipt, ConflictView
    from meshnode.node.databases import open_database
    from meshnode.node.discoverviews import DiscoverView
    from meshnode.node.doctorviews import DoctorView
    from meshnode.node.eventviews import EventPage, EventQuery, EventView
    from meshnode.node.home import Home
    from meshnode.node.joining import join
    from meshnode.node.memberviews import LeaveView, MemberView, RecordView
    from meshnode.node.node import Node
    from meshnode.node.verifyviews import VerifyProgress, VerifyReport
    from meshnode.node.views import (
        ChangeView,
        NoticeView,
        PeerView,
        Receipt,
        RowChange,
        RowExplanation,
        RowView,
        Status,
        TableDigest,
        WaitResult,
    )

__all__ = [
    "ChangeView",
    "Config",
    "ConfigReceipt",
    "ConfigView",
    "ConflictReceipt",
    "ConflictView",
    "DiscoverView",
    "DoctorView",
    "EventPage",
    "EventQuery",
    "EventView",
    "Home",
    "LeaveView",
    "MemberView",
    "MeshError",
    "Node",
    "NoticeView",
    "PeerView",
    "Receipt",
    "RecordView",
    "ReloadView",
    "RowChange",
    "RowExplanation",
    "RowView",
    "Status",
    "TableDigest",
    "VerifyProgress",
    "VerifyReport",
    "WaitResult",
    "join",
    "open_database",
]

__version__ = "0.1.0"

_ELSEWHERE = {
    "MeshError": "errors",
    "Config": "node.config",
    "ConflictReceipt": "node.conflict_views",
    "ConflictView": "node.conflict_views",
    "EventPage": "node.eventviews",
    "EventQuery": "node.eventviews",
    "EventView": "node.eventviews",
    "Home": "node.home",
    "ConfigReceipt": "node.configviews",
    "ConfigView": "node.configviews",
    "ReloadView": "node.configviews",
    "DiscoverView": "node.discoverviews",
    "DoctorView": "node.doctorviews",
    "join": "node.joining",
    "LeaveView": "node.memberviews",
    "MemberView": "node.memberviews",
    "RecordView": "node.memberviews",
    "Node": "node.node",
    "VerifyProgress": "node.verifyviews",
    "VerifyReport": "node.verifyviews",
    "open_database": "node.databases",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"meshnode.{_ELSEWHERE.get(name, 'node.views')}"), name)
