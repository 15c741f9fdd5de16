"""Taking a bundle in: who wrote it, then frame by frame through the one door, then what it claims (`model.bundle`).

Its seal was checked before anything here is called; what is in it is a member's word all the same, and judged as what a
link brings. Each call is one transaction; the mark of what is held moves with the frame that it is about.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from meshnode.engine.asking import ask_history, ask_site
from meshnode.engine.bundle_stands import holds_any, take_asked, take_report
from meshnode.engine.claims import own_ahead_untrusted, take_claims_untrusted
from meshnode.engine.commit import commit_events
from meshnode.engine.context import Context
from meshnode.engine.identity import ask_if_resumed
from meshnode.engine.membership import accept_introduction_untrusted, add_records
from meshnode.engine.outbox import stream_of
from meshnode.engine.told import keep_told_untrusted
from meshnode.engine.verify import Checked, verify_untrusted
from meshnode.engine.whole import read_whole
from meshnode.errors import BundleError, BusyError, MembershipError, ProtocolError
from meshnode.limits import FRONTIER_SITES
from meshnode.model.bundle import BUNDLE_PATH, Asks, Bundle
from meshnode.model.delivery import Adopt, Received, StoredAck, Told
from meshnode.model.frames import FEATURE_COVERING, Answered, Batch, Open, Records, Request, WatermarkEntry
from meshnode.model.frames_untrusted import decode_control_untrusted
from meshnode.model.hlc import Hlc, beyond_skew
from meshnode.model.issuing import RETIRED_HERE
from meshnode.model.scope import parse_scope_untrusted
from meshnode.model.site import mesh_tag, short_text
from meshnode.model.verdict import Verdict
from meshnode.model.wording import counted_text
from meshnode.store import bundles, frontier, inbound, peers
from meshnode.store import told as told_rows
from meshnode.store.database import Tx
from meshnode.store.delivery import Stream
from meshnode.store.peers import PeerRow

_COVERING = frozenset({FEATURE_COVERING})


@dataclass(frozen=True, slots=True)
class Begun:
    """Where the frames of a bundle go on from what is here."""

    next: int  # those below are committed
    gap: bool  # it goes on from what this node does not hold: that was asked for
    membership_changed: bool  # by what its writer showed of itself


@dataclass(slots=True)
class Outcome:
    """What became of one frame, or of several."""

    verdicts: Counter[str] = field(default_factory=Counter)  # of events, as notices spell them
    records: int = 0  # kept that were not here
    records_dropped: int = 0
    records_rejected: int = 0
    membership_changed: bool = False
    answered: int = 0  # requests of this node
    settled: bool = True  # nothing of it has to come once more

    def add(self, other: Outcome) -> None:
        """Count both together."""
        self.verdicts.update(other.verdicts)
        self.records += other.records
        self.records_dropped += other.records_dropped
        self.records_rejected += other.records_rejected
        self.membership_changed = self.membership_changed or other.membership_changed
        self.answered += other.answered
        self.settled = self.settled and other.settled


def check_head_untrusted(head: Bundle, mesh_id: bytes, own: bytes) -> None:
    """BundleError where a bundle is not for this node."""
    if head.tag != mesh_tag(mesh_id):
        raise BundleError(f"this bundle is of another mesh ({head.tag.hex()}), nothing of it is used")
    if head.site == own:
        raise BundleError("this device wrote that bundle itself: import it on the other one")
    if head.to not in (None, own):
        raise BundleError(f"this bundle is for device {short_text(head.to or b'')}: import it there, or export for any")


def begin_untrusted(
    context: Context, head: Bundle, shown: Sequence[bytes], asks: Sequence[Asks], opened: Open
) -> Begun:
    """Take its writer for a member, its word of what it holds and asks, and adopt the epoch.

    MembershipError where its writer, or this device, is out; ProtocolError where the frontier is full.
    """
    asked = [each for part in asks if part.site == context.site for each in _requests_untrusted(part)]
    if opened.next != 1:
        raise ProtocolError("the frames of a bundle are numbered from 1")

    def work(tx: Tx) -> Begun:
        generation = context.generation
        _admit_untrusted(context, tx, head, shown)
        scope = parse_scope_untrusted(head.scope)
        peers.wrote(tx, PeerRow(head.site, head.name, head.software, context.env.wall_ms(), 0), scope)
        stream = stream_of(context, tx, head.site, BUNDLE_PATH)
        take_report(context, tx, stream, head.holds.get(context.site))
        if not take_asked(tx, stream, asked):
            context.surface(tx, "request-limit", head.site, "it asks for more than one node answers at a time")
        held = inbound.read_inbound(tx, stream)
        ask_if_resumed(context, tx, stream.no, met=held is not None)
        if held is not None and held.epoch == opened.epoch:
            return Begun(held.next, False, generation != context.generation)
        gap = head.after is not None and not holds_any(context, tx, head.site, head.after)
        if gap:
            ask_history(context, tx, stream.no)
        inbound.adopt(tx, stream, Adopt(opened.epoch, opened.next))
        return Begun(opened.next, gap, generation != context.generation)

    return context.transact(work)


def _requests_untrusted(asks: Asks) -> Iterator[Request]:
    for body in asks.requests:
        request = decode_control_untrusted(body, _COVERING)
        if not isinstance(request, Request):
            raise ProtocolError("what a bundle asks for is a request")
        yield request


def _admit_untrusted(context: Context, tx: Tx, head: Bundle, shown: Sequence[bytes]) -> None:
    """Its writer is a member by what is here, or by that and what it shows (profile §7)."""
    membership, name = context.membership, short_text(head.site)
    if membership.retired(context.site) is not None:
        raise MembershipError(RETIRED_HERE)
    if membership.retired(head.site) is not None:
        raise MembershipError(f"device {name}, which wrote this bundle, was retired: nothing of it is used")
    known = membership.is_peer(head.site, head.public_key) or accept_introduction_untrusted(
        context, tx, shown, site=head.site, public_key=head.public_key
    )
    if not known:
        raise MembershipError(f"device {name}, which wrote this bundle, is no member: nothing of it is used")
    if not frontier.admit(tx, context.site, head.site):
        raise ProtocolError(f"a mesh has at most {FRONTIER_SITES} nodes that ever linked, and this would be one more")


def commit_frame(
    context: Context, peer: bytes, epoch: bytes, frame: Received, checked: Sequence[Checked], *, settle: bool
) -> Outcome:
    """Commit one frame; its number is that of the next one, unless an earlier one is to come once more (`settle`)."""

    def work(tx: Tx) -> Outcome:
        stream = stream_of(context, tx, peer, BUNDLE_PATH)
        held = inbound.read_inbound(tx, stream)
        if held is None or held.epoch != epoch or (settle and held.next != frame.no):
            raise BusyError("another bundle of the same device was imported meanwhile: import this one again")
        outcome = _commit(context, tx, stream, frame, checked)
        if settle and outcome.settled:
            inbound.record(tx, stream, [StoredAck(frame.no, frame.digest, b"")])
        return outcome

    return context.transact(work)


def _commit(context: Context, tx: Tx, stream: Stream, frame: Received, checked: Sequence[Checked]) -> Outcome:
    outcome, content = Outcome(), frame.content
    if isinstance(content, Batch):
        judged = commit_events(
            context,
            tx,
            checked,
            author_stream=True,
            scope=context.policy.scope,
            peer=stream.peer,
            whole=read_whole(tx, stream),
        )
        frontier.merge(tx, context.site, content.clock)
        outcome.verdicts.update(each.text() for each in judged)
        outcome.settled = not any(each.verdict is Verdict.REJECTED for each in judged)
    elif isinstance(content, Records):
        generation = context.generation
        records = add_records(context, tx, content.records, peer=stream.peer)
        outcome.records, outcome.records_dropped = records.added, records.dropped
        outcome.records_rejected = len(records.rejected)
        outcome.membership_changed = generation != context.generation
        outcome.settled = not records.rejected
    elif isinstance(content, Answered):
        outcome.answered = int(inbound.remove_request(tx, stream, content.id))
    return outcome


def verify_frame(context: Context, frame: Received) -> Sequence[Checked]:
    """The door's first step for a frame; any thread may run it."""
    snapshot = context.snapshot
    if snapshot is None or not isinstance(frame.content, Batch):
        return ()
    return verify_untrusted(
        frame.content.events,
        mesh_id=snapshot.mesh_id,
        keyring=snapshot.membership,
        generation=snapshot.generation,
    )


