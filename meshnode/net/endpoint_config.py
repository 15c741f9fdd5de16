"""What an endpoint is told once: its bounds, which tests tighten, and how the node judges sites (profile §7, §12)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from meshnode import limits

ALPN_SYNC = "ssp/1"
ALPN_PAIRING = "ssp-pair/1"
ALPN_NEARBY = "ssp-near/1"  # only where an endpoint was made for it (profile §10)
CEREMONIES = frozenset({ALPN_PAIRING, ALPN_NEARBY})


class Admission(Enum):
    """What the node says of a site that proved who it is."""

    MEMBER = "member"  # in the keyring with that key and not retired
    UNKNOWN = "unknown"  # may introduce itself (ssp/1), may go through a ceremony (ssp-pair/1, ssp-near/1)
    RETIRED = "retired"
    REFUSED = "refused"  # no invite is open (ssp-pair/1), or its key is not the one in the keyring


# (site, public key, ALPN of a link that the peer opened or that we did) -> Admission
Admit = Callable[[bytes, bytes, str], Admission]
# (kind, site or None where none was proven, text)
OnNotice = Callable[[str, bytes | None, str], None]


@dataclass(frozen=True, slots=True)
class EndpointConfig:
    """Bounds and times of one endpoint; the defaults are the profile's."""

    alpns: tuple[str, ...] = (ALPN_SYNC, ALPN_PAIRING)  # what others may dial it for
    live_links: int = limits.LIVE_CONNECTIONS
    yields: bool = (
        False  # when full, a link gives way to a nearer neighbour's (net/neighbours.py), and that is no notice
    )
    handshakes: int = limits.HANDSHAKE_CONNECTIONS
    handshakes_per_address: int = limits.HANDSHAKES_PER_ADDRESS
    retry_from: int = limits.RETRY_THRESHOLD
    handshake_bytes: int = limits.HANDSHAKE_BYTES
    handshake_s: float = limits.HANDSHAKE_S
    introduce_s: float = limits.INTRODUCE_S
    pairing_s: float = limits.PAIRING_S
    keep_alive_s: float = limits.KEEP_ALIVE_S
    silence_s: float = limits.SILENCE_S
    duplicate_ping_s: float = limits.DUPLICATE_PING_S
    window_bytes: int = limits.LINK_WINDOW_BYTES
    control_bytes: int = limits.CONTROL_UNACKNOWLEDGED_BYTES
    kept_packets: int = limits.KEPT_PACKETS
    notice_interval_s: float = limits.NOTICE_INTERVAL_S
    datagram_sizes: tuple[int, ...] = limits.DATAGRAM_SIZES  # tried on every path beyond what all carry

    @property
    def idle_s(self) -> float:
        """QUIC's idle timeout starts again with the first keep-alive after the last sign of life, so both add up."""
        return self.silence_s - self.keep_alive_s
