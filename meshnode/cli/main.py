"""The `meshnode` program: finds the verb, imports that verb's module alone, and turns errors into one line and a code.

Exit codes: 0 done; 1 an error, a failed check, or what was named (a row, a member, a file) is not there; 2 the command
line cannot be used (and, for `wait`, somebody is behind); 3 (`doctor`) there is something to look at, (`service
status`) it does not run; 4 (`service status`) there is no service; 130 interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import NoReturn

from meshnode import __version__
from meshnode.cli.globals import add_globals
from meshnode.errors import MembershipError, MeshError, UsageError, reason_of

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
DEBUG_VARIABLE = "MESHNODE_DEBUG"
_WITH_VALUE = ("--home", "--output", "--passphrase-fd")

_VERBS: tuple[tuple[str, str, str], ...] = (  # verb, module, what it does
    ("init", "init", "found a mesh on this device"),
    ("up", "up", "run the node in the foreground"),
    ("service", "service.verb", "have the system run the node"),
    ("invite", "invite", "let another device in"),
    ("join", "join", "become a member of a mesh by an invite"),
    ("nearby", "nearby", "show devices close by that can be paired with, or be one"),
    ("pair", "pair", "become a member by a device close by, without an invite"),
    ("discover", "discover", "show who is around, and why each was dialed or not"),
    ("table", "table", "add a table to the mesh, say its class, or list them"),
    ("adopt", "adopt", "make the tables of an existing database sync, whoever writes them"),
    ("release", "release", "give an adopted database back"),
    ("policy", "policy", "show or change what may cross the mesh"),
    ("config", "config", "show, check and change the settings"),
    ("put", "put", "write one row"),
    ("get", "get", "show one row"),
    ("rm", "rm", "delete one row"),
    ("rows", "rows", "show the rows of a table"),
    ("evict", "evict", "freeze a table below a time, and drop its older events"),
    ("rehydrate", "rehydrate", "ask for the history of a table again"),
    ("compact", "compact", "drop events that no row can need any more"),
    ("forget", "forget", "erase one row on this device, and keep nothing of it"),
    ("import", "import_rows", "write rows from a CSV, TSV or JSONL file"),
    ("conflicts", "conflicts", "show concurrent writes of one cell, and decide them"),
    ("watch", "watch", "show changes as they happen"),
    ("events", "events", "show the retained log, and check it"),
    ("export-events", "export_events", "write what another device may not have into a file"),
    ("import-events", "import_events", "take in such a file"),
    ("notices", "notices", "show what came up, or acknowledge it"),
    ("peers", "peers", "show the other members"),
    ("members", "members", "show who belongs to the mesh, in which role, and by whom"),
    ("vouch", "vouch", "let a device in by its public key, or in again"),
    ("role", "role", "say what a member may do"),
    ("retire", "retire", "end a device for good: lost, stolen, given away"),
    ("leave", "leave", "retire this very device"),
    ("status", "status", "show how this node is"),
    ("dashboard", "dashboard", "open the running node's dashboard in the browser"),
    ("doctor", "doctor", "find out what is wrong, and what to do"),
    ("metrics", "metrics", "show what is measured, as Prometheus reads it"),
    ("sync-state", "sync_state", "show how far the delivery to and from each peer is"),
    ("frontier", "frontier", "show the causal frontier: evidence of order"),
    ("request-sync", "request_sync", "ask peers for what may be missing, now"),
    ("verify", "verify", "compare events and rows with a linked member"),
    ("identity", "identity", "protect the keys, move this device, tell copies of it apart"),
    ("wait", "wait", "wait until everybody has everything"),
    ("digest", "digest", "digest of tables, equal where rows are equal"),
    ("check", "check", "recompute rows and clocks from the log"),
    ("bench", "bench", "measure this machine and this node on it"),
    ("conform", "conform.verb", "run test vectors through this program"),
    ("help", "help", "explain a verb, or write the manual pages"),
    ("completion", "completion.verb", "print the script by which a shell completes words"),
    ("demo", "demo", "three nodes on this device, from nothing to equal"),
)


_NO_NUMBER = re.compile(r"^argument (\S.*?): invalid (int|float) value: (.*)$", re.DOTALL)


def _no_number(found: re.Match[str]) -> str:
    """What argparse says of a value in terms of Python's types."""
    return f"{found[1]} takes {'a whole number' if found[2] == 'int' else 'a number'}, not {found[3]}"


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line."""

    def error(self, message: str) -> NoReturn:
        said = _NO_NUMBER.sub(_no_number, message)
        raise UsageError(f"{said} (`{self.prog} --help` says more)")

    def format_help(self) -> str:
        """With all that is loaded only where somebody asks for help."""
        from meshnode.cli.manual import complete

        complete(self, _VERBS)
        return super().format_help()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns its exit code."""
    _use_utf8()
    _leave_no_core()
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _run(words)
        sys.stdout.flush()
        return code
    except MembershipError as error:
        return _complain(error, FAILED)  # the command line is fine, this device may not
    except UsageError as error:
        return _complain(error, MISUSED)
    except MeshError as error:
        return _complain(error, FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains at its exit
        return FAILED
    except Exception as error:
        if isinstance(error, UnicodeEncodeError) and (wrong := _not_unicode(words)) is not None:
            return _complain(UsageError(f"{wrong} is not UTF-8, as names and texts have to be"), MISUSED)
        if os.environ.get(DEBUG_VARIABLE):
            raise
        return _complain(MeshError(f"{_one_line(error)} (with {DEBUG_VARIABLE}=1 it says where)"), FAILED)


def _run(arguments: list[str]) -> int:
    module, options = parsed(arguments)
    return int(module.run(options))


def parsed(arguments: list[str]) -> tuple[ModuleType, argparse.Namespace]:
    """The verb of a command line and what it is told; UsageError where it cannot be used."""
    head, verb, tail = _split(arguments)
    options = main_parser().parse_args(head)
    if verb is None:
        raise UsageError("which verb? `meshnode --help` lists them")
    module, parser = verb_parser(verb)
    parser.parse_args(tail, options)
    return module, options


def verb_parser(verb: str) -> tuple[ModuleType, Parser]:
    """The module of a verb and what reads its words; UsageError where there is no such verb."""
    module = _verb_module(verb)
    parser = Parser(prog=f"meshnode {verb}", description=module.__doc__, allow_abbrev=False)
    module.configure(parser)
    add_globals(parser)
    return module, parser


def verbs() -> tuple[tuple[str, str, str], ...]:
    """Each verb, the module that has it, and what it does."""
    return _VERBS


def _split(arguments: list[str]) -> tuple[list[str], str | None, list[str]]:
    """Options before the verb, the verb, and the rest: only then is it known whose parser reads the rest."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in _WITH_VALUE else 1
    if at >= len(arguments):
        return arguments, None, []
    return arguments[:at], arguments[at], arguments[at + 1 :]


def main_parser() -> Parser:
    """What reads the words before the verb, and shows the help of the program itself."""
    parser = Parser(
        prog="meshnode",
        usage="meshnode [--home DIR] VERB … [--output table|json|jsonl]",
        description="A peer-to-peer mesh node: plain SQLite tables that sync.",
        epilog="`meshnode VERB --help`, or `meshnode help VERB`, explains one verb.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    add_globals(parser, defaults=True)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_rest: object) -> None:
        print(f"meshnode {__version__}")
        parser.exit()


def _verb_module(verb: str) -> ModuleType:
    modules = {name: module for name, module, _ in _VERBS}
    if verb not in modules:
        near = difflib.get_close_matches(verb, modules, n=1)
        hint = f", did you mean {near[0]!r}?" if near else "; `meshnode --help` lists them"
        raise UsageError(f"there is no verb {verb!r}{hint}")
    return importlib.import_module(f"meshnode.cli.{modules[verb]}")


def _complain(error: MeshError, code: int) -> int:
    from meshnode.cli.output import printable
    from meshnode.model.logevent import without_invites

    print(f"meshnode: {without_invites(printable(str(error)))}", file=sys.stderr)
    return code


def _not_unicode(words: Sequence[str]) -> str | None:
    """The first word of a command line whose bytes were no UTF-8: Python has half surrogates in their place."""
    return next((word for word in words if any("\ud800" <= each <= "\udfff" for each in word)), None)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError):
        return ": ".join(filter(None, (str(error.filename or ""), reason_of(error))))
    return f"this is a fault of meshnode itself: {type(error).__name__}: {error}"


def _use_utf8() -> None:
    """JSON and names are UTF-8 whatever the locale says."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(encoding="utf-8", errors="backslashreplace")


def _leave_no_core() -> None:
    """A core file would hold keys that are under a passphrase on the disk, and rows of an encrypted database."""
    with suppress(ImportError):  # Windows has none
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


if __name__ == "__main__":
    sys.exit(main())
