"""What announcements amount to, without I/O: who was seen, where, and whether it is proven (profile §11)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from meshnode.errors import BadSignatureError, EnvelopeError, UnknownSignerError
from meshnode.limits import ADDRESSES_PER_SITE, ANNOUNCEMENTS_PER_SITE, SEEN_SITES
from meshnode.net.announcement import Announcement, OpenAttestation
from meshnode.net.seen import Refused, Seen, Standing

FORGED = "its attestation is forged or damaged: the device that it names did not sign it for this mesh"
_WORDS = {
    Standing.UNKNOWN_SITE: "no member announces it, so that nothing in it can be checked",
    Standing.OTHER_MESH: "it announces another mesh",
}


@dataclass(frozen=True, slots=True)
class Sighting:
    """What is known of a site on this network. Only a `verified` one is dialed, or the one that an invite names."""

    site: bytes
    tag: bytes
    port: int
    addresses: tuple[str, ...]
    attestation: bytes
    verified: bool
    boot: bytes  # empty where nothing is verified
    nearby: int = 0  # the port where it says it is open to nearby devices, which nothing proves; 0 where it is not
    name: str = ""  # what it calls itself then


@dataclass(frozen=True, slots=True)
class Gone:
    """The last announcement of a site went away."""

    site: bytes


@dataclass(frozen=True, slots=True)
class Ignored:
    """An announcement that does not count: its attestation is forged, or is for something else."""

    site: bytes | None  # the one that it claims, where it claims one
    reason: str


News = Sighting | Gone | Ignored


@dataclass(frozen=True, slots=True)
class Judged:
    announcement: Announcement
    standing: Standing
    reason: str = ""
    boot: bytes = b""  # empty where nothing is verified
    issued: int = 0  # 0 where nothing is verified

    @property
    def counts(self) -> bool:
        """Whether it is a sighting: verified, or by somebody whose word cannot be checked."""
        return self.standing is Standing.VERIFIED or self.standing in _WORDS

    def seen(self) -> Seen:
        claim, reason = self.announcement, self.reason or _WORDS.get(self.standing, "")
        return Seen(claim.instance, self.standing, reason, claim.site, claim.tag, claim.port, claim.addresses)

    @property
    def rank(self) -> tuple[int, bytes]:
        """Of several attestations of one site the newest boot counts; none is compared with a clock."""
        return (self.issued, self.boot)


class SightingBook:
    """Every announcement in sight, bounded; what changed comes back as news, and nothing is told twice."""

    def __init__(self, own_site: bytes | None, open_attestation: OpenAttestation, own_tag: bytes | None = None) -> None:
        self._own_site, self._own_tag = own_site, own_tag
        self._open = open_attestation
        self._instances: dict[str, Judged] = {}
        self._sites: dict[bytes, dict[str, None]] = {}  # site -> its instances, in the order they were first seen
        self._reported: dict[bytes, Sighting] = {}
        self._refused = Refused()

    def sightings(self) -> list[Sighting]:
        return list(self._reported.values())

    def instances(self) -> list[str]:
        return list(self._instances)

    def seen(self) -> list[Seen]:
        """Every announcement in sight, those that do not count too, each with what it is worth."""
        return [*(judged.seen() for judged in self._instances.values()), *self._refused.all()]

    def keeps(self, instance: str) -> bool:
        """Whether it is one of those in sight."""
        return instance in self._instances or self._refused.keeps(instance)

    def would_keep(self, announcement: Announcement) -> bool:
        """Whether `saw` would keep it: asked before its addresses are read, which cost more than all the rest."""
        judged = self._judge(announcement)
        if not judged.counts:
            return self.has_room(announcement.instance)
        return announcement.instance in self._instances or self._in_the_way(judged) is not None

    def has_room(self, instance: str) -> bool:
        """Whether it would be shown although it does not count."""
        return self._refused.has_room(instance)

    def malformed(self, instance: str, port: int, addresses: tuple[str, ...], reason: str) -> list[News]:
        """An instance of which nothing can be read."""
        news = self.lost(instance)
        self._refused.put(Seen(instance, Standing.MALFORMED, reason, port=port, addresses=addresses))
        return [*news, Ignored(None, reason)]

    def saw(self, announcement: Announcement) -> list[News]:
        """Take in one resolved instance, new or changed."""
        instance, site = announcement.instance, announcement.site
        touched = {site}
        known = self._instances.get(instance)
        judged = self._judge(announcement)
        if not judged.counts:
            touched |= self._refuse(judged)
            ignored = [] if judged.standing is Standing.OWN else [Ignored(site, judged.reason)]
            return [*ignored, *self._settle(touched)]
        self._refused.drop(instance)
        if known is not None and known.announcement.site != site:
            touched |= self._forget(instance)
        if instance not in self._instances:
            leaving = self._in_the_way(judged)
            if leaving is None:
                return self._settle(touched)
            for other in leaving:
                touched |= self._forget(other)
        self._instances[instance] = judged
        self._sites.setdefault(site, {})[instance] = None
        return self._settle(touched)

    def lost(self, instance: str) -> list[News]:
        """An instance said goodbye or stopped answering."""
        self._refused.drop(instance)
        return self._settle(self._forget(instance))

    def recheck(self) -> list[News]:
        """The keyring changed: open every attestation again (a stranger may have become a member)."""
        touched = set(self._sites)
        for instance, before in list(self._instances.items()):
            judged = self._judge(before.announcement)
            if judged.counts:
                self._instances[instance] = judged
            else:
                self._refuse(judged)
        return self._settle(touched)

    def _judge(self, claim: Announcement) -> Judged:
        if claim.site == self._own_site:
            return Judged(claim, Standing.OWN, "this node, or a copy of it")
        if not claim.attestation:
            return Judged(claim, Standing.NO_ATTESTATION, "the announcement has no attestation")
        try:
            attested = self._open(claim.attestation)
        except UnknownSignerError:
            own = self._own_tag in (None, claim.tag)
            return Judged(claim, Standing.UNKNOWN_SITE if own else Standing.OTHER_MESH)
        except BadSignatureError:
            return Judged(claim, Standing.BAD_ATTESTATION, FORGED)
        except EnvelopeError as error:
            return Judged(claim, Standing.BAD_ATTESTATION, f"its attestation cannot be read: {error}")
        if attested.signer != claim.site:
            why = "the attestation is by another site than the announcement names"
            return Judged(claim, Standing.BAD_ATTESTATION, why)
        if attested.port != claim.port:
            return Judged(claim, Standing.WRONG_PORT, "the attestation names another port than the announcement")
        return Judged(claim, Standing.VERIFIED, "", attested.boot, attested.issued)

    def _refuse(self, judged: Judged) -> set[bytes]:
        """It does not count; returns the site that its instance was of before, if any."""
        self._refused.put(judged.seen())
        return self._forget(judged.announcement.instance)

    def _in_the_way(self, judged: Judged) -> list[str] | None:
        """The instances that have to go for another one; None where it gets no place (profile §12).

        Members push strangers out, strangers push nobody out. Of one site the newest boot pushes older ones out, or
        copies of an old attestation would keep its site from ever being heard again.
        """
        own = self._sites.get(judged.announcement.site)
        if own is not None:
            if len(own) < ANNOUNCEMENTS_PER_SITE:
                return []
            oldest = min(own, key=lambda instance: self._instances[instance].rank)
            return [oldest] if self._instances[oldest].rank < judged.rank else None
        if len(self._sites) < SEEN_SITES:
            return []
        stranger = next((seen for seen, sighting in self._reported.items() if not sighting.verified), None)
        return None if not judged.boot or stranger is None else list(self._sites[stranger])

    def _forget(self, instance: str) -> set[bytes]:
        """Drop an instance; returns the site it was of, if it was known."""
        judged = self._instances.pop(instance, None)
        if judged is None:
            return set()
        site = judged.announcement.site
        del self._sites[site][instance]
        if not self._sites[site]:
            del self._sites[site]
        return {site}

    def _settle(self, touched: Iterable[bytes]) -> list[News]:
        """What is different now from what was last told about these sites."""
        news: list[News] = []
        for site in sorted(touched):
            before = self._reported.get(site)
            now = self._best(site) if site in self._sites else None
            if now == before:
                continue
            if now is None:
                del self._reported[site]
                news.append(Gone(site))
            else:
                self._reported[site] = now
                news.append(now)
        return news

    def _best(self, site: bytes) -> Sighting:
        """The newest boot's port, and its addresses taken in turn from every instance that carries it."""
        every = [self._instances[instance] for instance in self._sites[site]]
        top = max(every, key=lambda judged: judged.rank)
        claim = top.announcement
        same = [one.announcement for one in every if one.rank == top.rank and one.announcement.port == claim.port]
        found: dict[str, None] = {}
        for turn in range(max(len(one.addresses) for one in same)):
            found.update((one.addresses[turn], None) for one in same if turn < len(one.addresses))
        addresses = tuple(found)[:ADDRESSES_PER_SITE]
        return Sighting(
            site,
            claim.tag,
            claim.port,
            addresses,
            claim.attestation,
            bool(top.boot),
            top.boot,
            claim.nearby,
            claim.name,
        )
