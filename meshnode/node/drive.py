"""Drives one peer's `Session` over its link: effects are carried out in order, jobs on the writer thread (profile §8).

The contract is that of `sync.session`: stream bytes leave at once, each job is one transaction whose answer is given
only after it is on disk, and nothing here is remembered beyond the link.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol

from meshnode.engine.offer import Filter
from meshnode.engine.verify import Checked
from meshnode.errors import CloseCode, CorruptStateError, MeshError, ProtocolError
from meshnode.limits import HANDSHAKE_S, UNCOMMITTED_BYTES
from meshnode.model.delivery import (
    Advanced,
    Committed,
    GroupName,
    LinkState,
    OutboundStream,
    Received,
    StagedFrame,
    Told,
)
from meshnode.model.frames import CompareFrame, Hello, Request
from meshnode.model.logevent import LogEvent, log_event
from meshnode.model.site import short_text
from meshnode.net.endpoint_ports import FULL_THERE, TOO_MANY_PEERS
from meshnode.net.link import Link
from meshnode.node.peering import Heard
from meshnode.node.verifyahead import VerifyAhead, verified
from meshnode.sync.effects import (
    Advance,
    Answer,
    Close,
    Commit,
    Effect,
    Introduced,
    NewEpoch,
    Notice,
    PeerBye,
    PeerCompares,
    PeerHello,
    PeerWatermarks,
    Resend,
    RolledBack,
    SendControl,
    SendEvents,
)
from meshnode.sync.session import Session

NOTICE_PAUSE_S = 1.0  # seconds between two writes of what one link surfaced
TOLD_PAUSE_S = 10.0  # seconds between two writes of the watermarks that one peer told; memory knows them at once

logger = logging.getLogger("meshnode.node")


class Jobs(Protocol):
    """The store calls of a session, each one transaction on the writer thread (`node.jobs`)."""

    async def open_link(self, peer: bytes) -> LinkState: ...

    async def advance(self, peer: bytes, job: Advance, offered: Filter) -> Advanced | None: ...

    async def resend(self, peer: bytes, job: Resend, offered: Filter) -> tuple[StagedFrame, ...] | None: ...

    async def open_epoch(self, peer: bytes, job: NewEpoch) -> OutboundStream | None: ...

    async def queue_answer(self, peer: bytes, request: Request, offered: Filter) -> bool: ...

    def verify(self, frame: Received) -> Future[Sequence[Checked]]: ...

    async def receive(self, peer: bytes, job: Commit, checked: Mapping[int, Sequence[Checked]]) -> Committed | None: ...

    async def introduce(self, peer: bytes, public_key: bytes, shown: tuple[bytes, ...]) -> bool: ...

    async def own_end(self, peer: bytes, shown: tuple[bytes, ...]) -> bool: ...

    async def ask_own_history(self, peer: bytes, *, everything: bool) -> tuple[bytes, ...]: ...

    async def surface_all(self, peer: bytes, noticed: Mapping[str, tuple[int, str]]) -> None: ...

    async def heard(self, peer: bytes, hello: Hello, clock_offset_ms: int) -> None: ...

    async def told(self, peer: bytes, told: Mapping[GroupName, Told], *, anew: bool) -> None: ...


@dataclass(frozen=True, slots=True)
class Ending:
    """How a link ended."""

    code: CloseCode | None
    reason: str
    local: bool  # this node closed it

    @property
    def name(self) -> str:
        """The close code in words, `silent` where there was none."""
        return "silent" if self.code is None else self.code.name.lower().replace("_", "-")

    @property
    def by(self) -> str:
        """Who closed it."""
        return "here" if self.local else "peer"

    @property
    def why(self) -> str:
        """What an operator needs to know of it; an ordinary end needs no word."""
        if self.code in (None, CloseCode.DONE, CloseCode.SHUTTING_DOWN, CloseCode.DUPLICATE):
            return ""
        if self.code is CloseCode.RETIRED and not self.local:
            return "it says that this device was retired"
        if self.code is CloseCode.LIMIT and self.reason == TOO_MANY_PEERS and not self.local:
            return FULL_THERE
        return f"the last link ended: {self.reason or self.code.name.lower().replace('_', ' ')}"


@dataclass(frozen=True, slots=True)
class Hooks:
    """What the node wants to hear of a link."""

    started: Callable[[PeerDriver], Awaitable[None]]  # it is the one link to its site now; returns when it may open
    greeted: Callable[[PeerDriver, Hello], None]
    committed: Callable[[PeerDriver, Committed], None]  # after a commit that may concern others
    moved: Callable[[PeerDriver], None]  # something settled or was told: whoever waits looks again
    ended: Callable[[PeerDriver, Ending], None]
    rolled_back: Callable[[PeerDriver], None]  # a peer knows later events of this site than are here
    compared: Callable[[PeerDriver, CompareFrame], None]  # a frame of a comparison; ProtocolError ends the link
    own_end: Callable[[PeerDriver], None]  # a peer showed that this device was retired


class PeerDriver:
    """One live link and its session, from `start` until the link ends."""

    def __init__(self, link: Link, session: Session, jobs: Jobs, hooks: Hooks, now_ms: Callable[[], int]) -> None:
        self.link = link
        self.session = session
        self.offered = Filter()  # until the hello said what the peer wants
        self.clock_offset_ms = 0
        self.farewell = ""  # why the peer said it leaves
        self._fault = ""  # what failed at this end: for its owner, and nothing to a peer
        self._jobs = jobs
        self._hooks = hooks
        self._now_ms = now_ms
        self._noticed: dict[str, tuple[int, str]] = {}  # kind to how often and the last text, not stored yet
        self._noting = False
        self._telling = False  # what the peer told is being stored
        self._told_before = False  # something that it told on this link is stored
        self._ahead = VerifyAhead(jobs.verify)
        self._over = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._started = False
        link.on_control = self._control
        link.on_events = self._events
        link.on_closed = self._closed
        link.on_live = self.start

    @property
    def peer(self) -> bytes:
        """The site at the other end."""
        return self.link.site

    # --- the link's life

    def start(self) -> None:
        """The link is the one to this site: read what the store holds of it and say hello."""
        if not self._started and not self.link.closed:
            self._started = True
            self._spawn(self._open())

    def goodbye(self, code: CloseCode, reason: str) -> None:
        """Leave politely."""
        self._carry_out(self.session.goodbye(code, reason))
        if not self.link.closed:
            self.link.close(code, reason)

    def log_grew(self) -> None:
        """Something was committed by somebody else than this session."""
        self._carry_out(self.session.log_grew(self._now_ms()))

    def linked(self, sites: Iterable[bytes]) -> None:
        """Whom this node is linked to by now."""
        self._carry_out(self.session.linked(sites, self._now_ms()))

    def hurry(self) -> None:
        """Somebody waits for the peer to have everything."""
        self._carry_out(self.session.hurry(self._now_ms()))

    def requests(self, bodies: Iterable[bytes]) -> None:
        """What this node asks of the peer now."""
        self._carry_out(self.session.requests(bodies, self._now_ms()))

    def compare(self, frame: CompareFrame) -> None:
        """Say this in a comparison."""
        self._carry_out(self.session.compare(frame))

    def publish(self, allowed: bool) -> None:
        """Whether this node may offer anything."""
        self._carry_out(self.session.publish(allowed, self._now_ms()))

    def wake(self) -> None:
        """A cycle is wanted now."""
        self._carry_out(self.session.wake(self._now_ms()))

    def policy_changed(self, *, widened: bool) -> None:
        """What may be offered is another now."""
        self._carry_out(self.session.policy_changed(self._now_ms(), widened=widened))

    async def stopped(self) -> None:
        """Wait for jobs under way: what they commit is theirs to finish."""
        while pending := [task for task in self._tasks if not task.done()]:
            await asyncio.wait(pending)

    # --- bytes in

    def _control(self, data: bytes) -> None:
        self._carry_out(self.session.control_untrusted(data, self._now_ms()))
        self._bound()

    def _events(self, data: bytes) -> None:
        self._carry_out(self.session.events_untrusted(data, self._now_ms()))
        self._bound()
        self._ahead.begin(self.session.queued)

    def _bound(self) -> None:
        """Back-pressure: what is not on disk yet keeps the peer from sending more (profile §13)."""
        if self.session.uncommitted_bytes > UNCOMMITTED_BYTES:
            self.link.pause()
        else:
            self.link.resume()

    def _closed(self, code: CloseCode | None, reason: str, local: bool) -> None:
        for timer in (self._timer, self._deadline):
            if timer is not None:
                timer.cancel()
        self._over.set()
        self.session.goodbye(code or CloseCode.DONE, reason)  # no further effect of a job may be carried out
        self._ahead.begin(())
        ending = Ending(code, self._fault or self.farewell or reason, local)
        self._say(LogEvent.LINK_DOWN, code=ending.name, by=ending.by, reason=ending.reason)
        self._hooks.ended(self, ending)

    def _say(self, event: LogEvent, **values: str) -> None:
        log_event(logger, logging.INFO, event, trace=False, peer=short_text(self.peer), **values)

    # --- effects out

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendControl(data):
                    self.session.counts.sent(data)
                    self.link.send_control(data)
                case SendEvents(data):
                    self.session.counts.sent(data)
                    self.link.send_events(data)
                case Close(code, reason):
                    self.link.close(code, reason)
                case PeerBye(_, reason):
                    self.farewell = reason
                case PeerWatermarks():
                    self._keep_told()
                    self._hooks.moved(self)
                case PeerHello():
                    self._greet(effect)
                case PeerCompares(frame):
                    self._compared_untrusted(frame)
                case Notice(kind, text):
                    self._note(kind, text)
                case Commit():
                    self._spawn(self._commit(effect, self._ahead.take(effect.frames)))
                case _:
                    self._spawn(self._work(effect))
        self._set_timer()

    def _compared_untrusted(self, frame: CompareFrame) -> None:
        try:
            self._hooks.compared(self, frame)
        except ProtocolError as error:
            self.link.close(error.code, str(error))

    def _greet(self, effect: PeerHello) -> None:
        self.offered = Filter(scope=effect.scope, features=effect.features)
        self.clock_offset_ms = effect.clock_offset_ms
        self.link.boot = effect.hello.boot
        self._spawn(self._jobs.heard(self.peer, effect.hello, effect.clock_offset_ms))
        self._say(LogEvent.LINK_UP, address=self.link.remote_address)
        self._hooks.greeted(self, effect.hello)

    async def _open(self) -> None:
        await self._hooks.started(self)
        state = await self._jobs.open_link(self.peer)
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_S, self._greeting_due)
        self._carry_out(self.session.start(state, self._now_ms()))
        self._bound()

    async def _work(self, effect: Effect) -> None:
        """One job or note: the store call, then the input that answers it."""
        match effect:
            case Introduced(records):
                await self._introduce(records)
            case RolledBack(claimed, everything):
                if claimed is not None:
                    self._hooks.rolled_back(self)
                self.requests(await self._jobs.ask_own_history(self.peer, everything=everything))
            case _:
                await self._send_job(effect)

    async def _commit(self, job: Commit, begun: dict[int, Future[Sequence[Checked]]]) -> None:
        result = await self._jobs.receive(self.peer, job, await verified(begun))
        self._carry_out(self.session.committed(result, self._now_ms()))
        self._bound()
        if result is not None:
            self._hooks.committed(self, result)

    async def _send_job(self, job: Effect) -> None:
        """A job of our own stream; state that cannot be read stops that stream and nothing else (NEOTH)."""
        try:
            effects = await self._sent(job)
        except CorruptStateError as error:
            effects = self.session.stream_failed(str(error), self._now_ms())
        self._carry_out(effects)
        self._hooks.moved(self)

    async def _sent(self, job: Effect) -> list[Effect]:
        match job:
            case Advance():
                return self.session.advanced(await self._jobs.advance(self.peer, job, self.offered), self._now_ms())
            case Resend():
                return self.session.resent(await self._jobs.resend(self.peer, job, self.offered), self._now_ms())
            case NewEpoch():
                return self.session.epoch_opened(await self._jobs.open_epoch(self.peer, job), self._now_ms())
            case Answer(request):
                stored = await self._jobs.queue_answer(self.peer, request, self.offered)
                return self.session.answer_stored(stored, self._now_ms())
        raise AssertionError(f"no job: {job!r}")

    async def _introduce(self, records: tuple[bytes, ...]) -> None:
        """The walk decides whether the records make the peer a member (profile §7), or this device none (§13)."""
        if self.link.admitted and await self._jobs.own_end(self.peer, records):
            self._hooks.own_end(self)
        elif self.link.admitted or await self._jobs.introduce(self.peer, self.link.public_key, records):
            self.link.admit()
        else:
            self.link.close(CloseCode.NOT_A_MEMBER, "the records shown do not make this site a member")

    # --- notices

    def _note(self, kind: str, text: str) -> None:
        """Gather what one link surfaces: a peer that breaks a rule all the time costs one write a second."""
        before = self._noticed.get(kind)
        self._noticed[kind] = (1 if before is None else before[0] + 1, text)
        if not self._noting:
            self._noting = True
            self._spawn(self._store_notices())

    async def _store_notices(self) -> None:
        while self._noticed:
            noticed, self._noticed = self._noticed, {}
            await self._jobs.surface_all(self.peer, noticed)
            with suppress(TimeoutError):
                async with asyncio.timeout(NOTICE_PAUSE_S):
                    await self._over.wait()
        self._noting = False

    # --- watermarks of the peer

    def _keep_told(self) -> None:
        """Store what the peer told now and then: evidence for people, which the next start still has."""
        if not self._telling:
            self._telling = True
            self._spawn(self._store_told())

    async def _store_told(self) -> None:
        while (told := self.session.take_told()) or not self._told_before:  # its first word counts, an empty one too
            anew, self._told_before = not self._told_before, True
            await self._jobs.told(self.peer, told, anew=anew)
            with suppress(TimeoutError):
                async with asyncio.timeout(TOLD_PAUSE_S):
                    await self._over.wait()
        self._telling = False

    # --- time and tasks

    def _greeting_due(self) -> None:
        """A peer that never says hello holds a link for nothing."""
        if self.session.hello is None:
            self.link.close(CloseCode.PROTOCOL_ERROR, f"no hello within {HANDSHAKE_S:g} s")

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.session.next_timer()
        if due is not None and not self.link.closed:
            seconds = max(0.0, (due - self._now_ms()) / 1000)
            self._timer = asyncio.get_running_loop().call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._carry_out(self.session.timer(self._now_ms()))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[None, None, None]) -> None:
        """What a job raises ends the link with its code and nothing else."""
        try:
            await work
        except ProtocolError as error:
            self.link.close(error.code, str(error))
        except MeshError as error:
            log_event(logger, logging.ERROR, LogEvent.LINK_FAULT, peer=short_text(self.peer), reason=str(error))
            self._fault = self._fault or str(error)
            self.link.close(CloseCode.INTERNAL, "internal error")
        except Exception:
            log_event(logger, logging.ERROR, LogEvent.LINK_FAULT, trace=True, peer=short_text(self.peer))
            self.link.close(CloseCode.INTERNAL, "internal error")


def heard_on(driver: PeerDriver, before: Heard) -> Heard:
    """What is known of a peer by now, on its live link."""
    greeted = driver.session.hello is not None
    return replace(
        before,
        linked=greeted and not driver.link.closed,
        address=driver.link.remote_address,
        opened_by_us=driver.link.opened_by_us,
        note="",
        told=dict(driver.session.peer_watermarks),
        newest=None if driver.session.peer_told else before.newest,
        offered=driver.offered if greeted else None,
        links=driver.session.peer_links or frozenset(),
        stopped=driver.session.stopped,
    )
