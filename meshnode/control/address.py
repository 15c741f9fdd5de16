"""Where a running node's control API is: its socket, or loopback port and token."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from pathlib import Path

from meshnode.node.home import Home

_UNIX_PATH_BYTES = 103  # the shortest sun_path of the systems we know (macOS), less its NUL
_SUFFIX_BYTES = 12  # a dot and a process id, under which the socket is made
_TOKEN_FILE_BYTES = 4096  # far more than port and token take


@dataclass(frozen=True, slots=True)
class ControlAddress:
    """A Unix socket's path, or a loopback port with the token that it asks for."""

    path: Path | None = None
    port: int | None = None
    token: str | None = field(default=None, repr=False)


def unix_socket_usable(path: Path) -> bool:
    """Whether this system has Unix sockets and the path is short enough for one."""
    return hasattr(socket, "AF_UNIX") and len(os.fsencode(path)) + _SUFFIX_BYTES <= _UNIX_PATH_BYTES


def control_address(home: Home) -> ControlAddress | None:
    """Where to look for the node of this home; None where nothing was left to look at."""
    if unix_socket_usable(home.socket_path):
        return ControlAddress(path=home.socket_path) if home.socket_path.exists() else None
    try:
        with home.token_path.open("rb") as file:
            raw = json.loads(file.read(_TOKEN_FILE_BYTES))
        return ControlAddress(port=int(raw["port"]), token=str(raw["token"]))
    except (OSError, ValueError, TypeError, KeyError):
        return None
