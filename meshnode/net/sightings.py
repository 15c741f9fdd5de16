"""What announcements amount to, without I/O: who was seen, where, and whether it is proven (profile §11)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from meshnode.errors import EnvelopeError, MalformedError, UnknownSignerError
from meshnode.limits import ADDRESSES_PER_SITE, ANNOUNCEMENTS_PER_SITE, LABEL_BYTES, RECORD_BYTES, SEEN_SITES
from meshnode.model.record import ENDPOINT, EndpointAttestation, open_record_untrusted


@dataclass(frozen=True, slots=True)
class Attested:
    """A verified endpoint attestation: who signed it, and for which port and start of the node."""

    signer: bytes
    port: int
    boot: bytes
    issued: int


# Opens an attestation record; raises UnknownSignerError for a site not in the keyring, EnvelopeError otherwise.
OpenAttestation = Callable[[bytes], Attested]


def attestation_opener(mesh_id: bytes, key_of: Callable[[bytes], bytes | None]) -> OpenAttestation:
    """Attestations as members of one mesh sign them; `key_of` is asked each time, so the keyring may change."""

    def open_untrusted(data: bytes) -> Attested:
        record = open_record_untrusted(data, mesh_id=mesh_id, key_of=key_of, content_type=ENDPOINT)
        if not isinstance(record.body, EndpointAttestation):
            raise MalformedError("the record is no endpoint attestation")
        return Attested(record.signer, record.body.port, record.body.boot, record.body.issued)

    return open_untrusted


@dataclass(frozen=True, slots=True)
class Announcement:
    """One resolved service instance, as it was claimed."""

    instance: str
    site: bytes
    tag: bytes
    port: int
    addresses: tuple[str, ...]
    attestation: bytes
    nearby: int = 0
    name: str = ""


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
    boot: bytes
    issued: int  # 0 where nothing is verified

    @property
    def rank(self) -> tuple[int, bytes]:
        """Of several attestations of one site the newest boot counts; none is compared with a clock."""
        return (self.issued, self.boot)


def parse_txt_untrusted(
    instance: str, port: int | None, properties: Mapping[bytes, bytes | None], addresses: Iterable[str]
) -> Announcement:
    """Check the shape of a resolved instance; raises MalformedError for what is not version 1 of this profile."""
    if properties.get(b"v") != b"1":
        raise MalformedError("the announcement is not of version 1")
    site = _hex(properties.get(b"site"), 16, "site")
    tag = _hex(properties.get(b"tag"), 8, "tag")
    attestation = properties.get(b"att")
    if not attestation or len(attestation) > RECORD_BYTES:
        raise MalformedError("the announcement has no attestation")
    if port is None or not 0 < port < 65536:
        raise MalformedError("the announcement has no port")
    return Announcement(instance, site, tag, port, tuple(addresses), attestation, *_nearby(properties))


def _nearby(properties: Mapping[bytes, bytes | None]) -> tuple[int, str]:
    """The port for nearby devices and the name; what is not of that shape counts as not there."""
    near, name = properties.get(b"near") or b"", properties.get(b"name") or b""
    if not (near.isdigit() and len(near) <= 5 and 0 < int(near) < 65536) or len(name) > LABEL_BYTES:
        return 0, ""
    return int(near), name.decode("utf-8", "replace")


def _hex(value: bytes | None, size: int, name: str) -> bytes:
    # Exactly lower-case hex: bytes.fromhex would also take spaces and capitals.
    if value is not None and len(value) == 2 * size and all(digit in b"0123456789abcdef" for digit in value):
        return bytes.fromhex(value.decode("ascii"))
    raise MalformedError(f"the announcement's {name} is not {2 * size} lower-case hex digits")


class SightingBook:
    """Every announcement in sight, bounded; what changed comes back as news, and nothing is told twice."""

    def __init__(self, own_site: bytes | None, open_attestation: OpenAttestation) -> None:
        self._own_site = own_site
        self._open = open_attestation
        self._instances: dict[str, Judged] = {}
        self._sites: dict[bytes, dict[str, None]] = {}  # site -> its instances, in the order they were first seen
        self._reported: dict[bytes, Sighting] = {}

    def sightings(self) -> list[Sighting]:
        return list(self._reported.values())

    def instances(self) -> list[str]:
        return list(self._instances)

    def saw(self, announcement: Announcement) -> list[News]:
        """Take in one resolved instance, new or changed."""
        if announcement.site == self._own_site:
            return []
        instance, site = announcement.instance, announcement.site
        touched = {site}
        known = self._instances.get(instance)
        try:
            judged = self._judge(announcement)
        except EnvelopeError as error:
            touched |= self._forget(instance)
            return [Ignored(site, str(error)), *self._settle(touched)]
        if known is not None and known.announcement.site != site:
            touched |= self._forget(instance)
        if instance not in self._instances and not self._make_room(judged, touched):
            return self._settle(touched)
        self._instances[instance] = judged
        self._sites.setdefault(site, {})[instance] = None
        return self._settle(touched)

    def lost(self, instance: str) -> list[News]:
        """An instance said goodbye or stopped answering."""
        return self._settle(self._forget(instance))

    def recheck(self) -> list[News]:
        """The keyring changed: open every attestation again (a stranger may have become a member)."""
        touched = set(self._sites)
        for instance, judged in list(self._instances.items()):
            try:
                self._instances[instance] = self._judge(judged.announcement)
            except EnvelopeError:
                self._forget(instance)
        return self._settle(touched)

    def _judge(self, announcement: Announcement) -> Judged:
        try:
            attested = self._open(announcement.attestation)
        except UnknownSignerError:
            return Judged(announcement, b"", 0)
        if attested.signer != announcement.site:
            raise MalformedError("the attestation is by another site than the announcement names")
        if attested.port != announcement.port:
            raise MalformedError("the attestation names another port than the announcement")
        return Judged(announcement, attested.boot, attested.issued)

    def _make_room(self, judged: Judged, touched: set[bytes]) -> bool:
        """Members push strangers out, strangers push nobody out (profile §12)."""
        site = judged.announcement.site
        if site in self._sites:
            return len(self._sites[site]) < ANNOUNCEMENTS_PER_SITE
        if len(self._sites) < SEEN_SITES:
            return True
        stranger = next((seen for seen, sighting in self._reported.items() if not sighting.verified), None)
        if not judged.boot or stranger is None:
            return False
        touched.add(stranger)
        for instance in list(self._sites[stranger]):
            self._forget(instance)
        return True

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
