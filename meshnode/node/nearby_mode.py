"""A member opened to nearby devices: for a short time, one comparison per opening (§10, §13).

Guests come as they like until one has revealed its nonce: somebody silent keeps nobody out. It has an endpoint of its
own, whose bindings name no mesh; the node's own endpoint never answers `ssp-near/1`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

import msgspec

from meshnode.errors import CloseCode, MeshError, NotFoundError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.model.nearby import NO_MESH, NONCE_BYTES, End, NearbyEnds
from meshnode.model.site import short_text, site_text
from meshnode.net.endpoint import Admission, Endpoint, EndpointIdentity, Link
from meshnode.node.interfaces import addresses_of
from meshnode.node.nearby import Comparison
from meshnode.node.nearby_ceremony import BUSY, Hosting, NearbyDesk, Visit, endpoint_config, host_over
from meshnode.node.pairing_views import CandidateView, NearbyView
from meshnode.node.settings import NetworkSettings
from meshnode.node.storage import wall_ms

logger = logging.getLogger("meshnode.nearby")


class Around(Protocol):
    """What an opening needs of the node's network."""

    @property
    def port(self) -> int:
        """Where it listens for `ssp/1`."""

    @property
    def desk(self) -> NearbyDesk:
        """The store."""

    def announce_nearby(self, port: int) -> str:
        """Say on the local network that this device is open there, 0: not any more; `on`, or why nobody hears it."""

    async def joined(self) -> None:
        """Somebody was vouched for."""


class PairingMode:
    """One opening; `view` is what people see of it, and `changed` is called whenever that is another."""

    def __init__(self, settings: NetworkSettings, founder: bytes, around: Around, changed: Callable[[], None]) -> None:
        self.view = NearbyView(state="closed")
        self._settings = settings
        self._founder = founder
        self._around = around
        self._changed = changed
        self._endpoint: Endpoint | None = None
        self._visits: set[asyncio.Task[None]] = set()  # as many as the endpoint has strangers, and the end
        self._compared = False  # this opening's digits were given out
        self._closing: asyncio.Task[None] | None = None
        self._answer: asyncio.Future[bool] | None = None
        self._expiry: asyncio.TimerHandle | None = None

    async def open(self, ttl_ms: int) -> None:
        """Listen and announce. TransportError where no port can be had."""
        listen = self._settings.config.listen
        self._endpoint = await Endpoint.create(
            "" if listen == "::" else listen,
            0,
            identity=EndpointIdentity.create(NO_MESH, self._settings.key, wall_ms()),
            admit=lambda _site, _key, _alpn: Admission.UNKNOWN,
            on_link=self._came,
            on_notice=lambda _kind, _site, _text: None,
            config=endpoint_config(),
        )
        port = self._endpoint.port
        self._expiry = asyncio.get_running_loop().call_later(ttl_ms / 1000, self._expire)
        announced, addresses = self._around.announce_nearby(port), addresses_of(self._settings.config, port)
        self._show(state="open", until_ms=wall_ms() + ttl_ms, addresses=addresses, announced=announced)

    def answer(self, code: str, yes: bool) -> NearbyView:
        """The word of the person here on these digits; NotFoundError where they are not to be compared now."""
        if self._answer is None or self._answer.done() or code != self.view.code:
            raise NotFoundError("these digits are not to be compared any more")
        self._answer.set_result(yes)
        if yes:
            self._show(state="agreed")
        return self.view

    async def close(self, reason: str) -> None:
        """Let nobody in any more; safe to call twice."""
        await self._end_visits()
        agreed = self.view.state == "agreed"
        await self._shut("closed", reason)
        if self._closing is not None:
            await self._closing
        if agreed:
            await self._around.joined()  # the vouch may be on disk already, or not: what is there counts

    # --- how it goes

    def _came(self, link: Link) -> None:
        if self._compared or self.view.state != "open":
            link.close(CloseCode.LIMIT, BUSY)
            return
        ends = NearbyEnds(End(self._settings.key.public_key, link.own_spki), End(link.public_key, link.spki))
        hosting = Hosting(
            self._settings.mesh_id,
            self._founder,
            self._settings.name,
            secrets.token_bytes(NONCE_BYTES),
            self._around.port,
            lambda: self._turn(link),
        )
        ceremony = host_over(link, ends, self._around.desk, hosting, lambda comparison: self._ask(link, comparison))
        self._begin(self._host(ceremony)).add_done_callback(lambda _: ceremony.close())  # it may never have begun

    def _begin(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._visits.add(task)
        task.add_done_callback(self._visits.discard)
        return task

    def _turn(self, link: Link) -> bool:
        """Whether it is this guest's digits; from here on strangers do not push it out."""
        if self._compared or self._endpoint is None:
            return False
        self._compared = True
        self._endpoint.keep(link)
        return True

    async def _host(self, ceremony: Coroutine[Any, Any, Visit]) -> None:
        try:
            visit = await ceremony
        except MeshError as error:
            visit = Visit("", True, reason=str(error))
        except Exception:
            log_event(logger, logging.ERROR, LogEvent.FAULT, trace=True, work="a nearby ceremony")
            visit = Visit("", True, reason="internal error: the node's log says more")
        if visit.joined:
            await self._around.joined()
        if visit.compared:
            await self._shut("joined" if visit.joined else "closed", visit.reason)

    async def _ask(self, link: Link, comparison: Comparison) -> bool:
        who = CandidateView(
            site=site_text(link.site), short=short_text(link.site), name=comparison.name, since_ms=wall_ms()
        )
        self._answer = asyncio.get_running_loop().create_future()
        self._around.announce_nearby(0)
        self._show(state="asks", code=comparison.code, who=who)
        return await self._answer

    def _expire(self) -> None:
        """The time is over; digits that are being compared have a bound of their own."""
        if self.view.state == "open":
            self._begin(self._end())

    async def _end(self) -> None:
        await self._end_visits()
        await self._shut("closed", "nobody came in time")

    async def _end_visits(self) -> None:
        visits = self._visits - {asyncio.current_task()}
        for visit in visits:
            visit.cancel()
        await asyncio.gather(*visits, return_exceptions=True)

    async def _shut(self, state: str, reason: str) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is None:
            return
        self._around.announce_nearby(0)
        self._show(state=state, reason=reason, code="")
        self._closing = asyncio.get_running_loop().create_task(endpoint.close())
        await asyncio.shield(self._closing)  # who is cancelled here leaves no socket behind

    def _show(self, **changes: Any) -> None:
        self.view = msgspec.structs.replace(self.view, **changes)
        self._changed()
