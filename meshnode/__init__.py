"""meshnode: plain SQLite tables that sync between the devices of one person or team, without a server.

The public API is what `__all__` names; nothing else is public. Names are loaded when they are first used, so that a
program which needs no network imports none of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from meshnode.control.attached.app import Attached, attach
    from meshnode.control.attached.blocking import BlockingAttached
    from meshnode.errors import (
        BehindError,
        BundleError,
        BusyError,
        ClosedError,
        ConfigError,
        DamagedError,
        IdentityError,
        InviteError,
        LockedError,
        MembershipError,
        MeshError,
        NoRoomError,
        NotAllowedError,
        NotFoundError,
        PairingError,
        RegistrationError,
        RowError,
        StoreError,
        TransportError,
        UsageError,
    )
    from meshnode.model.policy import TableClass
    from meshnode.node.blocking import BlockingNode
    from meshnode.node.blocking_table import BlockingTable
    from meshnode.node.bundleviews import ExportView, IntakeView
    from meshnode.node.callbacks import CallQueue, Subscription
    from meshnode.node.change import Change
    from meshnode.node.config import Config
    from meshnode.node.configviews import BeforeAfter, ConfigReceipt, ConfigView, ReloadView, SettingView
    from meshnode.node.conflict_views import ConflictReceipt, ConflictView, SideView
    from meshnode.node.databases import open_database
    from meshnode.node.discoverviews import (
        AnnouncementView,
        DialView,
        DiscoverView,
        FoundMemberView,
        InterfaceView,
        PassedOverView,
        PeerAddressView,
    )
    from meshnode.node.doctorviews import DoctorView, FindingView
    from meshnode.node.eventviews import EventPage, EventQuery, EventView
    from meshnode.node.home import Home
    from meshnode.node.joining import join
    from meshnode.node.memberviews import LeaveView, MemberView, RecordView
    from meshnode.node.metricviews import MetricView, Sample
    from meshnode.node.node import Node
    from meshnode.node.opening import Settings
    from meshnode.node.pairing_views import CandidateView, InvitedView, InviteView, JoinView, NearbyView, OpenInviteView
    from meshnode.node.syncviews import AskedView, FrontierView, RequestView, StagedView, SyncRequest, SyncStateView
    from meshnode.node.table import Table
    from meshnode.node.threaded import BlockingIterator
    from meshnode.node.transaction import Transaction
    from meshnode.node.verifyviews import (
        ComparedEvent,
        ComparedRowView,
        ComparedTableView,
        VerifyProgress,
        VerifyReport,
    )
    from meshnode.node.views import (
        AcknowledgedView,
        BehindView,
        CellView,
        ChangeView,
        CheckReport,
        ClockView,
        ColumnView,
        ConflictCounts,
        DifferenceView,
        ForgetReport,
        GroupView,
        HistoryRequest,
        IdentityView,
        ImportReport,
        LaggingView,
        NoticeView,
        PeerView,
        PolicyView,
        Receipt,
        RetentionReport,
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
    "AcknowledgedView",
    "AnnouncementView",
    "AskedView",
    "Attached",
    "BeforeAfter",
    "BehindError",
    "BehindView",
    "BlockingAttached",
    "BlockingIterator",
    "BlockingNode",
    "BlockingTable",
    "BundleError",
    "BusyError",
    "CallQueue",
    "CandidateView",
    "CellView",
    "Change",
    "ChangeView",
    "CheckReport",
    "ClockView",
    "ClosedError",
    "ColumnView",
    "ComparedEvent",
    "ComparedRowView",
    "ComparedTableView",
    "Config",
    "ConfigError",
    "ConfigReceipt",
    "ConfigView",
    "ConflictCounts",
    "ConflictReceipt",
    "ConflictView",
    "DamagedError",
    "DialView",
    "DifferenceView",
    "DiscoverView",
    "DoctorView",
    "EventPage",
    "EventQuery",
    "EventView",
    "ExportView",
    "FindingView",
    "ForgetReport",
    "FoundMemberView",
    "FrontierView",
    "GroupView",
    "HistoryRequest",
    "Home",
    "IdentityError",
    "IdentityView",
    "ImportReport",
    "IntakeView",
    "InterfaceView",
    "InviteError",
    "InviteView",
    "InvitedView",
    "JoinView",
    "LaggingView",
    "LeaveView",
    "LockedError",
    "MemberView",
    "MembershipError",
    "MeshError",
    "MetricView",
    "NearbyView",
    "NoRoomError",
    "Node",
    "NotAllowedError",
    "NotFoundError",
    "NoticeView",
    "OpenInviteView",
    "PairingError",
    "PassedOverView",
    "PeerAddressView",
    "PeerView",
    "PolicyView",
    "Receipt",
    "RecordView",
    "RegistrationError",
    "ReloadView",
    "RequestView",
    "RetentionReport",
    "RowChange",
    "RowError",
    "RowExplanation",
    "RowView",
    "Sample",
    "SettingView",
    "Settings",
    "SideView",
    "StagedView",
    "Status",
    "StoreError",
    "Subscription",
    "SyncRequest",
    "SyncStateView",
    "Table",
    "TableClass",
    "TableDigest",
    "TableView",
    "Transaction",
    "TransportError",
    "UsageError",
    "VerifyProgress",
    "VerifyReport",
    "WaitResult",
    "Where",
    "attach",
    "join",
    "open_database",
]

__version__ = "0.1.0"

_MODULES = {
    "errors": (
        "BehindError BundleError BusyError ClosedError ConfigError DamagedError IdentityError InviteError "
        "LockedError MembershipError MeshError NoRoomError NotAllowedError NotFoundError PairingError "
        "RegistrationError RowError StoreError TransportError UsageError"
    ),
    "control.attached.app": "Attached attach",
    "control.attached.blocking": "BlockingAttached",
    "model.policy": "TableClass",
    "node.blocking": "BlockingNode",
    "node.blocking_table": "BlockingTable",
    "node.bundleviews": "ExportView IntakeView",
    "node.callbacks": "CallQueue Subscription",
    "node.change": "Change",
    "node.config": "Config",
    "node.configviews": "BeforeAfter ConfigReceipt ConfigView ReloadView SettingView",
    "node.conflict_views": "ConflictReceipt ConflictView SideView",
    "node.databases": "open_database",
    "node.discoverviews": (
        "AnnouncementView DialView DiscoverView FoundMemberView InterfaceView PassedOverView PeerAddressView"
    ),
    "node.doctorviews": "DoctorView FindingView",
    "node.eventviews": "EventPage EventQuery EventView",
    "node.home": "Home",
    "node.joining": "join",
    "node.memberviews": "LeaveView MemberView RecordView",
    "node.metricviews": "MetricView Sample",
    "node.node": "Node",
    "node.opening": "Settings",
    "node.pairing_views": "CandidateView InviteView InvitedView JoinView NearbyView OpenInviteView",
    "node.table": "Table",
    "node.threaded": "BlockingIterator",
    "node.transaction": "Transaction",
    "node.syncviews": "AskedView FrontierView RequestView StagedView SyncRequest SyncStateView",
    "node.verifyviews": "ComparedEvent ComparedRowView ComparedTableView VerifyProgress VerifyReport",
    "node.where": "Where",
}
"""Where each name is, but for those of `node.views`."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = next((module for module, names in _MODULES.items() if name in names.split()), "node.views")
    return getattr(import_module(f"meshnode.{module}"), name)
