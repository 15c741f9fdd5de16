"""The retained log: its events, its notices, and bundles that carry it where no link leads."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Final

from meshnode.control import requests as asked
from meshnode.control.operation import Call, Stream
from meshnode.errors import BundleError, NotFoundError, UsageError
from meshnode.node.api import Operations
from meshnode.node.bundleviews import ExportView, IntakeView
from meshnode.node.eventviews import EVENTS_PER_PAGE, EventPage
from meshnode.node.views import AcknowledgedView, NoticeView


async def _events(node: Operations, arguments: asked.Events) -> EventPage:
    limit = max(1, min(arguments.limit, EVENTS_PER_PAGE))
    return await node.events(arguments.query, after=arguments.after, before=arguments.before, limit=limit)


def _export_events(node: Operations, arguments: asked.ExportEvents) -> AsyncIterator[ExportView]:
    return node.export_events(_whole(arguments.file), peer=arguments.peer, force=arguments.force)


def _import_events(node: Operations, arguments: asked.ImportEvents) -> AsyncIterator[IntakeView]:
    return node.import_events(_whole(arguments.file))


def _whole(file: str) -> str:
    """A path that does not depend on where the node was started."""
    if not os.path.isabs(file):
        raise UsageError("name the file by its whole path: the node was started somewhere else")
    if "\0" in file:
        raise UsageError("no file has a zero byte in its name")
    return file


EVENTS: Final = Call("events", asked.Events, EventPage, _events, raises=(NotFoundError,))
NOTICES: Final = Call(
    "notices",
    asked.Notices,
    list[NoticeView],
    lambda node, a: node.notices(kind=a.kind, everything=a.everything),
    reads=True,
)
FOLLOW_NOTICES: Final = Stream(
    "follow-notices",
    asked.Notices,
    NoticeView,
    lambda node, a: node.follow_notices(kind=a.kind, everything=a.everything),
    reads=True,
)
ACKNOWLEDGE: Final = Call(
    "acknowledge",
    asked.Acknowledge,
    AcknowledgedView,
    lambda node, a: node.acknowledge(a.ids),
    raises=(NotFoundError,),
)
EXPORT_EVENTS: Final = Stream(
    "export-events", asked.ExportEvents, ExportView, _export_events, raises=(NotFoundError, BundleError)
)
IMPORT_EVENTS: Final = Stream(
    "import-events", asked.ImportEvents, IntakeView, _import_events, raises=(NotFoundError, BundleError)
)
