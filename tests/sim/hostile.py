"""A hostile member: vouched for, with a key of its own and no store; on each link it behaves in a bad way."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from support.foreign_bytes import SHAPES, Frame, Site, digest, encode, framed, strictly
from support.mesh_context import START_MS
from support.records import site_key

from meshnode.errors import CloseCode
from meshnode.model.frames import FEATURE_LIVE
from sim.chance import Chance
from sim.lies import Lies
from sim.network import Host, Side
from sim.plan import HOSTILE
from sim.schedule import MS, SECOND
from sim.watch import Violation

if TYPE_CHECKING:
    from sim.world import World

FEATURES: Final = (FEATURE_LIVE,)  # that it knows
MANNERS: Final = ("acks", "acks", "acks all as rejected", "never acks", "acks what was not sent", "naks", "acks twice")
NAKS: Final = 100  # on one link: each costs an epoch a second at most, so without end there would be no rest


class Hostile:
    """As a host it is always there, except for a while after each link that ended."""

    number = HOSTILE

    def __init__(self, world: World) -> None:
        self.world = world
        self.chance: Chance = world.chance.branch("hostile")
        self.key = site_key(HOSTILE)
        honest = [node.site for node in world.nodes]
        self.lies = Lies(Site(HOSTILE.to_bytes(32, "big")), self.chance.branch("lies"), self.now_ms, honest)
        self.links: dict[int, Liar] = {}
        self._away = False

    @property
    def site(self) -> bytes:
        """The site id."""
        return self.key.site

    @property
    def public_key(self) -> bytes:
        """The site's public key."""
        return self.key.public_key

    @property
    def is_up(self) -> bool:
        """Whether it dials and answers."""
        return not self._away

    def now_ms(self) -> int:
        """The true time."""
        return START_MS + self.world.schedule.now_us // MS

    def refuses(self, peer: Host) -> bool:
        """It talks to everybody."""
        return False

    def is_linked(self, peer: Host) -> bool:
        """Whether it has a link to the peer."""
        return peer.number in self.links

    def linked(self, side: Side) -> Liar:
        """A link came."""
        before = self.links.pop(side.peer.number, None)
        if before is not None:
            before.side.close(CloseCode.DUPLICATE, "a newer link")
        liar = self.links[side.peer.number] = Liar(self, side)
        return liar

    def ended(self, liar: Liar) -> None:
        """A link ended: it stays away for a while, as whoever is turned away has to."""
        if self.links.get(liar.side.peer.number) is liar:
            del self.links[liar.side.peer.number]
        self._away = True
        self.world.schedule.after(self.chance.spread(5 * SECOND), self._come_back, idle=True)

    def _come_back(self) -> None:
        self._away = False


