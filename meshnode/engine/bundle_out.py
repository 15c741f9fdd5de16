"""Writing a bundle: what it begins with, its frames one by one, and what is kept of it (`model.bundle`).

Begun and finished by a transaction each; in between, every frame is read over a snapshot of its own, so that neither
the writer nor the WAL waits for a million events. Up to which position, and what is claimed of it, is fixed at the
beginning: an event that comes later may need a record that the bundle passed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from meshnode.codec.framing import frame
from meshnode.engine.bundle_stands import Start, held_of, start_for, start_for_all
from meshnode.engine.context import Context
from meshnode.engine.membership import introduction_of
from meshnode.engine.offer import Filter, TableFilter
from meshnode.engine.outbox import claimable, stream_of
from meshnode.errors import MembershipError, StoreError, UsageError
from meshnode.limits import BATCH_EVENTS, BUNDLE_WATERMARKS, FRONTIER_SITES, INTRODUCE_BYTES, LABEL_BYTES
from meshnode.model.bundle import BUNDLE_PATH, Asks, Bundle, framed, seal
from meshnode.model.bundle_untrusted import FEATURES
from meshnode.model.deflate import deflated_events
from meshnode.model.frames import (
    EPOCH_BYTES,
    After,
    Answered,
    Batch,
    DeflatedBatch,
    Frame,
    Introduce,
    Open,
    Records,
    WatermarkEntry,
    Watermarks,
    digest,
    encode_frame,
)
from meshnode.model.issuing import RETIRED_HERE
from meshnode.model.site import mesh_tag
from meshnode.store import bundles, frontier, inbound, offers, peers, reoffers
from meshnode.store.bundles import ANY, Written
from meshnode.store.database import Tx

_ITEM_HEAD = 3  # bytes of CBOR before one record
_NOBODY = -1


@dataclass(frozen=True, slots=True)
class Plan:
    """What one bundle is to be, fixed when it was begun."""

    head: Bundle
    introduce: tuple[bytes, ...]
    asks: tuple[Asks, ...]
    epoch: bytes
    start: Start
    last: int  # log position up to which it carries everything
    offered: Filter
    to_no: int  # ANY for any member
    passed_author: int  # site number whose own events it leaves out
    clock: dict[bytes, int]
    answers: tuple[bytes, ...]
    watermarks: tuple[WatermarkEntry, ...]
    policy_generation: int

    def opening(self) -> bytes:
        """Everything before the first numbered frame."""
        parts: list[Frame] = [self.head]
        if self.introduce:
            parts.append(Introduce(self.introduce))
        parts += [*self.asks, Open(self.epoch, 1)]
        return b"".join(map(framed, parts))


def begin(context: Context, to: bytes | None, *, name: str, software: str) -> Plan:
    """Decide what goes into a bundle for one member, or for any; MembershipError where one of the two is out."""
    with context.transaction() as tx:
        membership, own = context.membership, context.site
        public_key = membership.key_of(own)
        if membership.retired(own) is not None or public_key is None:
            raise MembershipError(
                RETIRED_HERE if public_key else "this device is no member: nobody would take its bundle"
            )
        others = [each.site for each in membership.members() if each.site != own and each.cutoff is None]
        if to is not None and to not in others:
            raise MembershipError("that device is no member (any more): nobody would take a bundle that is for it")
        start = start_for_all(context, tx, others) if to is None else start_for(context, tx, to)
        addressed = others if to is None else [to]
        offered = Filter(peers.scope_of(tx, to) if to is not None else Filter().scope, FEATURES)
        slots = frontier.read(tx)
        clock = frontier.tick(slots, own)
        frontier.write_local(tx, slots, own)
        held = {each: held_of(context, tx, each) for each in addressed[:FRONTIER_SITES]}
        to_no = ANY if to is None else context.sites.number(tx, to)
        answers = _answers(context, tx, addressed)
        return Plan(
            head=Bundle(
                tag=mesh_tag(context.mesh_id),
                site=own,
                public_key=public_key,
                to=to,
                name=name.encode()[:LABEL_BYTES].decode(errors="ignore"),
                software=software,
                scope=context.policy.scope.patterns,
                after=start.stands if start.cursor else None,
                holds={each: state for each, state in held.items() if state is not None},
            ),
            introduce=_introduction(context, tx),
            asks=_asks(context, tx, addressed),
            epoch=context.env.random_bytes(EPOCH_BYTES),
            start=start,
            last=context.next_position - 1,
            offered=offered,
            to_no=to_no,
            passed_author=_NOBODY if to is None or answers else to_no,
            clock=clock,
            answers=answers,
            watermarks=claimable(context, tx, offered, ()),
            policy_generation=context.policy_generation,
        )


def _introduction(context: Context, tx: Tx) -> tuple[bytes, ...]:
    """What makes this site a member, for who never heard of it; too large, it is left to the other paths."""
    shown = tuple(introduction_of(context, tx, context.site))
    return shown if sum(len(each) + _ITEM_HEAD for each in shown) < INTRODUCE_BYTES else ()


def _asks(context: Context, tx: Tx, addressed: Sequence[bytes]) -> tuple[Asks, ...]:
    asked = [Asks(each, inbound.requests(tx, stream_of(context, tx, each, BUNDLE_PATH))) for each in addressed]
    return tuple(each for each in asked if each.requests)


def _answers(context: Context, tx: Tx, addressed: Sequence[bytes]) -> tuple[bytes, ...]:
    found = [reoffers.answers(tx, stream_of(context, tx, each, BUNDLE_PATH)) for each in addressed]
    return tuple(dict.fromkeys(request_id for each in found for request_id in each))


@dataclass(slots=True)
class Pages:
    """The numbered frames of a bundle, one a step: records, then events, then what it answers."""

    plan: Plan
    wall_ms: Callable[[], int]
    batch: int = BATCH_EVENTS  # events in one frame
    events: int = 0
    records: int = 0
    no: int = 0
    digest: bytes = b""
    done: bool = False
    cursor: int = field(init=False)
    record_cursor: int = field(init=False)
    _records_out: bool = False
    _answered: int = 0

    def __post_init__(self) -> None:
        self.cursor, self.record_cursor = self.plan.start.cursor, self.plan.start.record_cursor

    def step(self, tx: Tx) -> bytes:
        """The next frame over this snapshot; nothing where what was looked at does not go out.

        CorruptStateError where something cannot be read that it has to carry.
        """
        if not self._records_out:
            return self._record_frame(tx)
        if self.cursor < self.plan.last:
            return self._event_frame(tx)
        if self._answered < len(self.plan.answers):
            request_id = self.plan.answers[self._answered]
            self._answered += 1
            return self._numbered(Answered(self.plan.epoch, self.no + 1, request_id))
        self.done = True
        return b"".join(map(framed, self._watermarks()))

    def _record_frame(self, tx: Tx) -> bytes:
        offer = offers.records_after(tx, self.record_cursor)
        self.record_cursor, self._records_out = offer.scanned_to, offer.exhausted
        self.records += len(offer.data)
        return self._numbered(Records(self.plan.epoch, self.no + 1, offer.data)) if offer.data else b""

    def _event_frame(self, tx: Tx) -> bytes:
        plan = self.plan
        allowed = TableFilter.read(tx, plan.offered, self.wall_ms())
        offer = offers.events_after(tx, self.cursor, plan.passed_author, allowed, plan.last, self.batch)
        data = [each for position, each in zip(offer.positions, offer.data, strict=True) if position <= plan.last]
        self.cursor = plan.last if offer.exhausted else min(offer.scanned_to, plan.last)
        if not data:
            return b""
        clock = plan.clock if not self.events else {}
        self.events += len(data)
        deflated = deflated_events(data)
        if deflated is None:
            return self._numbered(Batch(plan.epoch, self.no + 1, clock, data))
        return self._numbered(DeflatedBatch(plan.epoch, self.no + 1, clock, deflated))

    def _numbered(self, part: Frame) -> bytes:
        self.no += 1
        cbor = encode_frame(part)
        self.digest = digest(cbor)
        return frame(cbor)

    def _watermarks(self) -> list[Frame]:
        entries, after = self.plan.watermarks, After(self.plan.epoch, self.no)
        starts = range(0, len(entries), BUNDLE_WATERMARKS)
        return [Watermarks(after, entries[at : at + BUNDLE_WATERMARKS]) for at in starts]


def finish(context: Context, pages: Pages, file_digest: bytes) -> bytes:
    """Keep what was written, and seal it; UsageError where the policy became another meanwhile."""
    plan = pages.plan
    if context.key is None:
        raise StoreError("the node was opened for reading only, so it cannot sign")
    with context.transaction() as tx:
        if context.policy_generation != plan.policy_generation:
            raise UsageError("the policy changed while the bundle was written: export again")
        written = Written(
            plan.to_no,
            plan.epoch,
            pages.no,
            pages.digest,
            plan.start.cursor,
            pages.cursor,
            pages.record_cursor,
            plan.answers,
        )
        bundles.add(tx, written)
        return seal(context.key, context.mesh_id, file_digest)
