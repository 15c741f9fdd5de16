"""meshnode: plain SQLite tables that sync between the devices of one person or team, without a server.

The public API is what `__all__` names; nothing else is public. Names are loaded when they are first used, so that a
program which needs no network imports none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshnode.errors import (
        BehindError,
        BundleError,
        BusyError,
        ClosedError,
        ConfigError,
        IdentityError,
        InviteError,
        LockedError,
        MembershipError,
        MeshError,
        NotFoundError,
        PairingError,
        RegistrationError,
        RowError,
        StoreError,
        TransportError,
        UsageError,
    )
    from meshnode.node.blocking import BlockingNode
    from meshnode.node.blocking_table import BlockingTable
    from meshnode.node.callbacks import CallQueue, Subscription
    from meshnode.node.change import Change
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
    from meshnode.node.opening import Settings
    from meshnode.node.pairing_views import CandidateView, InvitedView, InviteView, NearbyView
    from meshnode.node.table import Table
    from meshnode.node.threaded import BlockingIterator
    from meshnode.node.transaction import Transaction
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
        TableView,
        WaitResult,
    )
    from meshnode.node.where import Where

__all__ = [
    "BehindError",
    "BlockingIterator",
    "BlockingNode",
    "BlockingTable",
    "BundleError",
    "BusyError",
    "CallQueue",
    "CandidateView",
    "Change",
    "ChangeView",
    "ClosedError",
    "Config",
    "ConfigError",
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
    "IdentityError",
    "InviteError",
    "InviteView",
    "InvitedView",
    "LeaveView",
    "LockedError",
    "MemberView",
    "MembershipError",
    "MeshError",
    "NearbyView",
    "Node",
    "NotFoundError",
    "NoticeView",
    "PairingError",
    "PeerView",
    "Receipt",
    "RecordView",
    "RegistrationError",
    "ReloadView",
    "RowChange",
    "RowError",
    "RowExplanation",
    "RowView",
    "Settings",
    "Status",
    "StoreError",
    "Subscription",
    "Table",
    "TableDigest",
    "TableView",
    "Transaction",
    "TransportError",
    "UsageError",
    "VerifyProgress",
    "VerifyReport",
    "WaitResult",
    "Where",
    "join",
    "open_database",
]

__version__ = "0.1.0"

_MODULES = {
    "errors": (
        "BehindError BundleError BusyError ClosedError ConfigError IdentityError InviteError LockedError "
        "MembershipError MeshError NotFoundError PairingError RegistrationError RowError StoreError TransportError "
        "UsageError"
    ),
    "node.blocking": "BlockingNode",
    "node.blocking_table": "BlockingTable",
    "node.callbacks": "CallQueue Subscription",
    "node.change": "Change",
    "node.config": "Config",
    "node.configviews": "ConfigReceipt ConfigView ReloadView",
    "node.conflict_views": "ConflictReceipt ConflictView",
    "node.databases": "open_database",
    "node.discoverviews": "DiscoverView",
    "node.doctorviews": "DoctorView",
    "node.eventviews": "EventPage EventQuery EventView",
    "node.home": "Home",
    "node.joining": "join",
    "node.memberviews": "LeaveView MemberView RecordView",
    "node.node": "Node",
    "node.opening": "Settings",
    "node.pairing_views": "CandidateView InviteView InvitedView NearbyView",
    "node.table": "Table",
    "node.threaded": "BlockingIterator",
    "node.transaction": "Transaction",
    "node.verifyviews": "VerifyProgress VerifyReport",
    "node.where": "Where",
}
"""Where each name is, but for those of `node.views`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((module for module, names in _MODULES.items() if name in names.split()), "node.views")
    return getattr(import_module(f"meshnode.{module}"), name)
