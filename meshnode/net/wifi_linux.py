"""Which Wi-Fi networks a Linux machine is joined to: NetworkManager's word, and the kernel's on what is Wi-Fi."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from meshnode.errors import TransportError
from meshnode.net.tool import Run, run_tool
from meshnode.net.wifi import Network, Wifi, Wired

# The name as hexadecimal: in the C locale nmcli replaces what is not ASCII in the readable one. No scan is started.
COMMAND = ("nmcli", "--terse", "--fields", "DEVICE,IN-USE,SSID-HEX", "device", "wifi", "list", "--rescan", "no")
NOT_LISTED = "NetworkManager does not tell of this interface"
NOT_JOINED = "NetworkManager names no network that it is joined to"
SEVERAL = "NetworkManager names several networks that it is joined to"


def wireless(interface: str) -> bool:
    """Whether the kernel takes it for Wi-Fi, no matter who manages it."""
    folder = Path("/sys/class/net") / interface
    return (folder / "phy80211").exists() or (folder / "wireless").exists()


async def read_linux(
    interfaces: Iterable[str], *, run: Run = run_tool, is_wireless: Callable[[str], bool] = wireless
) -> dict[str, Network]:
    """What each of these interfaces is joined to."""
    why, joined = NOT_LISTED, dict[str, set[bytes]]()
    try:
        joined = parse_joined_untrusted(await run(COMMAND))
    except TransportError as error:
        why = str(error)
    return {
        name: _network(joined[name]) if name in joined else Wifi(None, why) if is_wireless(name) else Wired()
        for name in interfaces
    }


def _network(ssids: set[bytes]) -> Network:
    if len(ssids) == 1:
        return Wifi(next(iter(ssids)))
    return Wifi(None, SEVERAL if ssids else NOT_JOINED)


def parse_joined_untrusted(output: bytes) -> dict[str, set[bytes]]:
    """The names of the networks in use by each Wi-Fi device, none where it is joined to none or to one without a name.

    There is a line for each access point in reach, and whoever runs one chooses its name. nmcli marks the one in use by
    its radio address alone, so another one that pretends to that address counts too, and is not told from the real one.
    """
    joined: dict[str, set[bytes]] = {}
    for line in output.decode("ascii", "replace").splitlines():
        fields = terse_fields(line)
        if len(fields) != 3 or not fields[0]:
            continue
        device, in_use, digits = fields
        ssids = joined.setdefault(device, set())
        ssid = _unhex(digits)
        if in_use == "*" and ssid:
            ssids.add(ssid)
    return joined


def terse_fields(line: str) -> list[str]:
    """A line of `nmcli --terse`: fields between colons, a colon or a backslash in them with a backslash before it."""
    fields, at = [""], 0
    while at < len(line):
        if line[at] == "\\" and at + 1 < len(line):
            at += 1
            fields[-1] += line[at]
        elif line[at] == ":":
            fields.append("")
        else:
            fields[-1] += line[at]
        at += 1
    return fields


def _unhex(digits: str) -> bytes:
    try:
        return bytes.fromhex(digits)
    except ValueError:
        return b""  # "--" for a network without a name
