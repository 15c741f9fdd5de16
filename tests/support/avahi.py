"""An avahi-daemon in a host of a LAN, with a message bus of its own: nothing of the machine's is used or touched."""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from support.lan import Lan

READY_S = 20.0

BUS = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path={folder}/bus</listen>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
  </policy>
</busconfig>
"""
DAEMON = """[server]
host-name={name}
enable-dbus=yes
[publish]
publish-workstation=yes
publish-hinfo=yes
"""


def avahi_available() -> bool:
    """Whether Debian's packages avahi-daemon, avahi-utils and dbus are here."""
    return all(shutil.which(program) for program in ("avahi-daemon", "avahi-browse", "avahi-publish", "dbus-daemon"))


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of `avahi-browse --resolve --parsable`."""

    interface: str
    protocol: str
    name: str
    host: str
    address: str
    port: int
    text: str

    @property
    def properties(self) -> dict[bytes, bytes | None]:
        """The TXT record, its bytes as they were before avahi wrote them down."""
        strings = [_unescaped(found) for found in re.findall(r'"((?:[^"\\]|\\.)*)"', self.text)]
        return {name: value for name, _, value in (string.partition(b"=") for string in strings)}


def _unescaped(text: str) -> bytes:
    """A backslash stands before three decimal digits, or before a character that would mean something else."""
    plain = re.sub(r"\\(\d{3}|.)", lambda found: chr(int(found[1])) if len(found[1]) == 3 else found[1], text)
    return plain.encode("latin-1")


class Avahi:
    """Runs from `start` until the LAN is gone."""

    def __init__(self, lan: Lan, host: int, folder: Path) -> None:
        self._lan, self._host = lan, host
        self._folder = folder
        folder.mkdir()
        # A private /run: the daemon's pid file and socket have fixed names there.
        self._private = ["sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh"]
        self._env = {"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={folder}/bus"}

    def start(self) -> None:
        """Returns once it answers."""
        (self._folder / "bus.conf").write_text(BUS.format(folder=self._folder))
        (self._folder / "avahi.conf").write_text(DAEMON.format(name=f"host{self._host}"))
        self._run("dbus-daemon", f"--config-file={self._folder}/bus.conf", "--nofork", "--nopidfile")
        self._until(lambda: (self._folder / "bus").exists())
        daemon = ["avahi-daemon", "--no-drop-root", "--no-chroot", "--no-rlimits", "-f", f"{self._folder}/avahi.conf"]
        self._run(*self._private, *daemon)
        self._until(lambda: self._ask("avahi-browse", "-at").returncode == 0)

    def publish(self, name: str, kind: str, port: int, *texts: str) -> None:
        """Announce a service until the LAN is gone; returns once the name is taken."""
        self._run("avahi-publish", "-s", name, kind, str(port), *texts)
        self._until(lambda: f"Established under name '{name}'" in (self._folder / "log").read_text())

    def browse(self, kind: str) -> list[Entry]:
        """What it sees of a kind of service, itself included, resolved."""
        entries = []
        for line in self._ask("avahi-browse", "--resolve", "--parsable", "--terminate", kind).stdout.splitlines():
            fields = line.split(";", 9)
            if fields[0] == "=":
                _, interface, protocol, name, _, _, host, address, port, text = fields
                entries.append(Entry(interface, protocol, name, host, address, int(port), text))
        return entries

    def resolve(self, host: str, family: int) -> str:
        """The address of that family that it has of a host name."""
        return self._ask("avahi-resolve", f"-{family}", "-n", host).stdout.split()[-1]

    def _run(self, *command: str) -> None:
        with (self._folder / "log").open("ab") as log:
            self._lan.popen(self._host, command, env=self._env, stdout=log, stderr=log)

    def _ask(self, *command: str) -> subprocess.CompletedProcess[str]:
        return self._lan.run(self._host, ["env", *(f"{name}={value}" for name, value in self._env.items()), *command])

    def _until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + READY_S
        while not holds():
            assert time.monotonic() < deadline, (self._folder / "log").read_text()
            time.sleep(0.02)
