"""Datagrams arrive whole or not at all, which is how the size that a path carries is found (RFC 9000 §14; profile §7).

Only Linux is tested. The numbers are those of the platforms' headers; the socket module does not name them.
"""

from __future__ import annotations

import socket
import sys

# On Linux "probe" rather than "do": the kernel's own idea of the path, which anybody can spoof to it, is not asked.
_PROBE = 3
_LINUX = ((socket.IPPROTO_IP, 10, _PROBE), (socket.IPPROTO_IPV6, 23, _PROBE))  # IP_MTU_DISCOVER, IPV6_MTU_DISCOVER
_DARWIN = ((socket.IPPROTO_IP, 28, 1), (socket.IPPROTO_IPV6, 62, 1))  # IP_DONTFRAG, IPV6_DONTFRAG
_WINDOWS = ((socket.IPPROTO_IP, 14, 1), (socket.IPPROTO_IPV6, 14, 1))  # IP_DONTFRAGMENT, IPV6_DONTFRAG


def forbid_fragments(sock: socket.socket) -> bool:
    """Whether the platform promised it for every peer of this socket, IPv4 ones of a dual-stack socket included."""
    options = {"linux": _LINUX, "darwin": _DARWIN, "win32": _WINDOWS}.get(sys.platform, ())
    dual = sock.family == socket.AF_INET6 and not sock.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
    try:
        for level, name, value in options:
            if (level == socket.IPPROTO_IPV6) == (sock.family == socket.AF_INET6) or dual:
                sock.setsockopt(level, name, value)
    except OSError:
        return False
    return bool(options)
