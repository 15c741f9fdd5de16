"""Drives one `Session` over a simulated link: effects in order, each job on the writer (contract of `sync.session`).

The process may die before any effect and between any two; nothing here is remembered beyond the link.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from support.store_jobs import Job, Lane, Reply, run_job

from meshnode.engine import links
from meshnode.engine.membership import accept_introduction_untrusted
from meshnode.engine.offer import Filter
from meshnode.engine.verify import verify_untrusted
from meshnode.errors import CloseCode, MeshError, ProtocolError
from meshnode.limits import INTRODUCE_S
from meshnode.model.delivery import PATH, Committed
from meshnode.model.frames import Batch, Live
from meshnode.sync.effects import (
    Advance,
    Close,
    Commit,
    Effect,
    Introduced,
    Notice,
    PeerBye,
    PeerHello,
    PeerWatermarks,
    RolledBack,
    SendControl,
    SendEvents,
)
from meshnode.sync.session import Session
from sim.network import Side
from sim.schedule import MS, SECOND, Timer

if TYPE_CHECKING:
    from sim.process import Process


class End:
    """One node's end of a link."""

    def __init__(self, process: Process, side: Side, *, admitted: bool) -> None:
        self.process, self.side, self.peer = process, side, side.peer
        self.lane = Lane(process.context, self.peer.site)
        self.session = Session(process.greeting(self.peer.site), self.peer.site, admitted=admitted)
        self.session.linked(process.linked_to, process.wall_ms())  # known before the first word on this link
        self._admitted = admitted
        self._timer: Timer | None = None
        self._noticed: dict[str, tuple[int, str]] = {}
        self._noting = False
        if admitted:
            self._start()
        else:  # two who know nothing of each other both wait
            process.after(INTRODUCE_S * SECOND, self._not_introduced, idle=True)

    # --- the link

    def control(self, data: bytes) -> None:
        """Bytes of the control stream arrived."""
        self._carry_out(self.session.control_untrusted(data, self._now_ms))

    def events(self, data: bytes) -> None:
        """Bytes of the peer's event stream arrived."""
        self._carry_out(self.session.events_untrusted(data, self._now_ms))

    def closed(self, code: CloseCode | None, reason: str, *, local: bool) -> None:
        """The link ended."""
        self.session.goodbye(code or CloseCode.DONE, reason)  # no effect of a job that is under way is carried out
        if self._timer is not None:
            self._timer.cancel()
        if code is CloseCode.NOT_A_MEMBER and not local:
            self.process.unknown_to.add(self.peer.site)
        self.process.unlinked(self)

    def close(self, code: CloseCode, reason: str) -> None:
        """End the link from here."""
        self._carry_out(self.session.goodbye(code, reason))
        self.side.close(code, reason)

    # --- the node

    def log_grew(self) -> None:
        """Something was committed by somebody else than this session."""
        self._carry_out(self.session.log_grew(self._now_ms))

    def tell_links(self) -> None:
        """Whom this node is linked to changed."""
        self._carry_out(self.session.linked(self.process.linked_to, self._now_ms))

    def ask(self) -> None:
        """Send what this node asks of the peer by now."""
        context, peer = self.process.context, self.peer.site
        self._submit(
            "outstanding",
            lambda: links.outstanding_requests(context, peer, PATH),
            lambda asked: self._carry_out(self.session.requests(asked, self._now_ms)),
        )

    # --- effects

    @property
    def _now_ms(self) -> int:
        return self.process.wall_ms()

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            self.process.may_die()
            if not self.side.alive:
                return
            match effect:
                case SendControl(data):
                    self.side.send_control(data)
                case SendEvents(data):
                    self.side.send_events(data)
                case Close(code, reason):
                    self.process.note(f"closes the link to {self.peer.number}: {code.name} {reason}")
                    self.process.node.world.happened[f"closed {code.name}"] += 1
                    self.side.close(code, reason)
                case PeerHello():
                    self._greeted(effect)
                case Notice(kind, text):
                    self._note(kind, text)
                case PeerWatermarks() | PeerBye():
                    pass
                case Introduced(records):
                    self._introduce(records)
                case RolledBack(claimed, everything):
                    self._rolled_back(claimed, everything)
                case _:
                    self._do(self._sized(effect))
        self._set_timer()

    def _start(self) -> None:
        context, peer = self.process.context, self.peer.site
        self._submit(
            "open link",
            lambda: links.open_link(context, peer, PATH),
            lambda state: self._carry_out(self.session.start(state, self._now_ms)),
        )

    def _do(self, job: Job) -> None:
        """A job of the session; received batches are verified before it is queued, as on a thread of their own."""
        checked = None
        if isinstance(job, Commit):
            self.process.node.world.happened["live frame"] += sum(isinstance(each.content, Live) for each in job.frames)
            snapshot = self.process.context.snapshot
            assert snapshot is not None
            checked = {
                frame.no: verify_untrusted(
                    frame.content.events,
                    mesh_id=snapshot.mesh_id,
                    keyring=snapshot.membership,
                    generation=snapshot.generation,
                )
                for frame in job.frames
                if isinstance(frame.content, Batch | Live)
            }
        lane = self.lane

        def done(outcome: tuple[Reply, Committed | None]) -> None:
            reply, committed = outcome
            self._carry_out(reply(self.session, self._now_ms))
            if committed is not None:
                self.process.committed(self, committed)

        self._submit(type(job).__name__, lambda: run_job(lane, job, checked), done, job)

    def _sized(self, job: Job) -> Job:
        """A job that stages, with frames of the run's size."""
        if isinstance(job, Advance):
            return replace(job, batch=min(job.batch, self.process.node.world.plan.batch_events))
        return job

    def _greeted(self, hello: PeerHello) -> None:
        self.lane = Lane(self.process.context, self.peer.site, Filter(hello.scope, hello.features))
        self.process.met.add(self.peer.site)
        self.process.unknown_to.discard(self.peer.site)
        self.process.tell_links()

    def _introduce(self, records: tuple[bytes, ...]) -> None:
        context, peer = self.process.context, self.peer

        def judge() -> bool:
            return context.transact(
                lambda tx: accept_introduction_untrusted(
                    context, tx, records, site=peer.site, public_key=peer.public_key
                )
            )

        def judged(member: bool) -> None:
            if not member:
                self.side.close(CloseCode.NOT_A_MEMBER, "the records shown do not make this site a member")
            elif not self._admitted:
                self._admitted = True
                self._start()
                self.process.membership_changed()

        self._submit("introduce", judge, judged)

    def _not_introduced(self) -> None:
        if not self._admitted:
            self.side.close(CloseCode.NOT_A_MEMBER, "not a member, and not introduced")

    def _rolled_back(self, claimed: object, everything: bool) -> None:
        context, peer = self.process.context, self.peer.site
        if claimed is not None:
            self.process.rolled_back(peer)
        self._submit(
            "ask own history",
            lambda: links.ask_own_history(context, peer, PATH, everything=everything),
            lambda asked: self._carry_out(self.session.requests(asked, self._now_ms)),
        )

    def _submit(self, name: str, work: Callable[[], Any], done: Callable[[Any], None], job: Job | None = None) -> None:
        """A job of this link: what it raises ends the link with its code and nothing else."""

        def failed(error: MeshError) -> None:
            self.process.note(f"{name} for {self.peer.number} failed: {error}")
            self.side.close(error.code if isinstance(error, ProtocolError) else CloseCode.INTERNAL, str(error))

        self.process.submit(name, work, done, failed, side=self.side, job=job)

    # --- notices and time

    def _note(self, kind: str, text: str) -> None:
        before = self._noticed.get(kind)
        self._noticed[kind] = (1 if before is None else before[0] + 1, text)
        if not self._noting:
            self._noting = True
            self._store_notices()

    def _store_notices(self) -> None:
        noticed, self._noticed = self._noticed, {}
        if not noticed:
            self._noting = False
            return
        context, peer = self.process.context, self.peer.site

        def store() -> None:
            with context.transaction():
                for kind, (count, text) in noticed.items():
                    context.notices.add(kind, peer, "", text, count)

        self._submit("notices", store, lambda _: self.process.after(SECOND, self._store_notices, idle=True))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due = self.session.next_timer()
        if due is not None and self.side.alive:
            delay_us = max(due - self._now_ms, 0) * MS
            self._timer = self.process.after(delay_us, self._tick, idle=delay_us > SECOND)

    def _tick(self) -> None:
        self._timer = None
        self._carry_out(self.session.timer(self._now_ms))
