"""Serves metrics on a TCP port of the loopback interface, where `metrics_port` of the settings names one.

No token: whoever may open a socket on this machine may read them, and there is nothing secret in them. A web page may
not: a browser names in `Host` what the page's owner made to point here, and only this machine's own names are answered.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from meshnode.control.serving import loopback_listener, serving
from meshnode.errors import ConfigError, MeshError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.node.api import Operations
from meshnode.node.metricviews import CONTENT_TYPE, exposition

LOG = logging.getLogger("meshnode.metrics")
HOSTS = ("127.0.0.1", "localhost")


def metrics_app(operations: Operations) -> Starlette:
    """`GET /metrics`, and nothing else."""

    async def scrape(_request: Request) -> Response:
        try:
            return Response(exposition(await operations.metrics()), media_type=CONTENT_TYPE)
        except MeshError as error:
            return PlainTextResponse(f"{error}\n", 503)

    guard = Middleware(TrustedHostMiddleware, allowed_hosts=list(HOSTS), www_redirect=False)
    return Starlette(routes=[Route("/metrics", scrape, methods=["GET"])], middleware=[guard])


@asynccontextmanager
async def metrics_port(operations: Operations, port: int) -> AsyncIterator[None]:
    """While it is entered; with port 0 nothing listens, nor where the port is taken, which is logged.

    Rows go on crossing the mesh whoever may look on: a node stops for no exporter that was there first.
    """
    try:
        listener = loopback_listener(port, "metrics_port") if port else None
    except ConfigError as error:
        log_event(LOG, logging.WARNING, LogEvent.PORT_REFUSED, port=port, reason=str(error))
        listener = None
    if listener is None:
        yield
        return
    async with serving(metrics_app(operations), listener, asyncio.Event()):
        yield
