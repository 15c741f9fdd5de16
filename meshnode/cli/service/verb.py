"""Have the system run this node: from login on, and again where it fails.

`install` writes the file that the system's manager of services reads (a unit of systemd for this user, a LaunchAgent
of launchd, a task of the Windows Task Scheduler), has it run at each login, and starts it now. Installing once more
takes the new options and the program that runs now, as after an upgrade or where a virtual environment was moved.
`remove` stops it and takes the file away; the node's home stays as it is. `status` says whether it is installed,
enabled and running, and whether the file is the one that this program would write.

Every home can have a service of its own. Nobody can ask a service for a passphrase: where the keys are under one, let
the keyring of the system have it (`meshnode identity protect --keyring`), or name a file with `--passphrase-file`.

systemd is what it is tested on. The files for launchd and Windows are made as their manuals ask, and untested there.
"""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from meshnode.cli import connect
from meshnode.cli.globals import add_globals
from meshnode.cli.logs import LEVELS
from meshnode.cli.output import print_one, printable
from meshnode.cli.service.description import Service, carried, program_of
from meshnode.cli.service.manager import Manager, Run, run_tool
from meshnode.cli.service.steps import Installed, inspect, install, remove, standing
from meshnode.errors import BusyError, MeshError, NotFoundError, UsageError
from meshnode.node.config import Config
from meshnode.node.home import Home
from meshnode.node.homepath import platform_home
from meshnode.node.keyfile import is_protected, kept_as
from meshnode.node.lock import busy_text, try_lock
from meshnode.node.private import read_private

MANAGERS = ("systemd", "launchd", "windows")
RUNS, NOT_RUNNING, NOT_INSTALLED = 0, 3, 4  # as init scripts have said them for long (LSB)
_PASSPHRASE_BYTES = 4096


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    actions = parser.add_subparsers(dest="action", metavar="install|remove|status", required=True)
    adding = actions.add_parser(
        "install",
        description="Write the service's file, have it run at each login, and start it now; or change what is there.",
    )
    adding.add_argument("--no-start", action="store_true", help="do not start it now, only from the next login on")
    adding.add_argument("--print", action="store_true", help="print the file, and change nothing")
    adding.add_argument("--log-level", choices=LEVELS, help="the least that the service logs (default: info)")
    adding.add_argument(
        "--passphrase-file",
        metavar="FILE",
        help="file of mode 0600 from which the passphrase of the keys is read at each start (not on Windows)",
    )
    removing = actions.add_parser(
        "remove",
        description="Stop the service and take its file away; it is no error where there is none. The home stays.",
    )
    showing = actions.add_parser(
        "status",
        description="Say whether the service is installed, enabled and running, of which home and program it is, and "
        "whether its file differs from what this program would write.",
    )
    for each in (adding, removing, showing):
        each.add_argument(
            "--manager", choices=MANAGERS, default=_usual_manager(), help="whose service (default: this system's own)"
        )
        add_globals(each)


def run(options: argparse.Namespace) -> int:
    """Do it with this system's tools."""
    return act(options, manager_of(options.manager), run_tool)


def act(options: argparse.Namespace, manager: Manager, tool: Run) -> int:
    """The same with any; returns the exit code."""
    service = _service(options)
    if options.action == "status":
        found = inspect(service, manager, tool)
        if found.installed and found.running is None:  # not told, or in a language that nobody here reads
            found = replace(found, running=_held(Home(service.home, Config())))
        _print_status(found, options.output)
        return RUNS if found.running else NOT_RUNNING if found.installed else NOT_INSTALLED
    if options.action == "remove":
        _tell(remove(service, manager, tool), options.output)
        return 0
    if options.print:
        sys.stdout.write(manager.text(service).decode("utf-16" if manager.name == "windows" else "utf-8"))
        _note(service, manager)
        return 0
    home = Home(service.home)
    warning = _refuse_unstartable(home, service)
    if not options.no_start and _held(home) and not inspect(service, manager, tool).running:
        raise BusyError(f"{busy_text(home.lock_path)}, or install with --no-start")
    done = install(service, manager, tool, now=not options.no_start)
    if warning:
        done = replace(done, notes=(*done.notes, warning))
    _tell(done, options.output)
    return 0


def manager_of(name: str) -> Manager:
    """That of a system, for the person whose process this is."""
    person = Path.home()
    if name == "launchd":
        from meshnode.cli.service.launchd import Launchd

        return Launchd(person, os.getuid() if hasattr(os, "getuid") else 0)
    if name == "windows":
        from meshnode.cli.service.windows import Windows

        return Windows(os.environ)
    from meshnode.cli.service.systemd import Systemd

    return Systemd(os.environ, person)


def _usual_manager() -> str:
    return {"darwin": "launchd", "win32": "windows"}.get(sys.platform, "systemd")


def _service(options: argparse.Namespace) -> Service:
    home = connect.home_path(options).expanduser().absolute()
    file = getattr(options, "passphrase_file", None)
    return Service(
        program=program_of(sys.executable),
        home=str(home),
        usual=home == platform_home(),
        log_level=getattr(options, "log_level", None),
        passphrase_file=None if file is None else str(Path(file).expanduser().absolute()),
        environment=carried(os.environ),
    )


def _held(home: Home) -> bool:
    """Whether a process runs the node, or writes to its home."""
    lock = try_lock(home.lock_path, "service") if home.founded else None
    if lock is not None:
        lock.release()
    return home.founded and lock is None


def _refuse_unstartable(home: Home, service: Service) -> str:
    """Raise where the service would only fail; what to know beforehand otherwise."""
    home.refuse_joining()
    if not home.founded:
        raise NotFoundError(
            f"there is no node in {home.path} that a service could run: `meshnode init` founds a mesh, "
            "`meshnode join INVITE` comes into one"
        )
    if service.passphrase_file is not None:
        if not read_private(Path(service.passphrase_file), _PASSPHRASE_BYTES).strip():
            raise UsageError(f"{service.passphrase_file} is empty: its first line is to be the passphrase")
        return ""
    if not is_protected(home.site_key_path):
        return ""
    if kept_as(home.site_key_path) is None:
        raise UsageError(
            f"{home.site_key_path} is under a passphrase, for which nobody can ask a service: let the keyring have it "
            "(`meshnode identity protect --keyring`), or name a file of mode 0600 with --passphrase-file"
        )
    return (
        "The keyring has the passphrase of the keys: it has to be unlocked when the service starts, as it is at login."
    )


def _note(service: Service, manager: Manager) -> None:
    """What to know of a file that was printed: it may be meant for another machine, so nothing is refused."""
    if manager.untested:
        print(f"Note: {manager.untested}.", file=sys.stderr)
    try:
        warning = _refuse_unstartable(Home(service.home), service)
    except MeshError as error:
        warning = f"As it stands here this service would not start, and `install` refuses it: {error}"
    if warning:
        print(f"Note: {printable(warning)}", file=sys.stderr)


def _tell(done: Any, output: str | None) -> None:
    if output in ("json", "jsonl"):
        print_one(standing(done), output)
        return
    for line in (*done.did, *done.notes):
        print(printable(line))


def _print_status(found: Installed, output: str | None) -> None:
    if output in ("json", "jsonl"):
        print_one(standing(found), output)
        return
    rows = {name: value for name, value in standing(found).items() if value not in (None, "")}
    print_one(rows, output)