class Liar:
    """One link of the hostile member."""

    def __init__(self, hostile: Hostile, side: Side) -> None:
        self.side = side
        self._hostile = hostile
        self._lies = hostile.lies
        self._chance = hostile.chance
        self._manner = self._chance.pick(MANNERS)
        self._epoch = self._chance.data(8)
        self._no = 0
        self._naks_left = NAKS
        self._features = self._chance.some(FEATURES, 0.5)
        self._buffers = {"control": b"", "events": b""}
        hostile.world.note(f"hostile links to {side.peer.number}: {self._manner}")
        self._greet()
        self._show({"t": "open", "epoch": self._epoch, "next": 1})
        if self._chance.hit(0.6):
            self._offer("batch", events=self._lies.twice(side.peer.number))
        self._wait()

    # --- what it hears

    def control(self, data: bytes) -> None:
        """Bytes of the control stream."""
        self._take("control", data)

    def events(self, data: bytes) -> None:
        """Bytes of the peer's event stream."""
        for frame, cbor in self._take("events", data):
            if frame["t"] in ("batch", "live", "records", "answered"):
                self._answer(frame, cbor)
            if frame["t"] in ("batch", "live"):
                self._lies.overheard.extend(frame.get("events", ()))
                del self._lies.overheard[:-100]

    def closed(self, code: CloseCode | None, reason: str, *, local: bool) -> None:
        """The link ended."""
        self._hostile.ended(self)

    def _take(self, stream: str, data: bytes) -> list[tuple[Frame, bytes]]:
        """Whole frames; every one must be as profile §8 spells it, which an honest node can be held to."""
        buffer, found = self._buffers[stream] + data, []
        while len(buffer) >= 4 and len(buffer) >= (end := 4 + int.from_bytes(buffer[:4], "big")):
            cbor, buffer = buffer[4:end], buffer[end:]
            frame = strictly(cbor)
            if not SHAPES[frame["t"]](frame):
                raise Violation("Shapes", f"node {self.side.peer.number} sent no frame of profile §8: {frame}")
            found.append((frame, cbor))
        self._buffers[stream] = buffer
        return found

    def _answer(self, frame: Frame, cbor: bytes) -> None:
        ack = {
            "t": "ack",
            "epoch": frame["epoch"],
            "no": frame["no"],
            "digest": digest(cbor),
            "hlc": [self._hostile.now_ms(), 0],
            "rejected": [],
            "held": 0,
            "dropped": 0,
        }
        match self._manner:
            case "acks":
                self._say(ack)
            case "acks twice":
                self._say(ack)
                self._say(ack)
            case "acks all as rejected":
                items = frame.get("events", frame.get("records", ()))
                self._say(ack | {"rejected": list(range(len(items)))})
            case "acks what was not sent" if self._chance.hit(0.3):
                self._say(ack | {"no": frame["no"] + 5})
            case "naks" if self._naks_left and self._chance.hit(0.5):
                self._naks_left -= 1
                expected = self._chance.pick((0, 1, frame["no"], 10**6))
                self._say({"t": "nak", "epoch": frame["epoch"], "expected": expected, "reason": "no"})

    # --- what it says

    def _greet(self) -> None:
        inbound: Any = None
        if self._chance.hit(0.4):
            inbound = {
                "epoch": self._chance.data(8),
                "next": self._chance.pick((1, 5, 10**6)),
                "digest": self._chance.data(32),
            }
        if inbound and inbound["next"] == 1:
            inbound["digest"] = b""
        offset = self._chance.pick((0, 0, 10**6, 2**61))
        now_ms = self._hostile.now_ms() + offset
        self._say(
            {
                "t": "hello",
                "v": 1,
                "site": self._hostile.site,
                "name": "hostile",
                "software": "lies",
                "incarnation": bytes(16),
                "boot": self._chance.data(8),
                "wall": now_ms,
                "hlc": [now_ms, 0],
                "scope": [],
                "features": self._features,
                "inbound": inbound,
                "max_hlc": self._lies.max_hlc(),
            }
        )

    def _wait(self) -> None:
        self._hostile.world.schedule.after(self._chance.spread(2 * SECOND), self._act, idle=True)

    def _act(self) -> None:
        world = self._hostile.world
        if not self.side.alive:
            return
        if world.is_peaceful:
            return  # it keeps its links and its manner of answering, and starts nothing new
        deeds: tuple[Callable[[], None], ...] = (
            *(self._offer_events,) * 8,
            *(self._offer_records,) * 2,
            lambda: self._say(self._lies.watermarks(self._epoch, self._no)),
            lambda: [self._say(each) for each in self._lies.requests()] and None,
            self._offer_out_of_order,
            self._reopen,
            self._break_the_protocol,
        )
        self._chance.pick(deeds)()
        self._wait()

    def _offer_events(self) -> None:
        kind = "live" if self._features and self._chance.hit(0.3) else "batch"
        self._offer(kind, events=self._lies.events(self.side.peer.number))

    def _offer_records(self) -> None:
        self._offer("records", records=self._lies.records())

    def _offer(self, kind: str, **fields: Any) -> None:
        self._no += 1
        if kind in ("batch", "live"):
            fields["clock"] = self._lies.clock(self._no)
        self._show({"t": kind, "epoch": self._epoch, "no": self._no, **fields})

    def _offer_out_of_order(self) -> None:
        """A number that was used, with other bytes, or one too far ahead, or in an epoch that nobody opened."""
        number = self._chance.pick((1, self._no + 1, self._no + 3))
        epoch = self._chance.pick((self._epoch, bytes(8)))
        if epoch == self._epoch and number == self._no + 1:
            self._no += 1
        self._show({"t": "batch", "epoch": epoch, "no": number, "clock": {}, "events": []})

    def _reopen(self) -> None:
        self._epoch = self._chance.data(8)
        first = self._chance.pick((1, 1, 9))
        self._no = first - 1
        self._show({"t": "open", "epoch": self._epoch, "next": first})

    def _break_the_protocol(self) -> None:
        if self._chance.hit(0.5):
            self.side.send_control(framed(self._lies.nonsense()))
        else:
            self.side.send_events(framed(self._lies.nonsense()))

    def _say(self, frame: Frame) -> None:
        self.side.send_control(framed(encode(frame)))

    def _show(self, frame: Frame) -> None:
        self.side.send_events(framed(encode(frame)))
