"""How much passes over each link: the difference between two readings of what the node counts anyway (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from meshnode.node.metricviews import MetricView

COUNTER: Final = "meshnode_link_bytes"
APART_S: Final = 0.9  # seconds at least between two readings that are compared
Readings = Mapping[tuple[str, str], float]  # by short id and direction


@dataclass(frozen=True, slots=True)
class Rate:
    """Bytes a second, both ways."""

    sent: float = 0.0
    received: float = 0.0

    @property
    def any(self) -> bool:
        """Whether there is something worth a mark."""
        return max(self.sent, self.received) >= 1.0


STILL: Final = Rate()


class Throughput:
    """Keeps the last reading alone: as many numbers as there are links."""

    def __init__(self) -> None:
        self._at_s = 0.0
        self._last: Readings = {}
        self._rates: Mapping[str, Rate] = {}

    def due(self, now_s: float) -> bool:
        """Whether another reading would tell something."""
        return now_s - self._at_s >= APART_S

    def take(self, metrics: Sequence[MetricView], now_s: float) -> None:
        """One reading."""
        now = readings_of(metrics)
        apart_s = now_s - self._at_s
        if self._last:
            peers = {peer for peer, _ in now}
            self._rates = {
                peer: Rate(*(_grown(self._last, now, (peer, way)) / apart_s for way in ("sent", "received")))
                for peer in peers
            }
        self._at_s, self._last = now_s, now

    def of(self, short: str) -> Rate:
        """Of one peer."""
        return self._rates.get(short, STILL)


def readings_of(metrics: Sequence[MetricView]) -> Readings:
    """What of all metrics is about the bytes of links."""
    return {
        (sample.labels["peer"], sample.labels["direction"]): sample.value
        for metric in metrics
        if metric.name == COUNTER
        for sample in metric.samples
    }


def _grown(before: Readings, now: Readings, key: tuple[str, str]) -> float:
    """A link that is another one now counts from nothing."""
    value = now.get(key, 0.0)
    last = before.get(key, value)
    return value - last if value >= last else value
