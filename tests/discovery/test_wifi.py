"""Where a node keeps quiet: the decision, what each platform's tool says, and when it is asked (NEOTH)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.errors import TransportError
from meshnode.net import wifi_linux, wifi_macos, wifi_windows
from meshnode.net.wifi import Network, Unknown, Wifi, WifiPolicy, Wired, refusals, shown

TRUSTED = frozenset({b"Home Wi-Fi", "Büro".encode()})
CAREFUL = WifiPolicy(announce_on_untrusted_wifi=False, trusted_ssids=TRUSTED)
CABLE_OFF = WifiPolicy(announce_on_wired_networks=False)

HOME, CAFE, NAMELESS = Wifi(b"Home Wi-Fi"), Wifi(b"Cafe"), Wifi(None, "nmcli is not installed")
CABLE, ODD = Wired(), Unknown("netsh ended with code 1")

NOT_TRUSTED = 'joined to "Cafe", which is not in trusted_ssids'
NO_NAME = "the name of its Wi-Fi is not known (nmcli is not installed), and announce_on_unknown_networks is false"
NO_CABLE = "it is no Wi-Fi, and announce_on_wired_networks is false"
NO_KIND = "it is not known what it is joined to (netsh ended with code 1), and announce_on_unknown_networks is false"


@pytest.mark.parametrize(
    ("policy", "quiet"),
    [
        (WifiPolicy(), {}),
        (CAREFUL, {CAFE: NOT_TRUSTED, NAMELESS: NO_NAME, ODD: NO_KIND}),
        (CABLE_OFF, {CABLE: NO_CABLE, ODD: NO_KIND}),
        (WifiPolicy(False, True, True, TRUSTED), {CAFE: NOT_TRUSTED}),
        (
            WifiPolicy(False, True, False),
            {CAFE: NOT_TRUSTED, HOME: NOT_TRUSTED.replace("Cafe", "Home Wi-Fi"), CABLE: NO_CABLE},
        ),
    ],
    ids=["default", "careful", "no cable", "unknown too", "nowhere named"],
)
def test_each_interface_is_judged_by_its_own_network(policy: WifiPolicy, quiet: dict[Network, str]) -> None:
    every: list[Network] = [HOME, CAFE, NAMELESS, CABLE, ODD]
    named = {f"if{at}": network for at, network in enumerate(every)}
    assert refusals(named, policy) == {name: quiet[network] for name, network in named.items() if network in quiet}


@pytest.mark.parametrize(
    "ssid",
    [b"home wi-fi", b"Home Wi-Fi ", b" Home Wi-Fi", b"Home Wi-F", b"Home Wi-Fi\0", "Bu\u0308ro".encode(), b"B\xfcro"],
)
def test_a_name_is_trusted_byte_for_byte(ssid: bytes) -> None:
    assert refusals({"a": Wifi(ssid), "b": Wifi("Büro".encode())}, CAREFUL) == {
        "a": f"joined to {shown(ssid)}, which is not in trusted_ssids"
    }


def test_a_name_is_shown_without_doing_anything_to_a_terminal() -> None:
    assert shown(b'a"b\\c\x1b[2J\xff' + "é\u202e".encode()) == '"a\\"b\\\\c\\U0000001b[2J\\xffé\\U0000202e"'


# --- Linux


def answering(*answers: bytes | Exception) -> tuple[wifi_linux.Run, list[tuple[str, ...]]]:
    """A `run` that gives these answers, one a call, and what it was asked."""
    left, asked = list(answers), list[tuple[str, ...]]()

    async def run(command: Sequence[str]) -> bytes:
        asked.append(tuple(command))
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return run, asked


NMCLI = b"""\
wlan0: :486F6D652057692D4669
wlan0:*:43616665
wlan0: :--
wlan1: :43616665

