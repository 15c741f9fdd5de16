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
from types import TracebackType
from typing import Any, Self

PREFIX = "mnlan"
DEVICE = "eth0"  # every host's side of its cable
CLONE_NEWNET = 0x40000000
STOP_S = 5.0  # seconds a program gets to end by itself before it is killed


def lan_available() -> bool:
    """Whether this process may make network namespaces."""
    return os.name == "posix" and os.geteuid() == 0 and shutil.which("ip") is not None


class Lan:
    """`hosts` namespaces, each with loopback, 10.47.0.(i+1)/24 and an IPv6 link-local address on one bridge.

    The bridge is in a namespace of its own, so nothing ever reaches the machine's own network. With `wired=False`
    the hosts have loopback and nothing else.
    """

    def __init__(self, hosts: int, *, wired: bool = True) -> None:
        self.hosts = hosts
        self._wired = wired
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
        if not self._wired:
            return
        _ip("-n", self._hub, "link", "add", "bridge", "type", "bridge", "forward_delay", "0", "mcast_snooping", "0")
        _ip("-n", self._hub, "link", "set", "bridge", "up")
        for index in range(self.hosts):
            self._wire(index)

    def _wire(self, index: int) -> None:
        name, port = self.namespace(index), self._port(index)
        _batch(
            [
                f"-n {self._hub} link add {port} type veth peer name {DEVICE} netns {name}",
                f"-n {self._hub} link set {port} master bridge up",
                f"-n {name} address add {self.address(index)}/24 dev {DEVICE}",
                f"-n {name} link set {DEVICE} up",
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

    def _port(self, index: int) -> str:
        return f"port{index}"

    def address(self, index: int) -> str:
        """The host's first IPv4 address on the bridge."""
        return f"10.47.0.{index + 1}"

    def link_local(self, index: int) -> str:
        """The host's IPv6 link-local address, without a scope."""
        text = _ip("-n", self.namespace(index), "-6", "-o", "address", "show", "dev", DEVICE, "scope", "link")
        return text.split()[3].partition("/")[0]

    # --- programs

    def popen(
        self, index: int, command: Sequence[str], *, env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a program in host `index`; it is ended with the LAN at the latest. Its pid is the program's own."""
        full = ["ip", "netns", "exec", self.namespace(index), *command]
        program = subprocess.Popen(full, env=None if env is None else {**os.environ, **env}, **options)
        self._programs.append(program)
        return program

    def run(self, index: int, command: Sequence[str], *, timeout: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Run a program in host `index` to its end and hand back what it said."""
        full = ["ip", "netns", "exec", self.namespace(index), *command]
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
        _ip("-n", self._hub, "link", "set", self._port(index), "down")

    def mend(self, index: int) -> None:
        _ip("-n", self._hub, "link", "set", self._port(index), "up")

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
        _ip("-n", self._hub, "link", "set", self._port(index), "mtu", str(size))

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
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def _batch(lines: Sequence[str] | Any) -> None:
    """`ip -batch` cannot change namespace between lines, hence one call per line."""
    for line in lines:
        _ip(*line.split())
