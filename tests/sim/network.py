"""Links in virtual time: what QUIC leaves of a network's weather (profile §7).

A stream is reliable and keeps its order, so datagrams that are lost, doubled or overtaken show as delay, in portions of
any size, as one stream running ahead of the other, and in the end as a link that breaks: whatever was under way then is
lost. A direction that is cut stalls; who hears nothing for `SILENCE_S` gives the link up, and only that side.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from meshnode.errors import CloseCode
from meshnode.limits import SILENCE_S
from sim.chance import Chance
from sim.schedule import MS, SECOND, Schedule

Direction = tuple[int, int]
"""From one host to another, by number."""


@dataclass(frozen=True, slots=True)
class Weather:
    """What one link is like."""

    latency_us: int
    jitter_us: int
    loss: float  # how often something has to be sent again
    bytes_per_ms: int


class Driver(Protocol):
    """What a host does with its side of a link."""

    def control(self, data: bytes) -> None: ...

    def events(self, data: bytes) -> None: ...

    def closed(self, code: CloseCode | None, reason: str, *, local: bool) -> None: ...


class Host(Protocol):
    """Who can be at the end of a link."""

    number: int

    @property
    def site(self) -> bytes: ...

    @property
    def public_key(self) -> bytes: ...

    @property
    def is_up(self) -> bool: ...

    def refuses(self, peer: Host) -> bool:
        """Whether the peer is turned away before a link is live (profile §7)."""

    def is_linked(self, peer: Host) -> bool:
        """Whether this host believes that it has a link to the peer."""

    def linked(self, side: Side) -> Driver | None:
        """A link is there; it replaces one to the same peer. None where nobody is there any more."""


class Pipe:
    """One stream in one direction."""

    def __init__(self, side: Side, deliver: Callable[[bytes], None]) -> None:
        self._side = side
        self._deliver = deliver
        self._under_way: deque[bytes] = deque()
        self._arrived = 0
        self._last_us = 0

    def send(self, data: bytes) -> None:
        """Bytes of the stream; they arrive behind those sent before."""
        network, weather = self._side.network, self._side.weather
        chance = network.chance
        if len(data) > 1 and chance.hit(0.05):
            cut = chance.between(1, len(data) - 1)
            self._send(data[:cut], weather, chance)
            data = data[cut:]
        self._send(data, weather, chance)

    def _send(self, data: bytes, weather: Weather, chance: Chance) -> None:
        schedule = self._side.network.schedule
        delay = weather.latency_us + chance.spread(weather.jitter_us)
        while chance.hit(weather.loss):
            delay += 2 * weather.latency_us + chance.spread(200 * MS)
        at_us = max(self._last_us, schedule.now_us + int(delay)) + len(data) * MS // weather.bytes_per_ms
        self._last_us = at_us
        self._under_way.append(data)
        schedule.after(at_us - schedule.now_us, self._arrive)

    def drain(self) -> None:
        """Hand over what arrived, unless the direction is cut."""
        side = self._side
        if self._arrived and not side.broken and not side.network.is_cut(side.direction):
            data = b"".join(self._under_way.popleft() for _ in range(self._arrived))
            self._arrived = 0
            self._deliver(data)

    def _arrive(self) -> None:
        self._arrived += 1
        self.drain()


class Side:
    """One host's side of a link."""

    def __init__(self, network: Network, host: Host, peer: Host, weather: Weather) -> None:
        self.network, self.host, self.peer, self.weather = network, host, peer, weather
        self.direction = (host.number, peer.number)
        self.made_us = network.schedule.now_us
        self.alive = True
        self.broken = False  # nothing gets through any more, not even what is under way
        self.sent = Counter[str]()
        self._other: Side
        self._driver: Driver | None = None
        self._control = Pipe(self, lambda data: self._other._receive_control(data))
        self._events = Pipe(self, lambda data: self._other._receive_events(data))

    def join(self, other: Side) -> None:
        """The other end."""
        self._other = other

    def start(self) -> None:
        """The link is there."""
        self._driver = self.host.linked(self)

    def send_control(self, data: bytes) -> None:
        """Bytes for the control stream."""
        if self.alive:
            self.sent["control"] += len(data)
            self._control.send(data)

    def send_events(self, data: bytes) -> None:
        """Bytes for our event stream."""
        if self.alive:
            self.sent["events"] += len(data)
            self._events.send(data)

    def close(self, code: CloseCode, reason: str) -> None:
        """Close the link; the other side is told, if anything gets through."""
        if self.alive:
            self._end(code, reason, local=True)
            schedule, delay = self.network.schedule, self.weather.latency_us
            schedule.after(delay, lambda: self._other._told(code, reason))

    def vanish(self) -> None:
        """The process is gone without a word."""
        self.alive = False
        self.network.forget(self)
        self._other.listen()

    def lost(self) -> None:
        """The link broke and this side knows."""
        self._end(None, "the connection was lost", local=False)

    def listen(self) -> None:
        """Nothing may come any more: give up after a while."""
        self.network.schedule.after(SILENCE_S * SECOND, self._silent, idle=True)

    def drain(self) -> None:
        """The direction is open again."""
        self._control.drain()
        self._events.drain()

    def _silent(self) -> None:
        if self.alive and (self.broken or not self._other.alive or self.network.is_cut(self._other.direction)):
            self.close(CloseCode.DONE, "silence")

    def _told(self, code: CloseCode, reason: str) -> None:
        if self.broken or self.network.is_cut(self._other.direction):
            self.listen()
        else:
            self._end(code, reason, local=False)

    def _end(self, code: CloseCode | None, reason: str, *, local: bool) -> None:
        if self.alive:
            self.alive = False
            self.network.forget(self)
            if self._driver is not None:
                self._driver.closed(code, reason, local=local)

    def _receive_control(self, data: bytes) -> None:
        if self.alive and self._driver is not None:
            self._driver.control(data)

    def _receive_events(self, data: bytes) -> None:
        if self.alive and self._driver is not None:
            self._driver.events(data)


