"""The door for records: what is kept, what counts, and what a changed membership sets in motion (profile §9).

Records are what peers sent: every one that cannot be used ends as dropped or rejected, and none raises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from meshnode import limits
from meshnode.codec.cose import Envelope, check_signature
from meshnode.codec.digest import blake3_256
from meshnode.errors import CorruptStateError, EnvelopeError, MalformedError
from meshnode.model.hlc import beyond_skew
from meshnode.model.introduction import introduction, proof_of_end, walk_untrusted
from meshnode.model.membership import Membership, walk
from meshnode.model.record import Record, Retirement, parse_record_untrusted, split_record_untrusted
from meshnode.store import records as rows
from meshnode.store.database import Tx

if TYPE_CHECKING:  # of no use to who only reads
    from meshnode.engine.context import Context


@dataclass(frozen=True, slots=True)
class RecordsOutcome:
    """What became of one batch of records, in the words of an ack."""

    added: int = 0
    dropped: int = 0
    rejected: tuple[int, ...] = ()  # indexes to be offered again
    changed: bool = False  # whether somebody's standing is another than before


def load_membership(tx: Tx, founder_key: bytes) -> Membership:
    """The walk over everything that is stored and verified."""
    return walk(stored_records(tx), founder_key)


def all_records(tx: Tx) -> list[bytes]:
    """The exact bytes of every stored record, those that count first."""
    return rows.counting_first(tx)


def introduction_of(context: Context, tx: Tx, site: bytes) -> list[bytes]:
    """The records that make `site` a member, for somebody who never heard of it (profile §7)."""
    stored = {record.record_id: record for record in stored_records(tx)}
    return [record.data for record in introduction(context.membership, stored, site)]


def accept_introduction_untrusted(
    context: Context, tx: Tx, records: Sequence[bytes], *, site: bytes, public_key: bytes
) -> bool:
    """Whether these records, with those stored, make an authenticated stranger a peer; kept only if they do."""
    stored = [each.data for each in rows.verified(tx)]
    seen = walk_untrusted([*stored, *records], mesh_id=context.mesh_id, founder_key=context.founder)
    if seen.is_peer(site, public_key):
        add_records(context, tx, records, peer=site)
    return context.membership.is_peer(site, public_key)


def proof_of_end_of(context: Context, tx: Tx, site: bytes) -> list[bytes]:
    """The records by which a retired site can see that it is (profile §13)."""
    stored = {record.record_id: record for record in stored_records(tx)}
    return [record.data for record in proof_of_end(context.membership, stored, site)]


def accept_own_end_untrusted(context: Context, tx: Tx, records: Sequence[bytes], *, peer: bytes) -> bool:
    """Whether these records, with those stored, retire this very device; kept only if they do."""
    if context.membership.retired(context.site) is None:
        stored = [each.data for each in rows.verified(tx)]
        seen = walk_untrusted([*stored, *records], mesh_id=context.mesh_id, founder_key=context.founder)
        if seen.retired(context.site) is None:
            return False
        add_records(context, tx, records, peer=peer)
    return context.membership.retired(context.site) is not None


def add_records(context: Context, tx: Tx, records: Sequence[bytes], *, peer: bytes | None) -> RecordsOutcome:
    """Store what a peer (None: this node itself) sent, walk again if the set grew, and let the result take effect."""
    batch = _Batch(context, tx, peer)
    for index, data in enumerate(records):
        batch.admit_untrusted(index, data)
    return batch.finish()


@dataclass(slots=True)
class _Candidate:
    """A record of this batch that is not stored yet."""

    index: int
    envelope: Envelope
    record: Record
    verified: bool


def stored_records(tx: Tx) -> list[Record]:
    """What was verified when it was stored; a row that cannot be read is never passed over (NEOTH)."""
    try:
        return [parse_record_untrusted(split_record_untrusted(data), data) for _, data in rows.verified(tx)]
    except EnvelopeError as error:
        raise CorruptStateError(f"a membership record in the database cannot be read: {error}") from error


class _Batch:
    """One call of `add_records`; lives within one transaction."""

    def __init__(self, context: Context, tx: Tx, peer: bytes | None) -> None:
        self._context = context
        self._tx = tx
        self._peer = peer
        self._before = context.membership
        self._membership = context.membership
        self._new: dict[bytes, _Candidate] = {}
        self._rejected: list[int] = []
        self._dropped = 0
        self._now_ms = context.env.wall_ms()

    def admit_untrusted(self, index: int, data: bytes) -> None:
        """Sort one record into known, dropped, rejected or candidate."""
        record_id = blake3_256(data)
        if record_id in self._new or rows.is_stored(self._tx, record_id):
            return
        try:
            envelope, record, verified = self._open_untrusted(data)
        except EnvelopeError as error:
            self._drop(error)
            return
        if not self._is_own(record, verified) and beyond_skew(record.issued.physical, self._now_ms):
            self._reject(index, "skew", record.signer if verified else None)
            return
        self._new[record_id] = _Candidate(index, envelope, record, verified)

    def _is_own(self, record: Record, verified: bool) -> bool:
        """A node's own records are not held to the skew bound: its wall clock may have stepped back (profile §6)."""
        key = self._context.key
        return self._peer is None or (verified and key is not None and record.signer == key.site)

    def _open_untrusted(self, data: bytes) -> tuple[Envelope, Record, bool]:
        """Envelope, kid, signature, shape. Where no key is known yet only the shape can be judged."""
        if len(data) > limits.RECORD_BYTES:
            raise MalformedError(f"a record of {len(data)} bytes is larger than {limits.RECORD_BYTES}")
        envelope = split_record_untrusted(data)
        public_key = self._membership.key_of(envelope.kid)
        if public_key is not None:
            check_signature(envelope, self._context.mesh_id, public_key)
        return envelope, parse_record_untrusted(envelope, data), public_key is not None

    def finish(self) -> RecordsOutcome:
        """Walk until no more keys appear, bound what does not count, write, and let the walk take effect."""
        if any(self._may_count(candidate) for candidate in self._new.values()):
            self._walk()
        self._bound_pending()
        self._bound_unverified()
        for record_id, candidate in self._new.items():
            record = candidate.record
            rows.insert(self._tx, record_id, record.signer, record.data, verified=candidate.verified)
        changed = self._before.by_site != self._membership.by_site
        if changed or self._membership.counted != self._before.counted:
            rows.mark_counting(self._tx, self._before.counted, self._membership.counted)
            self._context.set_membership(self._membership)
        if changed:
            from meshnode.engine.standing import take_effect  # of no use to who only reads

            take_effect(self._context, self._tx, self._before, self._membership)
        return RecordsOutcome(len(self._new), self._dropped, tuple(sorted(self._rejected)), changed)

    def _may_count(self, candidate: _Candidate) -> bool:
        """Nothing else can change the walk: only authorities sign what counts, and whoever retires itself."""
        record = candidate.record
        member = self._before.by_site.get(record.signer)
        if member is None or member.path is not None:
            return candidate.verified
        return isinstance(record.body, Retirement) and record.body.site == record.signer

    def _walk(self) -> None:
        """A walk may admit the signers of records that waited for a key, and those may admit others."""
        stored = stored_records(self._tx)
        waiting = rows.unverified_signers(self._tx)
        waiting.update(each.record.signer for each in self._new.values() if not each.verified)
        while True:
            fresh = [each.record for each in self._new.values() if each.verified]
            self._membership = walk([*stored, *fresh], self._context.founder)
            appeared = [site for site in waiting if self._membership.key_of(site) is not None]
            if not appeared:
                return
            for site in sorted(appeared):
                waiting.discard(site)
                self._verify_waiting(site, stored)

    def _verify_waiting(self, site: bytes, stored: list[Record]) -> None:
        public_key = self._membership.key_of(site)
        assert public_key is not None
        for record_id, data in rows.unverified_by(self._tx, site):
            envelope = split_record_untrusted(data)
            if self._holds(envelope, public_key):
                rows.mark_verified(self._tx, record_id)
                stored.append(parse_record_untrusted(envelope, data))
            else:
                rows.remove(self._tx, record_id)
        for record_id, candidate in list(self._new.items()):
            if candidate.record.signer == site and not candidate.verified:
                if self._holds(candidate.envelope, public_key):
                    candidate.verified = True
                else:
                    del self._new[record_id]
                    self._dropped += 1

    def _holds(self, envelope: Envelope, public_key: bytes) -> bool:
        try:
            check_signature(envelope, self._context.mesh_id, public_key)
        except EnvelopeError as error:
            self._surface(error.reason, str(error))
            return False
        return True

    def _bound_pending(self) -> None:
        """What does not count has no effect, so leaving some of it out changes nothing in the walk.

        Whoever is no authority signs one thing that counts, the end of itself, and could do so again and again.
        """
        kept: Counter[bytes] = Counter()
        again = False
        for record_id, candidate in list(self._new.items()):
            signer, counts = candidate.record.signer, record_id in self._membership.counted
            if not candidate.verified or (counts and self._is_authority(signer)):
                continue
            if signer not in kept:
                kept[signer] = rows.kept_count(self._tx, signer, counting=not self._is_authority(signer))
            if kept[signer] >= limits.PENDING_RECORDS_PER_SIGNER:
                self._reject(candidate.index, "quota", signer)
                del self._new[record_id]
                again = again or counts
            kept[signer] += 1
        if again:
            self._walk()

    def _is_authority(self, signer: bytes) -> bool:
        """Whether it was one at any time, or is the founder."""
        member = self._membership.by_site.get(signer)
        return member is None or member.path is not None

    def _bound_unverified(self) -> None:
        unverified = [item for item in self._new.items() if not item[1].verified]
        if not unverified:
            return
        free = limits.UNVERIFIED_RECORDS - rows.unverified_count(self._tx)
        for record_id, candidate in unverified[max(free, 0) :]:
            self._reject(candidate.index, "quota", None)
            del self._new[record_id]

    def _drop(self, error: EnvelopeError) -> None:
        self._dropped += 1
        self._surface(error.reason, str(error))

    def _reject(self, index: int, reason: str, site: bytes | None) -> None:
        self._rejected.append(index)
        self._surface(reason, f"record {index} of a batch was rejected ({reason})", site)

    def _surface(self, kind: str, sample: str, site: bytes | None = None) -> None:
        """Put down to `site` only where a signature says so: other bytes name nobody but the peer that sent them."""
        self._context.surface(self._tx, kind, site if site is not None else self._peer, sample)
