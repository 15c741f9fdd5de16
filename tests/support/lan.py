"""A LAN of network namespaces: hosts on a bridge that tests cut, mend and run programs in; gone when the block ends."""

from __future__ import annotations

import ctypes
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

PREFIX = "mnlan"
DEVICE = "eth0"  # every host's side of its cable
CLONE_NEWNET = 0x40000000
STOP_S = 5.0  # seconds a program gets to end by itself before it is killed


def lan_available() -> bool:
    """Whether this process may make network namespaces."""
    return os.name == "posix" and os.geteuid() == 0 and bool(shutil.which("ip") and shutil.which("tc"))


@dataclass(frozen=True, slots=True)
class Cable:
    """One host's interface on one bridge; no two hosts of a LAN number theirs alike."""

    host: int
    bridge: int
    device: str

    @property
    def port(self) -> str:
        """The bridge's side of it."""
        return f"port{self.host}-{self.bridge}"

    @property
    def index(self) -> int:
        return 10 * (self.host + 1) + self.bridge


class Lan:
    """`hosts` namespaces, each with loopback, 10.47.0.(i+1)/24 and an IPv6 link-local address on one bridge.

    `bridges` names the bridges of each host instead, as in `[[0], [0, 1], [1]]`: two LANs and a host on both. Bridge k
    is 10.(47+k).0.0/24, and a host's interfaces are eth0, eth1 in that order. The bridges are in a namespace of their
    own, so nothing ever reaches the machine's own network. With `wired=False` the hosts have loopback and nothing else.
    """

    def __init__(self, hosts: int, *, wired: bool = True, bridges: Sequence[Sequence[int]] | None = None) -> None:
        self.hosts = hosts
        self._cables = [
            Cable(host, bridge, f"eth{number}")
            for host, on in enumerate((bridges or [[0]] * hosts) if wired else [])
            for number, bridge in enumerate(on)
        ]
        self._name = f"{PREFIX}-{os.getpid()}-{secrets.token_hex(3)}"
        self._programs: list[subprocess.Popen[Any]] = []

    # --- making and unmaking

    def __enter__(self) -> Self:
        reap_orphans()
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _make(self) -> None:
        names = [self.namespace(index) for index in range(self.hosts)]
        _batch(f"netns add {name}" for name in [*names, self._hub])
        for name in names:
            # Without this a link-local address is "tentative", and unusable, for the first second or two.
            _ip("netns", "exec", name, "sh", "-c", "echo 0 >/proc/sys/net/ipv6/conf/default/accept_dad")
            _ip("-n", name, "link", "set", "lo", "up")
        for bridge in sorted({cable.bridge for cable in self._cables}):
            kind = "type bridge forward_delay 0 mcast_snooping 0"
            _batch([f"-n {self._hub} link add bridge{bridge} {kind}", f"-n {self._hub} link set bridge{bridge} up"])
        for cable in self._cables:
            self._wire(cable)

    def _wire(self, cable: Cable) -> None:
        name, port, device = self.namespace(cable.host), cable.port, cable.device
        _batch(
            [
                # The kernel takes a number for the host's side only where this side has one too.
                f"-n {self._hub} link add {port} index {100 + cable.index} type veth"
                f" peer name {device} index {cable.index} netns {name}",
                f"-n {self._hub} link set {port} master bridge{cable.bridge} up",
                f"-n {name} address add {self.address(cable.host, cable.bridge)}/24 dev {device}",
                f"-n {name} link set {device} up",
            ]
        )

    def close(self) -> None:
        """End every program that was started here, then delete the namespaces; safe to call twice."""
        for program in self._programs:
            if program.poll() is None:
                program.terminate()
        for program in self._programs:
            _finish(program)
        self._programs.clear()
        for name in [*(self.namespace(index) for index in range(self.hosts)), self._hub]:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    # --- names and addresses

    @property
    def _hub(self) -> str:
        return f"{self._name}-hub"

    def namespace(self, index: int) -> str:
        return f"{self._name}-{index}"

    def enter(self, index: int) -> list[str]:
        """What stands before a command that shall run in the host."""
        return ["ip", "netns", "exec", self.namespace(index)]

    def address(self, index: int, bridge: int = 0) -> str:
        """The host's first IPv4 address on the bridge."""
        return f"10.{47 + bridge}.0.{index + 1}"

    def link_local(self, index: int, device: str = DEVICE) -> str:
        """The host's IPv6 link-local address, without a scope."""
        text = _ip("-n", self.namespace(index), "-6", "-o", "address", "show", "dev", device, "scope", "link")
        return text.split()[3].partition("/")[0]

    def cable(self, index: int, device: str = DEVICE) -> Cable:
        """What that interface of the host hangs on."""
        return next(cable for cable in self._cables if (cable.host, cable.device) == (index, device))

    # --- programs

    def popen(
        self, index: int, command: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a program in host `index`; it is ended with the LAN at the latest. Its pid is the program's own."""
        full = [*self.enter(index), *command]
        program = subprocess.Popen(full, env=None if env is None else {**os.environ, **env}, **options)
        self._programs.append(program)
        return program

    def run(self, index: int, command: Sequence[str], *, timeout: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Run a program in host `index` to its end and hand back what it said."""
        full = [*self.enter(index), *command]
        return subprocess.run(full, capture_output=True, text=True, timeout=timeout, check=False)

    def kill(self, program: subprocess.Popen[Any]) -> None:
        """SIGKILL: no goodbye, no flush."""
        program.send_signal(signal.SIGKILL)
        program.wait(STOP_S)

    @contextmanager
    def inside(self, index: int) -> Iterator[None]:
        """Sockets that this thread makes meanwhile are the host's, and stay it."""
        libc = ctypes.CDLL(None, use_errno=True)
        with open("/proc/thread-self/ns/net") as home, open(f"/run/netns/{self.namespace(index)}") as there:
            if libc.setns(there.fileno(), CLONE_NEWNET) != 0:
                raise OSError(ctypes.get_errno(), f"cannot enter {self.namespace(index)}")
            try:
                yield
            finally:
                libc.setns(home.fileno(), CLONE_NEWNET)

    # --- cables, interfaces, routes

    def cut(self, index: int) -> None:
        """Pull the host's cable: its interface stays up and keeps its addresses, nothing gets through."""
        _ip("-n", self._hub, "link", "set", self.cable(index).port, "down")

    def mend(self, index: int) -> None:
        _ip("-n", self._hub, "link", "set", self.cable(index).port, "up")

    def block_mdns(self, index: int) -> None:
        """Swallow what the host says and hears by multicast DNS, its own words included; all else gets through."""
        for namespace, devices in ((self.namespace(index), (DEVICE, "lo")), (self._hub, (self.cable(index).port,))):
            # What is redirected to an interface that is down is gone; not every kernel can drop it in so many words.
            sink = f"sink{index}"
            _ip("-n", namespace, "link", "add", sink, "type", "veth", "peer", "name", f"{sink}end")
            for device in devices:
                _tc(namespace, f"qdisc add dev {device} ingress")
                for protocol, match in (("ip", "ip"), ("ipv6", "ip6")):
                    rule = f"protocol {protocol} u32 match {match} dport 5353 0xffff"
                    _tc(namespace, f"filter add dev {device} ingress {rule} action mirred egress redirect dev {sink}")

    def unblock_mdns(self, index: int) -> None:
        for namespace, devices in ((self.namespace(index), (DEVICE, "lo")), (self._hub, (self.cable(index).port,))):
            for device in devices:
                _tc(namespace, f"qdisc del dev {device} ingress")
            _ip("-n", namespace, "link", "del", f"sink{index}")

    def interface_down(self, index: int) -> None:
        """Switch the host's own interface off; its IPv6 addresses and routes go with it."""
        _ip("-n", self.namespace(index), "link", "set", DEVICE, "down")

    def interface_up(self, index: int) -> None:
        _ip("-n", self.namespace(index), "link", "set", DEVICE, "up")

    def readdress(self, index: int, address: str) -> None:
        """Give the host another IPv4 address (`a.b.c.d/24`) in place of the one it has."""
        _ip("-n", self.namespace(index), "-4", "address", "flush", "dev", DEVICE)
        _ip("-n", self.namespace(index), "address", "add", address, "dev", DEVICE)

    def mtu(self, index: int, size: int) -> None:
        """What the host's own interface takes."""
        _ip("-n", self.namespace(index), "link", "set", DEVICE, "mtu", str(size))

    def narrow(self, index: int, size: int) -> None:
        """What the cable carries to and from the host; larger packets are lost without a word."""
        _ip("-n", self._hub, "link", "set", self.cable(index).port, "mtu", str(size))

    def configure(self, index: int, *arguments: str) -> str:
        """Any other `ip` command inside host `index`, for example `route add 224.0.0.0/4 dev lo`."""
        return _ip("-n", self.namespace(index), *arguments)


def reap_orphans() -> None:
    """Delete the namespaces of runs that were killed before they could: their process no longer exists."""
    for line in _ip("netns", "list").splitlines():
        name = line.split()[0] if line.split() else ""
        parts = name.split("-")
        if len(parts) == 4 and parts[0] == PREFIX and parts[1].isdigit() and not _alive(int(parts[1])):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _finish(program: subprocess.Popen[Any]) -> None:
    try:
        program.wait(STOP_S)
    except subprocess.TimeoutExpired:
        program.kill()
        program.wait(STOP_S)
    for pipe in (program.stdin, program.stdout, program.stderr):
        if pipe is not None:
            pipe.close()


def _ip(*arguments: str) -> str:
    return _done("ip", *arguments)


def _tc(namespace: str, arguments: str) -> None:
    _done("tc", "-n", namespace, *arguments.split())


def _done(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _batch(lines: Sequence[str] | Any) -> None:
    """`ip -batch` cannot change namespace between lines, hence one call per line."""
    for line in lines:
        _ip(*line.split())
