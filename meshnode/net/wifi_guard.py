"""Keeps a node quiet where its owner's policy says so: asks which networks there are, and only while that matters."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from meshnode.limits import WIFI_LOOK_S
from meshnode.net.interfaces import Interface
from meshnode.net.wifi import Network, Unknown, WifiPolicy, refusals
from meshnode.net.wifi_linux import read_linux
from meshnode.net.wifi_macos import read_macos
from meshnode.net.wifi_windows import read_windows

Reader = Callable[[Iterable[str]], Awaitable[Mapping[str, Network]]]


TOOLS = {"darwin": "ipconfig", "win32": "netsh"}


def platform_reader(platform: str = sys.platform) -> Reader:
    """What asks this platform."""
    if platform == "darwin":
        return read_macos
    if platform == "win32":
        return read_windows
    return read_linux if platform.startswith("linux") else _read_nothing


async def _read_nothing(interfaces: Iterable[str]) -> dict[str, Network]:
    return {name: Unknown("this system is not one that tells") for name in interfaces}


@dataclass(frozen=True, slots=True)
class Quiet:
    """Where to keep quiet, and why."""

    reasons: Mapping[str, str] = field(default_factory=dict)
    # Whether one of them was joined to another network than when it was last not kept quiet on: that one is to hear
    # nothing, a goodbye neither, since it would tell strangers who was never there.
    moved: bool = False


class WifiGuard:
    """Answers for the interfaces as they are at each look. `now` is a clock that only goes forward, in seconds."""

    def __init__(self, policy: WifiPolicy, *, now: Callable[[], float], read: Reader | None = None) -> None:
        self._policy = policy
        self._now = now
        self.tool = TOOLS.get(sys.platform, "nmcli")  # what is asked
        self._read = platform_reader() if read is None else read
        self._seen: tuple[Interface, ...] = ()
        self._networks: Mapping[str, Network] = {}
        self._until = float("-inf")
        self._open: dict[str, Network] = {}  # what those that were last not kept quiet on were joined to then

    def follow(self, policy: WifiPolicy) -> None:
        """Another policy from the next look on, which asks anew."""
        self._policy = policy
        self._until = float("-inf")

    async def look(self, interfaces: Sequence[Interface]) -> Quiet:
        """Which of these interfaces to keep quiet on. Asks where that matters, and they changed or some time passed."""
        if self._policy.everywhere:
            self._open.clear()
            return Quiet()
        real = tuple(interface for interface in interfaces if not interface.loopback)
        if real != self._seen or self._now() >= self._until:
            self._networks = await self._read([interface.name for interface in real])
            self._seen, self._until = real, self._now() + WIFI_LOOK_S
        reasons = refusals(self._networks, self._policy)
        moved = any(name in self._open and self._open[name] != self._networks[name] for name in reasons)
        self._open = {name: network for name, network in self._networks.items() if name not in reasons}
        return Quiet(reasons, moved)
