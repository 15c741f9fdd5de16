"""Which Wi-Fi networks a Windows machine is joined to. UNTESTED: written from documentation, never run on Windows.

netsh speaks its user's language, so of its words only `SSID` is used, which is the same in each. Of an interface it
tells the name, the description and the GUID, in this order; the description is what the interface is known by here.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable

from meshnode.errors import TransportError
from meshnode.net.tool import Run, run_tool
from meshnode.net.wifi import Network, Unknown, Wifi, Wired

COMMAND = ("netsh", "wlan", "show", "interfaces")
NOT_JOINED = "netsh names no network that it is joined to"
_LINE = re.compile(r"\s+(\S.*?)\s*: (.*)")
_GUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


async def read_windows(interfaces: Iterable[str], *, run: Run = run_tool) -> dict[str, Network]:
    """What each of these interfaces is joined to."""
    try:
        joined = parse_joined_untrusted(await run(COMMAND), _console_encoding())
    except TransportError as error:
        return {name: Unknown(str(error)) for name in interfaces}
    return {name: joined.get(name, Wired()) for name in interfaces}


def _console_encoding() -> str:
    try:
        return codecs.lookup("oem").name  # what programs print in where no console is attached
    except LookupError:
        return "utf-8"


def parse_joined_untrusted(output: bytes, encoding: str) -> dict[str, Network]:
    """Description to network. The first `SSID` after a GUID is the network's; what follows is anybody's choice."""
    joined: dict[str, Network] = {}
    before, interface = "", ""
    for line in output.decode(encoding, "replace").split("\n"):
        found = _LINE.fullmatch(line.removesuffix("\r"))
        if found is None:
            continue
        label, value = found.groups()
        if label == "SSID" and interface:
            if value:
                joined[interface] = Wifi(value.encode("utf-8"))
            interface = ""
        elif _GUID.fullmatch(value.strip()) and before:
            interface = before
            joined.setdefault(interface, Wifi(None, NOT_JOINED))
        before = value.strip()
    return joined
