"""Errors of QUIC and TLS in words: what happened, and what to do (RFC 9000 §20, RFC 9001 §4.8, RFC 8446 §6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

APPLICATION_ERROR: Final = 0xC  # how an application's own close arrives before the handshake is through
_TLS: Final = 0x100  # and the alert

_SAME_RELEASE: Final = "bring both devices to the same release of meshnode"
_ERRORS: Final[Mapping[int, str]] = {
    0x0: "it ended the connection without a word",
    0x1: "it has a fault of its own: its log says more",
    0x2: "it takes no connections now",
    0x3: "it was sent more than it allows",
    0x4: "it was sent more streams than it allows",
    APPLICATION_ERROR: "it gave up before the connection was up",
    0xD: "it was sent more in the handshake than it keeps",
    0xB: "it did not take our token: it may have started anew",
}
_ALERTS: Final[Mapping[int, str]] = {
    40: f"it finds no cryptography that both know: {_SAME_RELEASE}",
    42: "it could not use the certificate: it may not be a meshnode",
    43: "it takes no certificate of this kind: it may not be a meshnode",
    48: "it asks for a certificate by an authority: it is not a meshnode",
    70: f"it speaks another version of TLS: {_SAME_RELEASE}",
    80: "it has a fault of its own: its log says more",
    116: "it was shown no certificate: whoever is there is not a meshnode",
    120: f"it speaks another protocol, or another version of this one: {_SAME_RELEASE}",
}


def quic_words(error: int) -> str:
    """The error by its number, for people; what has no words is named with its number."""
    known = _ALERTS.get(error - _TLS) if _TLS <= error < 2 * _TLS else _ERRORS.get(error)
    kind = f"TLS alert {error - _TLS}" if _TLS <= error < 2 * _TLS else f"QUIC error {error:#x}"
    return f"{known} ({kind})" if known else f"it broke off ({kind}): if it is a device of yours, {_SAME_RELEASE}"
