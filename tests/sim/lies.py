"""What a hostile member says, in the bytes of the independent encoder: each lie is small and has a name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from support.foreign_bytes import RETIREMENT, Frame, Site, encode
from support.records import MESH_ID

from meshnode.limits import REQUESTS_PER_PEER, SKEW_MS, UNKNOWN_GROUPS_PER_SITE
from meshnode.model.hlc import Hlc
from sim.chance import Chance
from sim.tables import LATE, NOTES

OTHER_MESH: Final = bytes(range(16, 32))
ROWS: Final = 3


class Lies:
    """Made of one site's key; `now_ms` is the true time, `honest` are the sites that it knows."""

    def __init__(self, site: Site, chance: Chance, now_ms: Callable[[], int], honest: Sequence[bytes]) -> None:
        self.site = site
        self.overheard: list[bytes] = []  # events of others, to be said again
        self.claimed: dict[tuple[bytes, str], Hlc] = {}  # the highest false watermark that it told of a group
        self._chance = chance
        self._now_ms = now_ms
        self._honest = honest
        self._said = 0
        self._sides: dict[int, int] = {}  # which of two stories a peer is told

    # --- events

    def events(self, peer: int) -> list[bytes]:
        """Something for a batch; two peers may be told different things under one clock."""
        make = self._chance.pick(
            (
                self._plain,
                self._plain,
                self._deleting,
                lambda: self.twice(peer),
                lambda: self.twice(peer),
                self._ahead,
                self._long_ago,
                self._garbage,
                self._forged,
                self._of_another_mesh,
                self._by_a_stranger,
                self._no_row,
                self._reserved,
                self._flood,
                self._replayed,
            )
        )
        return make()

    def _plain(self) -> list[bytes]:
        return [self._event({"title": f"hostile {self._said}", "n": self._said}) for _ in range(2)]

    def _deleting(self) -> list[bytes]:
        return [self._event(None)]

    def twice(self, peer: int) -> list[bytes]:
        """Equivocation: one clock, two events, on rows that nobody else writes."""
        side = self._sides.setdefault(peer, len(self._sides) % 2)
        minute = self._now_ms() // 60_000 * 60_000
        told = {"title": f"told to side {side}"}
        return [self._event(told, (minute, number), key={"id": f"twice {number}"}) for number in (1, 2)]

    def _ahead(self) -> list[bytes]:
        """Beyond the skew bound, by a little or for ever."""
        by_ms = self._chance.pick((1, 60_000, 3_600_000, 2**62))
        return [self._event({"title": "from the future"}, (self._now_ms() + SKEW_MS + by_ms, 0))]

    def _long_ago(self) -> list[bytes]:
        return [self._event({"title": "backdated"}, (self._chance.pick((0, 1, self._now_ms() - 10**9)), 7))]

    def _garbage(self) -> list[bytes]:
        event = self._event({"title": "cut short"})
        return [b"", self._chance.data(40), event[:-1], event + b"\0"]

    def _forged(self) -> list[bytes]:
        event = bytearray(self._event({"title": "forged"}))
        event[-1] ^= 1
        return [bytes(event)]

    def _of_another_mesh(self) -> list[bytes]:
        return [self.site.event(OTHER_MESH, {"id": "row 1"}, {"title": "elsewhere"}, self._clock())]

    def _by_a_stranger(self) -> list[bytes]:
        return [Site(bytes(31) + b"\xee").event(MESH_ID, {"id": "row 1"}, {"title": "who?"}, self._clock())]

    def _no_row(self) -> list[bytes]:
        keys = ({}, None, {"other": 1}, {"id": 5}, {"id": "row 1", "more": 2})
        return [self._event({"title": "nowhere"}, key=self._chance.pick(keys))]

    def _reserved(self) -> list[bytes]:
        return [self._event({"value": 1}, key={"name": "site"}, table="meshnode_meta")]

    def _flood(self) -> list[bytes]:
        """Tables that nobody has: more of them than a site may hold open, now and then."""
        count = self._chance.pick((5, 20, UNKNOWN_GROUPS_PER_SITE + 10))
        return [self._event({"x": "y" * 50}, key={"id": "f"}, table=f"flood {number}") for number in range(count)]

    def _replayed(self) -> list[bytes]:
        return self.overheard[-20:] or self._plain()

    def _event(
        self,
        columns: dict[str, object] | None,
        clock: tuple[int, int] | None = None,
        *,
        key: object = ...,
        table: str = "",
    ) -> bytes:
        self._said += 1
        row = {"id": f"row {self._chance.between(1, ROWS)}"} if key is ... else key
        name = table or self._chance.pick((NOTES.name, NOTES.name, LATE.name))
        return self.site.event(MESH_ID, row, columns, clock or self._clock(), table=name)

    def _clock(self) -> tuple[int, int]:
        return (self._now_ms(), 1_000 + self._said)

    # --- records

    def records(self) -> list[bytes]:
        """Records that must have no effect."""
        victim, stranger = self._chance.pick(self._honest), Site(bytes(31) + b"\xed")
        now = self._clock()
        retirement = {"site": victim, "cutoff": [0, 0], "honours": [], "issued": list(now)}
        return [
            self.site.vouch(MESH_ID, stranger, now),
            self.site.seal(MESH_ID, RETIREMENT, retirement),
            self.site.seal(OTHER_MESH, RETIREMENT, retirement),
            stranger.vouch(MESH_ID, self.site, now),
            self._chance.data(30),
        ]

    # --- frames

    def clock(self, own: int) -> dict[bytes, int]:
        """The causal frontier of a batch: of others it claims whatever it likes."""
        slots = {self.site.site: own}
        if self._chance.hit(0.5):
            slots.update(dict.fromkeys(self._honest, self._chance.pick((0, 7, 2**40, 2**63 - 1))))
        return slots

    def max_hlc(self) -> dict[bytes, list[int]]:
        """The hello's hint: sometimes that it knows later events of others than they do."""
        if self._chance.hit(0.6):
            return {}
        by_ms = self._chance.pick((-(10**6), 1_000, SKEW_MS - 10_000, SKEW_MS + 10_000, 2**62))
        return {site: [self._now_ms() + by_ms, 0] for site in self._honest}

    def watermarks(self, epoch: bytes, no: int) -> Frame:
        """Claims to have applied what never was."""
        entries = []
        for site in self._chance.some(self._honest, 0.5):
            table = self._chance.pick((NOTES.name, LATE.name, "flood 1"))
            by_ms = self._chance.pick((-60_000, 0, SKEW_MS - 10_000, SKEW_MS + 60_000))
            claim = Hlc(self._now_ms() + by_ms, 0)
            self.claimed[(site, table)] = max(claim, self.claimed.get((site, table), claim))
            entries.append([site, "main", table, *claim])
        return {"t": "watermarks", "after": {"epoch": epoch, "no": no}, "entries": entries}

    def requests(self) -> list[Frame]:
        """Asks for everything, and for more than one node answers at a time."""
        count = self._chance.pick((1, 1, 3, REQUESTS_PER_PEER + 6))
        whats: tuple[Frame, ...] = (
            {"what": "table", "schema": "*", "table": "*"},
            {"what": "table", "schema": "main", "table": NOTES.name},
            {"what": "site", "site": self._chance.pick(self._honest)},
            {"what": "site", "site": bytes(16)},
        )
        return [{"t": "request", "id": self._chance.data(8), **self._chance.pick(whats)} for _ in range(count)]

    def nonsense(self) -> bytes:
        """Bytes that no peer may send: they end the link."""
        return self._chance.pick(
            (
                encode({"t": "gossip"}),
                encode({"t": "hello"}),
                encode({"t": "bye", "code": 0, "reason": "x", "more": 1}),
                encode([1, 2, 3]),
                b"\xff\xff",
                b"",
            )
        )