wlan2:*:--
wlan2:*:42C3BC726F
wlan3:*:486F6D652057692D4669
wlan3:*:43616665
wlan4: :
we\\:ird\\\\0:*:C0FFEE
wlan5:*:4
wlan6:*:43616665:more
rubbish \xff\xfe
"""


async def test_networkmanager_names_what_each_wifi_device_is_joined_to() -> None:
    run, asked = answering(NMCLI)
    names = ["wlan0", "wlan1", "wlan2", "wlan3", "wlan4", "we:ird\\0", "wlan5", "wlan6", "eth0", "wlan9"]
    found = await wifi_linux.read_linux(names, run=run, is_wireless=lambda name: name.startswith("w"))
    assert asked == [wifi_linux.COMMAND]
    assert found == {
        "wlan0": CAFE,
        "wlan1": Wifi(None, wifi_linux.NOT_JOINED),
        "wlan2": Wifi("Büro".encode()),  # hidden: its access point is listed without its name too
        "wlan3": Wifi(None, wifi_linux.SEVERAL),  # one pretends to be the other
        "wlan4": Wifi(None, wifi_linux.NOT_JOINED),
        "we:ird\\0": Wifi(b"\xc0\xff\xee"),
        "wlan5": Wifi(None, wifi_linux.NOT_JOINED),
        "wlan6": Wifi(None, wifi_linux.NOT_LISTED),
        "eth0": CABLE,
        "wlan9": Wifi(None, wifi_linux.NOT_LISTED),
    }


async def test_without_networkmanager_wifi_is_without_a_name_and_a_cable_is_a_cable() -> None:
    run, _ = answering(TransportError("nmcli is not installed"))
    found = await wifi_linux.read_linux(["wlan0", "eth0"], run=run, is_wireless=lambda name: name == "wlan0")
    assert found == {"wlan0": NAMELESS, "eth0": CABLE}


@given(st.lists(st.text(st.characters(codec="ascii", exclude_characters="\n")), min_size=1))
def test_escaped_fields_come_back(fields: list[str]) -> None:
    line = ":".join(field.replace("\\", "\\\\").replace(":", "\\:") for field in fields)
    assert wifi_linux.terse_fields(line) == fields


def test_a_lone_backslash_at_the_end_is_one() -> None:
    assert wifi_linux.terse_fields("a:b\\") == ["a", "b\\"]


@given(st.binary(max_size=300))
def test_whatever_nmcli_prints_is_read(output: bytes) -> None:
    assert all(
        isinstance(ssid, bytes) for names in wifi_linux.parse_joined_untrusted(output).values() for ssid in names
    )


# --- macOS and Windows, on what their tools are documented to print

PORTS = b"""
Hardware Port: Ethernet
Device: en1
Ethernet Address: 00:00:00:00:00:01

Hardware Port: Wi-Fi
Device: en0
Ethernet Address: 00:00:00:00:00:02

VLAN Configurations
===================
"""
SUMMARY = b"<dictionary> {\n  BSSID : <redacted>\n  InterfaceType : WiFi\n  SSID : %b\n  Security : WPA2\n}\n"


@pytest.mark.parametrize(
    ("summary", "network"),
    [
        (SUMMARY % b"Cafe", CAFE),
        (SUMMARY % b" Cafe : SSID : x ", Wifi(b" Cafe : SSID : x ")),
        (SUMMARY % b"<redacted>", Wifi(None, wifi_macos.HIDDEN)),
        (b"<dictionary> {\n  InterfaceType : WiFi\n}\n", Wifi(None, wifi_macos.NOT_JOINED)),
        (TransportError("ipconfig ended with code 1"), Wifi(None, "ipconfig ended with code 1")),
    ],
    ids=["joined", "odd", "redacted", "not joined", "failed"],
)
async def test_a_mac_is_asked_for_the_name_on_its_wifi_port_alone(summary: bytes | Exception, network: Network) -> None:
    run, asked = answering(PORTS, summary)
    found = await wifi_macos.read_macos(["en1", "en0", "awdl0"], run=run)
    assert found == {"en1": CABLE, "en0": network, "awdl0": Unknown(wifi_macos.NOT_LISTED)}
    assert asked == [wifi_macos.PORTS, (*wifi_macos.SUMMARY, "en0")]


async def test_a_mac_that_lists_no_ports_tells_nothing() -> None:
    run, _ = answering(TransportError("networksetup ended with code 1"))
    assert await wifi_macos.read_macos(["en0"], run=run) == {"en0": Unknown("networksetup ended with code 1")}


NETSH = "\r\n".join(
    [
        "",
        "Es sind 2 Schnittstellen auf dem System:",
        "",
        "    Name                   : WLAN",
        "    Beschreibung           : Intel(R) Wi-Fi 6 AX201 160MHz",
        "    GUID                   : 8A5F0F3E-1c2d-4e5f-8a9b-0c1d2e3f4a5b",
        "    Physische Adresse      : 00:00:00:00:00:02",
        "    Status                 : Verbunden",
        "    SSID                   : Büro",
        "    BSSID                  : 00:00:00:00:00:03",
        "    Profil                 : Cafe",
        "",
        "    Name                   : WLAN 2",
        "    Beschreibung           : USB #2",
        "    GUID                   : 00000000-0000-0000-0000-000000000001",
        "    Status                 : Getrennt",
        "",
        "    Hostnetzwerkstatus: Nicht verfügbar",
        "",
    ]
)


async def test_windows_is_understood_in_another_language() -> None:
    joined = wifi_windows.parse_joined_untrusted(NETSH.encode("cp850"), "cp850")
    assert joined == {
        "Intel(R) Wi-Fi 6 AX201 160MHz": Wifi("Büro".encode()),
        "USB #2": Wifi(None, wifi_windows.NOT_JOINED),
    }
    run, _ = answering(NETSH.replace("ü", "u").encode())
    found = await wifi_windows.read_windows(["USB #2", "Realtek"], run=run)
    assert found == {"USB #2": Wifi(None, wifi_windows.NOT_JOINED), "Realtek": CABLE}
    failing, _ = answering(TransportError("netsh ended with code 1"))
    assert await wifi_windows.read_windows(["Realtek"], run=failing) == {"Realtek": ODD}
