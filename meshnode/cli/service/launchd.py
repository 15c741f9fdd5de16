"""The LaunchAgent of macOS. What it writes is tested; that launchd takes it is not."""

from __future__ import annotations

import plistlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from meshnode.cli.service.description import Service, described, refuse_unwritable
from meshnode.cli.service.manager import Run, State, Step

RESTART_S = 30  # seconds between two starts: launchd goes on for ever, whatever the exit code was


class Launchd:
    """`launchctl`, and agents in the person's library."""

    name = "launchd"
    untested = "untested on macOS: the file is what launchd's manual asks for, and nobody has seen it run"

    def __init__(self, person: Path, user_id: int) -> None:
        self._folder = person / "Library" / "LaunchAgents"
        self._domain = f"gui/{user_id}"

    def label(self, service: Service) -> str:
        """With the digest of the home behind it."""
        return f"meshnode.{service.instance}" if service.instance else "meshnode"

    def path(self, service: Service) -> Path:
        """In `~/Library/LaunchAgents`."""
        return self._folder / f"{self.label(service)}.plist"

    def text(self, service: Service) -> bytes:
        """The property list; no log file, which nothing would keep small."""
        refuse_unwritable(service)
        said: dict[str, Any] = {
            "Label": self.label(service),
            "ProgramArguments": list(service.command),
            "RunAtLoad": True,
            "KeepAlive": {"SuccessfulExit": False},
            "ThrottleInterval": RESTART_S,
            "ExitTimeOut": 30,
            "ProcessType": "Background",
            "Umask": 0o077,
        }
        if service.passphrase_file is not None:
            said["StandardInPath"] = service.passphrase_file
        if service.environment:
            said["EnvironmentVariables"] = dict(service.environment)
        return plistlib.dumps(said, sort_keys=False)

    def read(self, text: bytes, *, usual: bool) -> Service | None:
        """The reverse."""
        try:
            said = plistlib.loads(text)
            command = [str(word) for word in said["ProgramArguments"]]
            environment = [(str(name), str(value)) for name, value in said.get("EnvironmentVariables", {}).items()]
            passphrase_file = None if said.get("StandardInPath") is None else str(said["StandardInPath"])
        except Exception:  # a file of another hand: the parser raises whatever it meets
            return None
        return described(command, usual=usual, passphrase_file=passphrase_file, environment=environment)

    def start(self, service: Service, *, now: bool) -> Sequence[Step]:
        """What is loaded starts, so it is left to the next login otherwise."""
        target = f"{self._domain}/{self.label(service)}"
        enable = Step(("launchctl", "enable", target))
        if not now:
            return [enable]
        load = Step(("launchctl", "bootstrap", self._domain, str(self.path(service))))
        return [Step(("launchctl", "bootout", target), optional=True), enable, load]

    def stop(self, service: Service) -> Sequence[Step]:
        """One that is not loaded cannot be unloaded, which is no harm."""
        return [Step(("launchctl", "bootout", f"{self._domain}/{self.label(service)}"), optional=True)]

    def files(self, service: Service) -> Sequence[Path]:
        """The one."""
        return [self.path(service)]

    def gone(self, service: Service) -> Sequence[Step]:
        """Nothing."""
        return []

    def state(self, service: Service, run: Run) -> State:
        """As `launchctl print` has it: a service that it does not know is not loaded."""
        ran = run(("launchctl", "print", f"{self._domain}/{self.label(service)}"))
        if ran.code:
            return State(False, False, ran.said)
        running = any(line.strip() == "state = running" for line in ran.out.splitlines())
        return State(True, running, "loaded")

    def advice(self, service: Service) -> str:
        """What launchd does not do."""
        return (
            "It runs while you are logged in, and its log is kept nowhere: where it does not start, `meshnode up` at a "
            "terminal says why."
        )
