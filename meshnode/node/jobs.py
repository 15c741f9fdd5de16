"""The store calls that links and pairing make: each is one transaction, in its peer's turn of the writer (§8, §10)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TypeVar

from meshnode.engine import identity, inbox, invites, links, outbox
from meshnode.engine.context import Context
from meshnode.engine.engine import Engine
from meshnode.engine.invites import Admission, Waiting
from meshnode.engine.membership import (
    accept_introduction_untrusted,
    accept_own_end_untrusted,
    introduction_of,
    proof_of_end_of,
)
from meshnode.engine.offer import Filter
from meshnode.engine.told import keep_told_untrusted
from meshnode.engine.verify import Checked
from meshnode.errors import CloseCode
from meshnode.limits import CLOCK_OFFSET_NOTICE_MS
from meshnode.model.delivery import (
    PATH,
    Advanced,
    Committed,
    GroupName,
    LinkState,
    OutboundStream,
    Received,
    StagedFrame,
    Told,
)
from meshnode.model.frames import Batch, Hello, Live, Request
from meshnode.model.pairing import Proof
from meshnode.model.scope import Scope
from meshnode.node.bell import Bell
from meshnode.node.storage import Storage, wall_ms
from meshnode.node.verifiers import Door, finished
from meshnode.store import invites as stored_invites
from meshnode.store import notices, peers
from meshnode.store.database import Tx
from meshnode.store.writer import OWN
from meshnode.sync.effects import Advance, Commit, NewEpoch, Resend

T = TypeVar("T")

STRANGERS = b""  # the lane of joiners: all of them together have one turn


class StoreJobs:
    """Implements `node.drive.Jobs` and `node.ceremony.Desk` over the node's storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    # --- a session's jobs

    async def open_link(self, peer: bytes) -> LinkState:
        """What a new session starts from."""
        return await self._run(peer, lambda context: links.open_link(context, peer, PATH))

    async def advance(self, peer: bytes, job: Advance, offered: Filter) -> Advanced | None:
        """Settle acks and stage further frames."""
        return await self._run(
            peer,
            lambda context: outbox.advance(
                context,
                peer,
                PATH,
                epoch=job.epoch,
                settled=job.settled,
                known_no=job.known_no,
                room=job.room,
                retry=job.retry,
                watermarks=job.watermarks,
                offered=offered,
                batch=job.batch,
                live_after=job.live_after,
                live_room=job.live_room,
                linked=job.linked,
                offer_to=job.offer_to,
            ),
        )

    async def resend(self, peer: bytes, job: Resend, offered: Filter) -> tuple[StagedFrame, ...] | None:
        """Staged frames again, byte for byte."""
        return await self._run(
            peer,
            lambda context: outbox.resend(context, peer, PATH, epoch=job.epoch, from_no=job.from_no, offered=offered),
        )

    async def open_epoch(self, peer: bytes, job: NewEpoch) -> OutboundStream | None:
        """Begin another epoch."""
        return await self._run(
            peer, lambda context: outbox.open_epoch(context, peer, PATH, expected=job.expected, at=job.at)
        )

    async def queue_answer(self, peer: bytes, request: Request, offered: Filter) -> bool:
        """Queue what the peer asked for."""
        return await self._run(
            peer, lambda context: outbox.queue_answer(context, peer, PATH, request, offers=offered.offers)
        )

    def verify(self, frame: Received) -> Future[Sequence[Checked]]:
        """The door's first step for one batch, off the event loop and off the writer."""
        snapshot = self._storage.engine.context.snapshot
        assert snapshot is not None
        if not isinstance(frame.content, Batch | Live):
            return finished([])
        return self._storage.verify(
            frame.content.events, Door(snapshot.mesh_id, snapshot.membership, snapshot.generation)
        )

    async def receive(self, peer: bytes, job: Commit, checked: Mapping[int, Sequence[Checked]]) -> Committed | None:
        """Commit what was verified."""
        return await self._run(
            peer,
            lambda context: inbox.receive(
                context,
                peer,
                PATH,
                adopt=job.adopt,
                epoch=job.epoch,
                frames=job.frames,
                scope=context.policy.scope,
                checked=checked,
                claims=job.claims,
            ),
        )

    async def introduce(self, peer: bytes, public_key: bytes, shown: tuple[bytes, ...]) -> bool:
        """Keep the records that a site shows, if with ours they make it a member (profile §7)."""
        return await self._transact(
            peer,
            lambda context, tx: accept_introduction_untrusted(context, tx, shown, site=peer, public_key=public_key),
        )

    async def own_end(self, peer: bytes, shown: tuple[bytes, ...]) -> bool:
        """Keep the records that a member shows, if with ours they retire this device (profile §13)."""
        return await self._transact(peer, lambda context, tx: accept_own_end_untrusted(context, tx, shown, peer=peer))

    async def proof_of_end(self, site: bytes) -> tuple[bytes, ...]:
        """The records by which a retired site sees that it is."""
        return await self._transact(site, lambda context, tx: tuple(proof_of_end_of(context, tx, site)))

    async def ask_own_history(self, peer: bytes, *, everything: bool) -> tuple[bytes, ...]:
        """This node was restored from an old copy: ask for its own events, or for all."""
        return await self._run(peer, lambda context: links.ask_own_history(context, peer, PATH, everything=everything))

    async def outstanding(self, peer: bytes) -> tuple[bytes, ...]:
        """All that this node asks of a peer now."""
        return await self._run(peer, lambda context: links.outstanding_requests(context, peer, PATH))

    async def introduction(self) -> tuple[bytes, ...]:
        """The records that make this node a member."""
        return await self._transact(OWN, lambda context, tx: tuple(introduction_of(context, tx, context.site)))

    # --- what is known of peers

    async def surface(self, kind: str, peer: bytes | None, text: str) -> None:
        """Store a notice."""
        await self._transact(peer, lambda context, tx: context.surface(tx, kind, peer, text))

    async def over(self, kind: str) -> None:
        """The condition of a notice about this node itself came to its end."""

        def end(_context: Context, tx: Tx) -> None:
            if notices.stands(tx, kind):
                notices.end(tx, kind)

        await self._transact(OWN, end)

    async def said_retired(self, peer: bytes, text: str) -> None:
        """A peer said that this device was retired: worth a notice unless the records that say so are here by now."""

        def store(context: Context, tx: Tx) -> None:
            if context.membership.retired(context.site) is None:
                context.surface(tx, "retired-claim", peer, text)

        await self._transact(peer, store)

    async def twin_seen(self, text: str) -> None:
        """Another copy of this node runs: keep that until its owner chose."""
        await self._run(OWN, identity.twin_seen)
        await self.surface("twin", None, text)

    async def surface_all(self, peer: bytes, noticed: Mapping[str, tuple[int, str]]) -> None:
        """Store what one link surfaced: how often each kind, and its last text."""

        def store(context: Context, _tx: Tx) -> None:
            for kind, (count, text) in noticed.items():
                context.notices.add(kind, peer, "", text, count)

        await self._transact(peer, store)

    async def seen(self, peer: bytes) -> None:
        """Keep when a peer was here last."""
        await self._transact(peer, lambda context, tx: peers.seen(tx, peer, context.env.wall_ms()))

    async def heard(self, peer: bytes, hello: Hello, clock_offset_ms: int) -> None:
        """Keep what a hello said."""

        def store(context: Context, tx: Tx) -> None:
            now_ms = context.env.wall_ms()
            row = peers.PeerRow(peer, hello.name, hello.software, now_ms, clock_offset_ms)
            peers.heard(tx, row, Scope(tuple(hello.scope)))
            if abs(clock_offset_ms) < CLOCK_OFFSET_NOTICE_MS:
                notices.end(tx, "clock-offset", peer)  # one of the two was set right

        await self._transact(peer, store)

    async def told(self, peer: bytes, told: Mapping[GroupName, Told], *, anew: bool) -> None:
        """Keep what watermarks said."""
        await self._transact(peer, lambda context, tx: keep_told_untrusted(context, tx, peer, told, anew=anew))

    async def worked(self, site: bytes, address: str) -> None:
        """Keep an address that led to a member (profile §11)."""
        await self._transact(site, lambda context, tx: peers.worked(tx, site, address, context.env.wall_ms()))

    # --- the inviter's desk

    async def refusal(self, invite_id: bytes, public_key: bytes) -> CloseCode | None:
        """Why a joiner may not try this invite."""
        return await self._transact(STRANGERS, lambda context, tx: invites.refusal(context, tx, invite_id, public_key))

    async def settle(self, invite_id: bytes, proof: Proof, name: str) -> Admission | Waiting | CloseCode:
        """Check the proof, consume the invite and vouch, at once."""
        return await self._transact(STRANGERS, lambda context, tx: invites.settle(context, tx, invite_id, proof, name))

    async def decided(self, invite_id: bytes, seconds: float) -> bool:
        """Whether the person that is asked about a candidate has answered; waits for that at most so long."""
        rung = self._storage.changed.listen()

        def look(tx: Tx) -> bool:
            invite = stored_invites.get(tx, invite_id)
            return invite is None or not invite.asks(wall_ms())

        if await self._storage.read(look):
            return True
        await Bell.wait(rung, seconds)
        return False

    async def nearby_refusal(self, public_key: bytes) -> CloseCode | None:
        """Why a nearby site could not be let in whatever people say."""
        return await self._transact(STRANGERS, lambda context, _tx: invites.cannot_admit(context, public_key))

    async def let_in(self, public_key: bytes, name: str) -> tuple[bytes, ...] | CloseCode:
        """Vouch for a nearby site; the records that it begins with."""

        def vouch(context: Context, tx: Tx) -> tuple[bytes, ...] | CloseCode:
            cannot = invites.cannot_admit(context, public_key)
            if cannot is not None:
                return cannot
            invites.admit(context, tx, public_key, name, "nearby")
            return invites.records_for(context, tx, public_key)

        return await self._transact(STRANGERS, vouch)

    # --- how

    async def _run(self, lane: bytes | None, job: Callable[[Context], T]) -> T:
        return await self._storage.write(lambda engine: job(engine.context), lane)

    async def _transact(self, lane: bytes | None, job: Callable[[Context, Tx], T]) -> T:
        def run(engine: Engine) -> T:
            context = engine.context
            return context.transact(lambda tx: job(context, tx))

        return await self._storage.write(run, lane)
