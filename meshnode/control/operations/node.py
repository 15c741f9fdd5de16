"""The node itself: how it is, who is near it, its settings, and what is between it and its peers."""

from __future__ import annotations

from typing import Final, cast

from meshnode.control import requests as asked
from meshnode.control import verify_lines
from meshnode.control.dashboardview import DashboardView
from meshnode.control.operation import Call, Stream, TextForm, nothing
from meshnode.errors import BusyError, ConfigError, IdentityError, NotFoundError, TransportError
from meshnode.node.api import Operations
from meshnode.node.config import PolicyName
from meshnode.node.configviews import ConfigReceipt, ConfigView, ReloadView
from meshnode.node.discoverviews import DiscoverView
from meshnode.node.doctorviews import DoctorView
from meshnode.node.metricviews import CONTENT_TYPE, MetricView, exposition
from meshnode.node.views import (
    CheckReport,
    FrontierView,
    IdentityView,
    PeerView,
    PolicyView,
    Status,
    SyncRequest,
    SyncStateView,
    WaitResult,
)


def _exposition(metrics: list[MetricView]) -> str:
    return exposition(metrics)


async def _ping(_node: Operations, _arguments: asked.NoArguments) -> asked.Pong:
    return asked.Pong()


async def _discover(node: Operations, arguments: asked.Discover) -> DiscoverView:
    return await node.discover(seconds=min(max(0.0, arguments.seconds), asked.WAIT_SLICE_S))


async def _wait(node: Operations, arguments: asked.Wait) -> WaitResult:
    return await node.wait(timeout_s=min(arguments.timeout_s, asked.WAIT_SLICE_S), live_only=arguments.live_only)


async def _no_dashboard(_node: Operations, _arguments: asked.NoArguments) -> DashboardView:
    raise NotFoundError("no dashboard is served here: `meshnode up` runs a node that has one")


PING: Final = Call(
    "ping", asked.NoArguments, asked.Pong, _ping, reads=True, about="Answers as soon as the node can, with nothing."
)
STATUS: Final = Call("status", asked.NoArguments, Status, lambda node, _: node.status(), reads=True)
METRICS: Final = Call(
    "metrics",
    asked.NoArguments,
    list[MetricView],
    lambda node, _: node.metrics(),
    reads=True,
    text=TextForm(CONTENT_TYPE, _exposition),
)
PEERS: Final = Call("peers", asked.NoArguments, list[PeerView], lambda node, _: node.peers(), reads=True)
DISCOVER: Final = Call("discover", asked.Discover, DiscoverView, _discover, reads=True, waits=True)
DOCTOR: Final = Call("doctor", asked.Doctor, DoctorView, lambda node, a: node.doctor(a.checks), reads=True)
SET_ONLINE: Final = Call("set-online", asked.SetOnline, nothing(), lambda node, a: node.set_online(a.online))
CHECK: Final = Call("check", asked.Check, CheckReport, lambda node, a: node.check(repair=a.repair))
RESUME: Final = Call("resume", asked.NoArguments, IdentityView, lambda node, _: node.resume(), raises=(IdentityError,))

OPEN_DASHBOARD: Final = Call(
    "open-dashboard",
    asked.NoArguments,
    DashboardView,
    _no_dashboard,
    about="A way into the dashboard for a browser of this device, once and for a minute.",
    raises=(NotFoundError,),
)

POLICY: Final = Call("policy", asked.NoArguments, PolicyView, lambda node, _: node.policy(), reads=True)
SET_POLICY: Final = Call(
    "set-policy",
    asked.SetPolicy,
    PolicyView,
    lambda node, a: node.set_policy(cast(PolicyName, a.setting), a.value),
    raises=(ConfigError,),
)
CONFIG: Final = Call("config", asked.NoArguments, ConfigView, lambda node, _: node.config(), reads=True)
SET_CONFIG: Final = Call(
    "set-config", asked.SetConfig, ConfigReceipt, lambda node, a: node.set_config(a.values), raises=(ConfigError,)
)
APPLY_CONFIG: Final = Call(
    "apply-config", asked.ApplyConfig, ConfigReceipt, lambda node, a: node.apply_config(a.text), raises=(ConfigError,)
)
RELOAD: Final = Call("reload", asked.NoArguments, ReloadView, lambda node, _: node.reload(), raises=(ConfigError,))

SYNC_STATE: Final = Call(
    "sync-state",
    asked.SomePeer,
    list[SyncStateView],
    lambda node, a: node.sync_state(a.peer),
    raises=(NotFoundError,),
    reads=True,
)
FRONTIER: Final = Call(
    "frontier",
    asked.SomePeer,
    list[FrontierView],
    lambda node, a: node.frontier(a.peer),
    raises=(NotFoundError,),
    reads=True,
)
REQUEST_SYNC: Final = Call(
    "request-sync",
    asked.RequestSync,
    SyncRequest,
    lambda node, a: node.request_sync(a.peer, table=a.table),
    raises=(NotFoundError,),
)
WAIT: Final = Call("wait", asked.Wait, WaitResult, _wait, waits=True)
VERIFY: Final = Stream(
    "verify",
    asked.Verify,
    verify_lines.VerifyLine,
    verify_lines.lines,
    raises=(NotFoundError, TransportError, BusyError),
)