class Network:
    """Who can reach whom, and the links that there are."""

    def __init__(self, schedule: Schedule, chance: Chance) -> None:
        self.schedule, self.chance = schedule, chance
        self.bytes: Counter[str] = Counter()
        self.links = 0
        self._hosts: dict[int, Host] = {}
        self._edges: dict[Direction, Weather] = {}
        self._cut: Counter[Direction] = Counter()
        self.sides: list[Side] = []  # of the links that there are
        self._looking: set[Direction] = set()

    def edge(self, left: Host, right: Host, weather: Weather) -> None:
        """From now on these two look for each other."""
        self._hosts.update({left.number: left, right.number: right})
        self._edges[(left.number, right.number)] = weather
        self._look_again(left.number, right.number)

    @property
    def edges(self) -> list[Direction]:
        """The pairs that look for each other."""
        return list(self._edges)

    def holds_together(self, hosts: Iterable[Host], through: Iterable[Host]) -> bool:
        """Whether these hosts, at least two, reach each other by way of some of them."""
        listed, relays = list(hosts), list(through)
        return len(listed) > 1 and len(self.reached(listed, relays[:1], through=relays)) == len(listed)

    def reached(self, hosts: Iterable[Host], starts: Iterable[Host], *, through: Iterable[Host]) -> set[int]:
        """Which of these hosts, by number, something comes to that starts at some and is passed on by some."""
        left, relays = {host.number for host in hosts}, {host.number for host in through}
        reached: set[int] = set()
        waiting = sorted({host.number for host in starts} & left)
        while waiting:
            at = waiting.pop()
            reached.add(at)
            if at in relays:
                near = [pair[at == pair[0]] for pair in self._edges if at in pair]
                waiting += [number for number in near if number in left - reached]
        return reached

    def is_cut(self, direction: Direction) -> bool:
        """Whether nothing gets through."""
        return self._cut[direction] > 0

    def cut(self, directions: Iterable[Direction], for_us: float) -> None:
        """Nothing gets through in these directions for a while."""
        listed = list(directions)
        for direction in listed:
            self._cut[direction] += 1
            for side in self.sides:
                if side.direction == direction[::-1]:
                    side.listen()
        self.schedule.after(for_us, lambda: self._heal(listed))

    def heal(self) -> None:
        """Everything gets through."""
        self._heal([direction for direction, times in self._cut.items() for _ in range(times)])

    def break_link(self, left: int, right: int) -> None:
        """The link between two hosts breaks, if there is one: each side learns of it in its own time."""
        for side in list(self.sides):
            if set(side.direction) == {left, right} and side.alive:
                side.broken = True
                self.schedule.after(self.chance.spread(2 * SECOND), side.lost)

    def forget(self, side: Side) -> None:
        """A side ended: the two look for each other again."""
        self.bytes.update(side.sent)
        side.sent.clear()
        self.sides = [each for each in self.sides if each is not side]
        self._look_again(*side.direction if side.direction in self._edges else side.direction[::-1])

    def _heal(self, directions: Iterable[Direction]) -> None:
        for direction in directions:
            self._cut[direction] = max(self._cut[direction] - 1, 0)
            if not self._cut[direction]:
                for side in list(self.sides):
                    if side.direction == direction:
                        self.schedule.after(self.chance.spread(50 * MS), side.drain)

    def _look_again(self, left: int, right: int) -> None:
        """After a while, with jitter, where they do not look already."""
        if (left, right) not in self._looking:
            self._looking.add((left, right))
            delay_us = 100 * MS + self.chance.spread(400 * MS)
            self.schedule.after(delay_us, lambda: self._look(left, right), idle=True)

    def _look(self, left: int, right: int) -> None:
        """Dial where one of the two has no link, until both have."""
        self._looking.discard((left, right))
        one, other = self._hosts[left], self._hosts[right]
        if one.is_linked(other) and other.is_linked(one):
            return
        if one.is_up and other.is_up:
            open_both_ways = not (self.is_cut((left, right)) or self.is_cut((right, left)))
            if open_both_ways and not (one.refuses(other) or other.refuses(one)):
                self._connect(one, other, self._edges[(left, right)])
        self._look_again(left, right)

    def _connect(self, one: Host, other: Host, weather: Weather) -> None:
        left, right = Side(self, one, other, weather), Side(self, other, one, weather)
        left.join(right)
        right.join(left)
        self.sides += [left, right]
        self.links += 1
        for side in (left, right):
            self.schedule.after(weather.latency_us, side.start)
