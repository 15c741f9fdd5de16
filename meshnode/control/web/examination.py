"""The checks of `doctor`, run when somebody asks: one run at a time, which every open page shares and sees go on.

A run reads the whole database and listens to the network, so pages that are opened begin none while there is one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from meshnode.control.answering import unless_stopped
from meshnode.control.web.live import Hub, Wake
from meshnode.errors import MeshError
from meshnode.model.logevent import LogEvent, log_event
from meshnode.node.api import Operations
from meshnode.node.doctor.checks import CHECKS, chosen
from meshnode.node.doctorviews import FAIL, FindingView, worst

LOG = logging.getLogger("meshnode.dashboard")
NAMES: Final = tuple(check.name for check in CHECKS)


@dataclass(frozen=True, slots=True)
class Looked:
    """What one check found, and when."""

    check: str
    findings: Sequence[FindingView]
    at_ms: int

    @property
    def verdict(self) -> str:
        """The worst of it."""
        return worst(self.findings)


class Examination:
    """What the checks found last, and the run that goes on, if there is one."""

    def __init__(self, operations: Operations, hub: Hub, now_ms: Callable[[], int]) -> None:
        self._operations = operations
        self._hub = hub
        self._now_ms = now_ms
        self._run: asyncio.Task[None] | None = None
        self.looked: dict[str, Looked] = {}
        self.wanted: tuple[str, ...] = ()  # of the run that goes on, or that was last
        self.done = 0  # how many of these have told what they found

    @property
    def running(self) -> bool:
        """Whether checks are being made."""
        return self._run is not None and not self._run.done()

    @property
    def begun(self) -> bool:
        """Whether anybody asked ever."""
        return self._run is not None

    @property
    def current(self) -> str:
        """The check that is being made, empty where none is."""
        return self.wanted[self.done] if self.running and self.done < len(self.wanted) else ""

    def begin(self, names: Sequence[str] = ()) -> bool:
        """Run these checks, or all; False where some are being run, and these are not. UsageError for no check."""
        wanted = tuple(check.name for check in chosen(names))
        if self.running:
            return False
        self.wanted, self.done = wanted, 0
        self._run = asyncio.create_task(self._look(wanted), name="meshnode-dashboard-doctor")
        self._hub.wake(Wake.CHECKS)
        return True

    async def _look(self, names: Sequence[str]) -> None:
        for name in names:
            if self._hub.stopping.is_set():
                return
            self.looked[name] = Looked(name, await self._findings(name), self._now_ms())
            self.done += 1
            self._hub.wake(Wake.CHECKS)
            await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(self._hub.wake, Wake.CHECKS)  # by then it does not go on any more

    async def _findings(self, name: str) -> Sequence[FindingView]:
        try:
            found = await unless_stopped(self._operations.doctor([name]), self._hub.stopping)
        except MeshError as error:
            return [FindingView(check=name, verdict=FAIL, found=f"this could not be looked at: {error}")]
        except Exception:
            log_event(LOG, logging.ERROR, LogEvent.FAULT, trace=True, work=f"the check {name}")
            return [FindingView(check=name, verdict=FAIL, found="this check failed itself: the node's log says more")]
        return found.findings
