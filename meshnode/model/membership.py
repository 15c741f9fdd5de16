"""Who belongs to the mesh: a pure function of the set of records (profile §9).

Authorities are settled one after the other, seniors first, so that nothing a junior signs can touch a senior.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

from meshnode.model.hlc import ZERO, Hlc
from meshnode.model.member import Member, Path
from meshnode.model.record import AUTHORITY, MEMBER, READER, Record, Retirement, Role, Vouch
from meshnode.model.site import site_id_of


@dataclass(frozen=True, slots=True)
class Membership:
    """What the walk admits; immutable, so it may be read from any thread."""

    founder: bytes
    founder_key: bytes
    counted: frozenset[bytes]
    by_site: dict[bytes, Member]

    def key_of(self, site: bytes) -> bytes | None:
        """The public key of a vouched-for site (a retired one included) or of the founder."""
        member = self.by_site.get(site)
        if member is not None:
            return member.public_key
        return self.founder_key if site == self.founder else None

    def judge(self, site: bytes, hlc: Hlc) -> str | None:
        """None if an event by `site` at `hlc` is acceptable, else the reason; retirement before role (profile §9)."""
        member = self.by_site.get(site)
        if member is None:
            return None if site == self.founder else "unknown-signer"
        if member.cutoff is not None and hlc > member.cutoff:
            return "retired-signer"
        if member.roles and member.role_at(hlc) == READER:
            return "role"
        return None

    def role_at(self, site: bytes, hlc: Hlc) -> str | None:
        """The role of `site` at `hlc`, or None if it was never admitted."""
        member = self.by_site.get(site)
        if member is None:
            return AUTHORITY if site == self.founder else None
        return member.role_at(hlc)

    def may_sign(self, site: bytes, hlc: Hlc) -> bool:
        """Whether a new record that `site` issues at `hlc` about a junior would count."""
        member = self.by_site.get(site)
        if member is None:
            return site == self.founder
        return member.path is not None and member.cutoff is None and member.role_at(hlc) == AUTHORITY

    def retired(self, site: bytes) -> Hlc | None:
        """The cutoff of a retired site."""
        member = self.by_site.get(site)
        return None if member is None else member.cutoff

    def is_peer(self, site: bytes, public_key: bytes) -> bool:
        """Whether the keyring holds `site` with that key, not retired: the last condition of profile §7."""
        return self.key_of(site) == public_key and self.retired(site) is None

    def latest_about(self, site: bytes) -> Hlc:
        """The highest `issued` of the counting records about `site`; an issuer ticks above it."""
        member = self.by_site.get(site)
        return ZERO if member is None else member.latest

    def members(self) -> list[Member]:
        """Every vouched-for site, in site order."""
        return [self.by_site[site] for site in sorted(self.by_site)]


@dataclass(slots=True)
class _Subject:
    """What was settled about one site so far."""

    vouches: list[tuple[Hlc, bytes, bytes, Vouch]] = field(default_factory=list)
    roles: list[tuple[Hlc, bytes, bytes, str]] = field(default_factory=list)  # sorted by issued, signer, record id
    admitted: bytes = b""  # the first vouch that counted
    paths: list[Path] = field(default_factory=list)  # waiting for the vouch that lets them queue
    cutoff: Hlc | None = None
    honours: frozenset[bytes] | None = None
    latest: Hlc = ZERO

    def role_at(self, hlc: Hlc) -> str:
        index = bisect_left(self.roles, (hlc,))  # a 1-tuple sorts before every longer one: roles issued below hlc
        return self.roles[index - 1][3] if index else MEMBER

    def retire(self, retirement: Retirement) -> None:
        honours = frozenset(retirement.honours)
        self.cutoff = retirement.cutoff if self.cutoff is None else min(self.cutoff, retirement.cutoff)
        self.honours = honours if self.honours is None else self.honours & honours


class _Walk:
    """One run over a set of records; `settled` maps a settled site to its path."""

    def __init__(self, records: Iterable[Record], founder_key: bytes) -> None:
        self.founder = site_id_of(founder_key)
        self.founder_key = founder_key
        self.counted: set[bytes] = set()
        self.settled: dict[bytes, Path] = {}
        self.subjects: defaultdict[bytes, _Subject] = defaultdict(_Subject)
        self._queue: list[tuple[Path, bytes]] = [((), self.founder)]
        self._signed: defaultdict[bytes, list[tuple[Hlc, bytes, Record]]] = defaultdict(list)
        for record in {record.record_id: record for record in records}.values():
            body = record.body
            # No record about the founder ever has effect.
            if isinstance(body, Vouch | Role | Retirement) and body.site != self.founder:
                self._signed[record.signer].append((body.issued, record.record_id, record))
        for signed in self._signed.values():
            signed.sort(key=lambda item: item[:2])

    def run(self) -> Membership:
        while self._queue:
            path, site = heappop(self._queue)
            if site not in self.settled:
                self.settled[site] = path
                self._settle(site, path)
        self._retire_themselves()
        by_site = {site: self._member(site, subject) for site, subject in self.subjects.items() if subject.vouches}
        return Membership(self.founder, self.founder_key, frozenset(self.counted), by_site)

    def _settle(self, signer: bytes, path: Path) -> None:
        for issued, record_id, record in self._signed.get(signer, ()):
            if self._may_sign(signer, issued, record_id):
                self._apply(record, issued, path)

    def _may_sign(self, signer: bytes, issued: Hlc, record_id: bytes) -> bool:
        if signer == self.founder:
            return True
        standing = self.subjects[signer]
        if standing.role_at(issued) != AUTHORITY:
            return False
        if standing.cutoff is None:
            return True
        return issued <= standing.cutoff and record_id in (standing.honours or ())

    def _apply(self, record: Record, issued: Hlc, path: Path) -> None:
        body = record.body
        assert isinstance(body, Vouch | Role | Retirement)
        if isinstance(body, Vouch):
            if site_id_of(body.public_key) != body.site:
                return
        elif body.site in self.settled and body.site != record.signer:
            return
        self.counted.add(record.record_id)
        subject = self.subjects[body.site]
        subject.latest = max(subject.latest, issued)
        if isinstance(body, Retirement):
            subject.retire(body)
        elif isinstance(body, Vouch):
            subject.admitted = subject.admitted or record.record_id
            insort(subject.vouches, (issued, record.signer, record.record_id, body), key=lambda item: item[:3])
        else:
            insort(subject.roles, (issued, record.signer, record.record_id, body.role))
            if body.role == AUTHORITY:
                subject.paths.append((*path, (issued, record.record_id)))
        if subject.vouches:
            while subject.paths:
                heappush(self._queue, (subject.paths.pop(), body.site))

    def _retire_themselves(self) -> None:
        for site, signed in self._signed.items():
            subject = self.subjects.get(site)
            if site in self.settled or subject is None or not subject.vouches:
                continue
            cutoff = subject.cutoff  # the one it had from others bounds every retirement it signed about itself
            for issued, record_id, record in signed:
                body = record.body
                if isinstance(body, Retirement) and body.site == site and (cutoff is None or issued <= cutoff):
                    self.counted.add(record_id)
                    subject.latest = max(subject.latest, issued)
                    subject.retire(body)

    def _member(self, site: bytes, subject: _Subject) -> Member:
        issued, signer, _, vouch = subject.vouches[-1]
        return Member(
            site=site,
            public_key=vouch.public_key,
            name=vouch.name,
            admitted=subject.admitted,
            vouched_by=signer,
            vouched_at=issued,
            path=self.settled.get(site),
            role_starts=tuple(role[0] for role in subject.roles),
            roles=tuple(role[3] for role in subject.roles),
            role_ids=tuple(role[2] for role in subject.roles),
            cutoff=subject.cutoff,
            honours=subject.honours or frozenset(),
            latest=subject.latest,
        )


def walk(records: Iterable[Record], founder_key: bytes) -> Membership:
    """Settle a set of verified records, in any order and with repeats, under the founder's public key.

    A record by a signer that the walk does not admit never has effect, so its signature does not matter yet.
    """
    return _Walk(records, founder_key).run()
