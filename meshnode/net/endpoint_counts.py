"""What one node's socket carried, and how handshakes ended (profile §7): numbers for whoever watches."""

from __future__ import annotations

from meshnode.errors import CloseCode
from meshnode.model.metering import Counts


class EndpointCounts:
    """One per node, kept over its endpoints; counted on the event loop."""

    __slots__ = ("bytes_received", "bytes_sent", "datagrams_received", "datagrams_sent", "handshakes")

    def __init__(self) -> None:
        self.datagrams_received = self.datagrams_sent = 0
        self.bytes_received = self.bytes_sent = 0
        self.handshakes = Counts()

    def handshake(self, outcome: str, *, opened_by_us: bool) -> None:
        """One ended: `accepted`, or why not."""
        self.handshakes.add("outgoing" if opened_by_us else "incoming", outcome)


def outcome_of(code: CloseCode | None) -> str:
    """Why a handshake led to no link: a close code, or `gone` where nobody proved anything."""
    return "gone" if code is None else code.name.lower().replace("_", "-")
