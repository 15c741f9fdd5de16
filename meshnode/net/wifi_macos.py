"""Which Wi-Fi networks a Mac is joined to. UNTESTED: written from Apple's documentation, and never run on a Mac.

Recent releases show `<redacted>` in place of a network's name to programs without permission to know the location.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from meshnode.errors import TransportError
from meshnode.net.tool import Run, run_tool
from meshnode.net.wifi import Network, Unknown, Wifi, Wired

PORTS = ("networksetup", "-listallhardwareports")
SUMMARY = ("ipconfig", "getsummary")
WIFI_PORTS = ("Wi-Fi", "AirPort")
REDACTED = "<redacted>"
NOT_LISTED = "networksetup does not list it"
NOT_JOINED = "ipconfig names no network that it is joined to"
HIDDEN = "macOS hides it from programs without permission to know the location"


async def read_macos(interfaces: Iterable[str], *, run: Run = run_tool) -> dict[str, Network]:
    """What each of these interfaces is joined to."""
    try:
        ports = parse_ports(await run(PORTS))
    except TransportError as error:
        return {name: Unknown(str(error)) for name in interfaces}
    return {name: await _network(name, ports.get(name), run) for name in interfaces}


async def _network(interface: str, port: str | None, run: Run) -> Network:
    if port is None:
        return Unknown(NOT_LISTED)  # what Apple's own peer-to-peer radio is among
    if port not in WIFI_PORTS:
        return Wired()
    try:
        return parse_summary_untrusted(await run((*SUMMARY, interface)))
    except TransportError as error:
        return Wifi(None, str(error))


def parse_ports(output: bytes) -> dict[str, str]:
    """Device to hardware port, such as `en0` to `Wi-Fi`."""
    found = re.findall(r"^Hardware Port: (.*)\nDevice: (.*)$", output.decode("utf-8", "replace"), re.MULTILINE)
    return {device: port for port, device in found}


def parse_summary_untrusted(output: bytes) -> Network:
    """The first name is the network's; what else there may be in the text is anybody's choice."""
    found = re.search(rb"^ +SSID : (.*)$", output, re.MULTILINE)
    if found is None or not found[1]:
        return Wifi(None, NOT_JOINED)
    return Wifi(None, HIDDEN) if found[1] == REDACTED.encode() else Wifi(found[1])
