"""What the parts of an endpoint are to one another: the owner below a connection, the sink above it (profile §7)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cryptography import x509

from meshnode.errors import CloseCode
from meshnode.net.endpoint_source import Address

if TYPE_CHECKING:
    from meshnode.net.endpoint_connection import Connection


@dataclass(frozen=True, slots=True)
class Ending:
    """How a connection ended; `code` is None where no application close code was given (silence, QUIC itself)."""

    code: CloseCode | None
    reason: str
    local: bool
    abandoned: bool = False  # by the peer that dialed, before the handshake was through


TOO_MANY_PEERS = "too many peers"
FULL_THERE = "it has as many links as it takes (its max_links)"
FULL_HERE = "this node has as many links as it may (max_links)"


def in_words(ending: Ending) -> str:
    """Why a connection ended, for people."""
    if ending.code is CloseCode.LIMIT and ending.reason == TOO_MANY_PEERS:
        return FULL_HERE if ending.local else FULL_THERE
    who = "given up" if ending.local else "refused"
    code = "without a reason" if ending.code is None else ending.code.name.lower().replace("_", " ")
    return f"{who}: {ending.reason or code}"


def close_code_of(number: int) -> CloseCode | None:
    """The close code of that number, where the profile has one."""
    try:
        return CloseCode(number)
    except ValueError:
        return None


class Sink(Protocol):
    """The link on top of an authenticated connection."""

    def received_untrusted(self, control: bytes, events: bytes) -> None:
        """In-order bytes of the two streams; either may be empty."""

    def progressed(self) -> None:
        """The peer may have acknowledged something."""

    def moved(self) -> None:
        """The peer is at another address."""

    def ended(self, ending: Ending) -> None:
        """Nothing comes after this."""


class Owner(Protocol):
    """The endpoint that a connection belongs to."""

    def send_all(self, flight: list[tuple[bytes, Address]]) -> list[int]:
        """Datagrams, in order; the sizes of those that are larger than the interface takes."""

    def touch(self, connection: Connection) -> None:
        """Settle the connection before this wake-up ends."""

    def learn(self, connection: Connection, connection_id: bytes) -> None:
        """The peer may use this id for us."""

    def forget(self, connection: Connection, connection_id: bytes) -> None:
        """The peer does not use this id any more."""

    def handshaken_untrusted(self, connection: Connection, certificates: list[x509.Certificate], alpn: str) -> None:
        """TLS is through: authenticate, then accept or refuse."""

    def confirmed(self, connection: Connection) -> None:
        """The peer let us in."""

    def ended(self, connection: Connection, ending: Ending) -> None:
        """The connection is of no more use, though its ids still are."""

    def gone(self, connection: Connection) -> None:
        """Forget the connection."""
