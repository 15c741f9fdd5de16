"""On which networks this node shows itself: what an interface is joined to, against what its owner trusts (NEOTH).

Pure: how the platform is asked is in `wifi_linux.py`, `wifi_macos.py` and `wifi_windows.py`, when in `wifi_guard.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Wired:
    """No Wi-Fi: a cable, or what looks like one."""


@dataclass(frozen=True, slots=True)
class Wifi:
    """A Wi-Fi network by the exact bytes of its name; without one `why` says what keeps it from being read."""

    ssid: bytes | None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    """It cannot even be told whether it is Wi-Fi."""

    why: str


Network = Wired | Wifi | Unknown


@dataclass(frozen=True, slots=True)
class WifiPolicy:
    """Where to announce and browse. The defaults are every network, and nobody has to be asked for its name.

    A name that cannot be read may be that of any café, so it does not count as trusted unless its owner says so.
    """

    announce_on_untrusted_wifi: bool = True
    announce_on_unknown_networks: bool = False
    announce_on_wired_networks: bool = True
    trusted_ssids: frozenset[bytes] = frozenset()

    @property
    def everywhere(self) -> bool:
        """Whether it comes to the same whatever the networks are."""
        return self.announce_on_untrusted_wifi and self.announce_on_wired_networks


def refusals(networks: Mapping[str, Network], policy: WifiPolicy) -> dict[str, str]:
    """Of each interface where the node keeps quiet, why."""
    reasons = {name: _refusal(network, policy) for name, network in networks.items()}
    return {name: reason for name, reason in reasons.items() if reason is not None}


def _refusal(network: Network, policy: WifiPolicy) -> str | None:
    if policy.everywhere:
        return None
    match network:
        case Wired():
            if policy.announce_on_wired_networks:
                return None
            return "it is no Wi-Fi, and announce_on_wired_networks is false"
        case Unknown(why):
            if policy.announce_on_unknown_networks:
                return None
            return f"it is not known what it is joined to ({why}), and announce_on_unknown_networks is false"
        case Wifi(None, why):
            if policy.announce_on_untrusted_wifi or policy.announce_on_unknown_networks:
                return None
            return f"the name of its Wi-Fi is not known ({why}), and announce_on_unknown_networks is false"
        case Wifi(ssid):
            if policy.announce_on_untrusted_wifi or ssid in policy.trusted_ssids:
                return None
            return f"joined to {shown(ssid or b'')}, which is not in trusted_ssids"


def shown(ssid: bytes) -> str:
    """A network's name in quotes. It is anybody's choice, so nothing in it reaches a terminal as it is.

    What can be shown reads as it has to be written in `config.toml`.
    """
    text = ssid.decode("utf-8", "surrogateescape")
    return '"' + "".join(map(_shown_character, text)) + '"'


def _shown_character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\U{code:08x}"
