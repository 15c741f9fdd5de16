"""Carries out the dialing plan: races the addresses of one target, a few targets at a time (profile §11)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from meshnode.errors import CloseCode, MeshError, TransportError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.net.addresses import Address
from meshnode.net.racing import STAGGER_S
from meshnode.node.dialing import DialPlan
from meshnode.node.dialtarget import Attempt

logger = logging.getLogger("meshnode.net")

# Dials one address and returns the site that answered, once the link to it is the one that counts; calls the third
# argument as soon as it has proven itself, since another link may have to be looked at first (profile §7); raises
# TransportError. Cancelling it leaves nothing behind.
Dial = Callable[[Address, bytes | None, Callable[[], None]], Awaitable[bytes]]


class Dialer:
    """Runs until cancelled. After any call to the plan from outside, call `wake`."""

    def __init__(
        self,
        plan: DialPlan,
        dial: Dial,
        *,
        now: Callable[[], float],
        on_worked: Callable[[bytes, Address], None],
        on_failed: Callable[[Attempt, str], None],
        stagger_s: float = STAGGER_S,
    ) -> None:
        self._plan = plan
        self._dial = dial
        self._now = now
        self._on_worked = on_worked
        self._on_failed = on_failed
        self._stagger_s = stagger_s
        self._changed = asyncio.Event()

    def wake(self) -> None:
        """The plan changed."""
        self._changed.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                for attempt in self._plan.due(self._now()):
                    group.create_task(self._try(attempt))
                due = self._plan.next_due()
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if due is None else max(0.0, due - self._now())):
                        await self._changed.wait()

    async def _try(self, attempt: Attempt) -> None:
        try:
            address, site = await self._race(attempt)
        except MeshError as error:
            refused = error if isinstance(error, TransportError) else TransportError("")
            self._plan.failed(attempt, self._now(), refused.code, refused.site, str(error), ours=refused.ours)
            self._on_failed(attempt, str(error))
        else:
            self._plan.succeeded(attempt, address, site, self._now())
            self._on_worked(site, address)
        finally:
            self.wake()

    async def _race(self, attempt: Attempt) -> tuple[Address, bytes]:
        """Start one address after the other, without waiting for a slow one; the first to answer wins.

        Where the site itself answered, and an old link to it is looked at first, no others are started: they would be
        further links.
        """
        waiting = list(attempt.addresses)
        running: dict[asyncio.Task[bytes], Address] = {}
        proven: set[Address] = set()
        errors: list[TransportError] = []
        try:
            while waiting or running:
                if waiting and proven.isdisjoint(running.values()):
                    address = waiting.pop(0)
                    dial = self._dial(address, attempt.expect_site, partial(proven.add, address))
                    running[asyncio.ensure_future(dial)] = address
                # Once all are started the wait is for whichever ends first; every dial is bounded by the handshake.
                limit = self._stagger_s if waiting and proven.isdisjoint(running.values()) else None
                done, _ = await asyncio.wait(running, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    address = running.pop(task)
                    error = TransportError("given up") if task.cancelled() else task.exception()
                    if error is None:
                        return address, task.result()
                    errors.append(self._judged(attempt, address, _as_transport(address, error)))
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        raise _worst(errors)

    def _judged(self, attempt: Attempt, address: Address, error: TransportError) -> TransportError:
        """Who else answers at an address says nothing lasting about the site that was looked for there."""
        if attempt.expect_site is None or error.site in (None, attempt.expect_site):
            return error
        self._plan.passed_over(attempt, address, error.site)
        return TransportError(str(error), None, error.site)


def _as_transport(address: Address, error: BaseException) -> TransportError:
    if isinstance(error, TransportError):  # one that the endpoint names the address in is whole already
        where = "" if str(error).startswith(f"{address.text()}: ") else f"{address.text()}: "
        return TransportError(f"{where}{error}", error.code, error.site, ours=error.ours)
    if isinstance(error, (MeshError, OSError)):
        return TransportError(f"{address.text()}: {error}")
    log_event(logger, logging.ERROR, LogEvent.FAULT, trace=error, work=f"dialing {address.text()}")
    return TransportError(f"{address.text()}: internal error ({type(error).__name__})")


def _worst(errors: list[TransportError]) -> TransportError:
    """What the site itself answered says more than an address at which nobody is."""
    if not errors:
        return TransportError("there is no address to dial")
    return next((error for error in errors if error.code not in (None, CloseCode.DONE)), errors[0])
