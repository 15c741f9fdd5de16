"""The unit of a systemd user manager."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from meshnode.cli.service.description import Service, described, refuse_unwritable
from meshnode.cli.service.manager import Run, State, Step
from meshnode.errors import UsageError

_USER = ("systemctl", "--user")
# Restarts stop after ten in ten minutes, and at once after 2: a command line or settings that cannot be used.
# Of the sandbox only what needs no namespace: those of a user manager need unprivileged user namespaces, which many
# systems forbid, and the unit would not start. Netlink is for changes of the network, Unix sockets for the verbs.
_UNIT = """\
[Unit]
Description=meshnode (node in {about})
StartLimitIntervalSec=600
StartLimitBurst=10

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
{besides}Restart=on-failure
RestartSec=10
RestartPreventExitStatus=2
TimeoutStartSec=900
TimeoutStopSec=30
UMask=0077
NoNewPrivileges=yes
LockPersonality=yes
RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native

[Install]
WantedBy=default.target
"""
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_REFUSED = re.compile(r"[\"'\\]")  # in the path of a program, by systemd itself, however it is escaped
_INPUT = "StandardInput=file:"


class Systemd:
    """`systemctl --user`, and units in the folder of the user's own."""

    name = "systemd"
    untested = ""

    def __init__(self, environment: Mapping[str, str], person: Path) -> None:
        told = environment.get("XDG_CONFIG_HOME", "")
        configuration = Path(told) if told.startswith("/") else person / ".config"
        self._folder = configuration / "systemd" / "user"

    def label(self, service: Service) -> str:
        """`meshnode.service`, or an instance."""
        return f"meshnode@{service.instance}.service" if service.instance else "meshnode.service"

    def path(self, service: Service) -> Path:
        """In `~/.config/systemd/user`."""
        return self._folder / self.label(service)

    def text(self, service: Service) -> bytes:
        """The unit. The colon before the program is systemd's: no variable is looked for in any word."""
        refuse_unwritable(service)
        if service.passphrase_file is not None and service.passphrase_file[-1:] in (" ", "\\"):
            raise UsageError(
                f"a unit cannot name {service.passphrase_file!r}, for how it ends: call the file otherwise"
            )
        first, *rest = service.command
        if _REFUSED.search(first):
            raise UsageError(f"systemd runs no program with quotes or backslashes in its path, such as {first!r}")
        besides = [f"Environment={_quoted(f'{name}={value}')}" for name, value in service.environment]
        if service.passphrase_file is not None:
            besides.append(_INPUT + _percent(service.passphrase_file))
        command = " ".join(_quoted(word) for word in (f":{first}", *rest))
        lines = "".join(f"{line}\n" for line in besides)
        return _UNIT.format(about=_percent(service.home), command=command, besides=lines).encode()

    def read(self, text: bytes, *, usual: bool) -> Service | None:
        """The reverse."""
        command: list[str] = []
        environment: list[tuple[str, str]] = []
        passphrase_file = None
        for line in text.decode(errors="replace").splitlines():
            if line.startswith("ExecStart="):
                command = _words(line)
            elif line.startswith("Environment="):
                environment += [(name, value) for name, _, value in (word.partition("=") for word in _words(line))]
            elif line.startswith(_INPUT):
                passphrase_file = line[len(_INPUT) :].replace("%%", "%")
        if not command or not command[0].startswith(":"):
            return None
        words = [command[0][1:], *command[1:]]
        return described(words, usual=usual, passphrase_file=passphrase_file, environment=environment)

    def start(self, service: Service, *, now: bool) -> Sequence[Step]:
        """`restart` starts one that stands still, and gives one that runs what the file says now."""
        unit = self.label(service)
        steps = [Step((*_USER, "daemon-reload")), Step((*_USER, "enable", unit))]
        return [*steps, Step((*_USER, "restart", unit))] if now else steps

    def stop(self, service: Service) -> Sequence[Step]:
        """Not now, and no more at login: the link that says so is one of the files."""
        unit = self.label(service)
        return [Step((*_USER, "stop", unit)), Step((*_USER, "disable", unit), optional=True)]

    def files(self, service: Service) -> Sequence[Path]:
        """The unit, and the link by which it was enabled."""
        return [self.path(service), self._folder / "default.target.wants" / self.label(service)]

    def gone(self, service: Service) -> Sequence[Step]:
        """Forget the unit, and that it may have failed."""
        return [
            Step((*_USER, "daemon-reload"), optional=True),
            Step((*_USER, "reset-failed", self.label(service)), optional=True),
        ]

    def state(self, service: Service, run: Run) -> State:
        """As `systemctl show` has it."""
        ran = run((*_USER, "show", "--property=UnitFileState,ActiveState,Result", self.label(service)))
        if ran.code:
            return State(None, None, ran.said)
        told = dict(line.partition("=")[::2] for line in ran.out.splitlines())
        active, result = told.get("ActiveState", ""), told.get("Result", "")
        why = f" ({result})" if result not in ("", "success") else ""
        return State(told.get("UnitFileState", "").startswith("enabled"), active == "active", active + why)

    def advice(self, service: Service) -> str:
        """Where it ends, and where its log is."""
        return (
            "It runs while you are logged in; `loginctl enable-linger` lets it run from the start of this device on. "
            f"Its log: `journalctl --user --unit {self.label(service)}`."
        )


def _percent(text: str) -> str:
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """One word of `ExecStart` or `Environment`: C escapes within quotes, and no specifier (systemd.syntax(7))."""
    return '"' + _percent(word.replace("\\", "\\\\").replace('"', '\\"')) + '"'


def _words(line: str) -> list[str]:
    return [re.sub(r"\\(.)", r"\1", word).replace("%%", "%") for word in _QUOTED.findall(line)]
