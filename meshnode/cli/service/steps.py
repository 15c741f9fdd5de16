"""Installs, removes and looks at a service: the manager says what to write and to call, this does it."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from meshnode.cli.service.description import Service
from meshnode.cli.service.manager import Manager, Ran, Run, Step
from meshnode.errors import ConfigError, MeshError, UsageError, reason_of
from meshnode.node.private import open_file, write_private

_FILE_BYTES = 1024 * 1024  # far more than any file of ours has; against something else in its place


@dataclass(frozen=True, slots=True)
class Done:
    """What was done, as lines for a person."""

    manager: str
    service: str
    file: str
    did: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Installed:
    """How a service stands; None is what the manager does not tell."""

    manager: str
    service: str
    file: str
    installed: bool
    enabled: bool | None
    running: bool | None
    says: str
    home: str
    program: str | None
    as_this_version: bool | None
    todo: str


def install(service: Service, manager: Manager, run: Run, *, now: bool) -> Done:
    """Write the file and have it taken up; MeshError says what is left to do where the manager does not."""
    path, text = manager.path(service), manager.text(service)
    written = _read(path) != text
    if written:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot make the folder {path.parent}: {reason_of(error)}") from error
        write_private(path, text)
    did = [f"{'Wrote' if written else 'Nothing to change in'} {path}."]
    did += _take(manager.start(service, now=now), run, f"{path} is written, and the service does not run")
    starts = "The node runs now, and at each login." if now else "The node runs from the next login on."
    notes = (starts, manager.advice(service), *((f"Note: {manager.untested}.",) if manager.untested else ()))
    return Done(manager.name, manager.label(service), str(path), tuple(did), notes)


def remove(service: Service, manager: Manager, run: Run) -> Done:
    """Stop it and take the file away; nothing is called where there is no file."""
    path = manager.path(service)
    done = Done(manager.name, manager.label(service), str(path), ())
    if _read(path) is None and not path.is_symlink():  # a link that leads nowhere is a file of it all the same
        return replace(done, did=(f"There is no service of {service.home}.",))
    did, refused = [], None
    try:
        did += _take(manager.stop(service), run, f"{path} is removed, and the service may still run")
    except MeshError as error:
        refused = error  # it does not start again all the same
    for file in manager.files(service):
        try:
            file.unlink(missing_ok=True)
        except OSError as error:
            raise ConfigError(f"cannot remove {file}: {reason_of(error)}") from error
    did += [f"Removed {path}.", *_take(manager.gone(service), run, f"{path} is removed")]
    if refused is not None:
        raise refused
    return replace(done, did=tuple(did))


def inspect(service: Service, manager: Manager, run: Run) -> Installed:
    """How it stands, asking the manager and comparing the file; changes nothing."""
    path = manager.path(service)
    text = _read(path)
    if text is None:
        todo = "`meshnode service install`"
        return Installed(
            *(manager.name, manager.label(service), str(path), False, False, False),
            *("there is no such file", service.home, None, None, todo),
        )
    said, state = manager.read(text, usual=service.usual), manager.state(service, run)
    same = said is not None and _renewed(said, service, manager) == text
    return Installed(
        *(manager.name, manager.label(service), str(path), True, state.enabled, state.running, state.said),
        home=service.home if said is None else said.home,
        program=None if said is None else shlex.join(said.program),
        as_this_version=same,
        todo="" if same else _todo(said),
    )


def standing(value: Done | Installed) -> dict[str, Any]:
    """As it is printed."""
    return asdict(value)


def _renewed(said: Service, service: Service, manager: Manager) -> bytes | None:
    """The installed one as this program would write it; None where it would not, since another hand changed it."""
    try:
        return manager.text(replace(said, program=service.program, environment=service.environment))
    except UsageError:
        return None


def _todo(said: Service | None) -> str:
    if said is None:
        return "the file is of another hand: `meshnode service install` puts its own in place"
    if said.program and not os.access(said.program[0], os.X_OK):
        return f"the program is gone from {said.program[0]}: `meshnode service install` names the one that runs now"
    return "this version would write another file: `meshnode service install` does"


def _read(path: Path) -> bytes | None:
    try:
        with open_file(path) as file:
            return file.read(_FILE_BYTES)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {reason_of(error)}") from error


def _take(steps: Iterable[Step], run: Run, so_far: str) -> list[str]:
    """Call one after the other; where one fails, say by which calls it can be gone on with."""
    left = list(steps)
    did = []
    while left:
        ran = run(left[0].command)
        if ran.code and not left[0].optional:
            raise _refused(ran, left, so_far)
        if not ran.code:
            did.append(f"Ran `{_line(left[0])}`.")
        left.pop(0)
    return did


def _refused(ran: Ran, left: list[Step], so_far: str) -> MeshError:
    said = " ".join((ran.said or ran.out or f"exit code {ran.code}").split())
    calls = " && ".join(_line(step) for step in left if not step.optional)
    return MeshError(f"{so_far}: `{_line(left[0])}` failed: {said}. Go on, in a session of yours, with `{calls}`")


def _line(step: Step) -> str:
    line = subprocess.list2cmdline if os.name == "nt" else shlex.join
    return line(step.command)
