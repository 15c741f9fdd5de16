"""Tells the manager of a service how far it is, in the manner of sd_notify(3): a datagram to a socket that it names."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import suppress

VARIABLE = "NOTIFY_SOCKET"


def notify(state: str, environment: Mapping[str, str]) -> None:
    """Send `READY=1`, `STOPPING=1`; nothing where nobody asked for it, and no harm where nobody listens."""
    address = environment.get(VARIABLE, "")
    if address[:1] not in ("/", "@") or not hasattr(socket, "AF_UNIX"):
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
        sending.setblocking(False)  # the event loop waits for nobody
        sending.sendto(state.encode(), address.replace("@", "\0", 1) if address[0] == "@" else address)