def take_watermarks_untrusted(context: Context, peer: bytes, told: Sequence[WatermarkEntry]) -> bool:
    """What its writer had applied, once all before is committed; whether anything here may be claimed by it now."""
    now_ms = context.env.wall_ms()
    claims = [each for each in told if not beyond_skew(each.physical, now_ms)]

    def work(tx: Tx) -> bool:
        stream = stream_of(context, tx, peer, BUNDLE_PATH)
        before = told_rows.of_peer(tx, peer)
        words = {each[:3]: Told(Hlc(each.physical, each.logical), now_ms) for each in claims}
        risen = {group: word for group, word in words.items() if group not in before or word.hlc > before[group].hlc}
        keep_told_untrusted(context, tx, peer, risen, anew=False)
        if len(claims) < len(told):
            future = counted_text(len(told) - len(claims), "watermark")
            context.surface(tx, "skew", peer, f"its bundle has {future} in the future")
        if own_ahead_untrusted(context, tx, claims) is not None:
            ask_site(context, tx, stream.no, context.site)
            bundles.may_be_out(tx, context.next_position - 1)
            text = "a bundle of it tells of later events of this device than are here: asked for them"
            context.surface(tx, "rolled-back", peer, text)
        return take_claims_untrusted(context, tx, stream, claims, context.policy.scope)

    return context.transact(work)
