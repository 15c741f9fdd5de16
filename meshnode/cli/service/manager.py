"""What every system's manager of services can do, and how its tool is run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from meshnode.cli.service.description import Service

ANSWER_S = (
    90.0  # seconds that a tool has: `systemctl start` returns once the node answers, which its database may delay
)
_MISSING, _SLOW = 127, 124  # as a shell says them


@dataclass(frozen=True, slots=True)
class Ran:
    """How one call of a tool ended."""

    code: int
    out: str = ""
    said: str = ""


Run = Callable[[Sequence[str]], Ran]
"""Runs a tool of the system to its end."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call that changes something; one that is `optional` may fail without harm."""

    command: tuple[str, ...]
    optional: bool = False


@dataclass(frozen=True, slots=True)
class State:
    """What the manager says of a service; None where it does not tell."""

    enabled: bool | None
    running: bool | None
    said: str = ""


class Manager(Protocol):
    """Where the file goes, what is in it, and what to call."""

    name: str
    untested: str

    def label(self, service: Service) -> str:
        """The name by which the system's tool knows it."""

    def path(self, service: Service) -> Path:
        """The file."""

    def text(self, service: Service) -> bytes:
        """What is in it; UsageError for what this system cannot do."""

    def read(self, text: bytes, *, usual: bool) -> Service | None:
        """The service that a file is of; None for a file of another hand."""

    def start(self, service: Service, *, now: bool) -> Sequence[Step]:
        """Calls after the file was written."""

    def stop(self, service: Service) -> Sequence[Step]:
        """Calls before the file is removed."""

    def files(self, service: Service) -> Sequence[Path]:
        """What is taken away."""

    def gone(self, service: Service) -> Sequence[Step]:
        """Calls after that."""

    def state(self, service: Service, run: Run) -> State:
        """What it says of the service."""

    def advice(self, service: Service) -> str:
        """What to know once it is installed."""


def run_tool(command: Sequence[str]) -> Ran:
    """Run a tool of the system, without a terminal to ask at."""
    try:
        done = subprocess.run(  # noqa: S603 - words of our own, no shell
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=ANSWER_S, check=False
        )
    except FileNotFoundError:
        return Ran(_MISSING, said=f"there is no `{command[0]}` here")
    except subprocess.TimeoutExpired:
        return Ran(_SLOW, said=f"it did not end within {ANSWER_S:.0f} s")
    except OSError as error:
        return Ran(_MISSING, said=str(error))
    return Ran(done.returncode, *(stream.decode(errors="replace").strip() for stream in (done.stdout, done.stderr)))
