"""The `meshnode` program: finds the verb, imports that verb's module alone, and turns errors into one line and a code.

Exit codes: 0 done; 1 an error, no such row, a failed check; 2 the command line cannot be used (and, for `wait`,
somebody is behind); 3 (`doctor`) there is something to look at; 130 interrupted.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import ModuleType
from typing import NoReturn

from meshnode import __version__
from meshnode.cli.examples import EXAMPLES
from meshnode.cli.globals import add_globals
from meshnode.errors import MembershipError, MeshError, UsageError

FAILED, MISUSED, INTERRUPTED = 1, 2, 130
DEBUG_VARIABLE = "MESHNODE_DEBUG"
_WITH_VALUE = ("--home", "--output", "--passphrase-fd")

_VERBS: tuple[tuple[str, str, str], ...] = (  # verb, module, what it does
    ("init", "init", "found a mesh on this device"),
    ("up", "up", "run the node in the foreground"),
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
    ("notices", "notices", "show what came up, or say that it was seen"),
    ("peers", "peers", "show the other members"),
    ("members", "members", "show who belongs to the mesh, in which role, and by whom"),
    ("vouch", "vouch", "let a device in by its public key, or in again"),
    ("role", "role", "say what a member may do"),
    ("retire", "retire", "end a device for good: lost, stolen, given away"),
    ("leave", "leave", "retire this very device"),
    ("status", "status", "show how this node is"),
    ("doctor", "doctor", "find out what is wrong, and what to do"),
    ("metrics", "metrics", "show what is measured, as Prometheus reads it"),
    ("sync-state", "sync_state", "show how far the delivery to and from each peer is"),
    ("frontier", "frontier", "show the causal frontier: evidence of order"),
    ("request-sync", "request_sync", "ask peers for what may be missing, now"),
    ("verify", "verify", "compare events and rows with a linked member"),
    ("identity", "identity", "protect the keys, move this device, say which copy of it this is"),
    ("wait", "wait", "wait until everybody has everything"),
    ("digest", "digest", "digest of tables, equal where rows are equal"),
    ("check", "check", "recompute rows and clocks from the log"),
    ("conform", "conform.verb", "run test vectors through this program"),
    ("demo", "demo", "three nodes on this device, from nothing to equal"),
)


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message} (`{self.prog} --help` says more)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command line; returns its exit code."""
    _use_utf8()
    _leave_no_core()
    try:
        code = _run(list(sys.argv[1:] if arguments is None else arguments))
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
        if os.environ.get(DEBUG_VARIABLE):
            raise
        return _complain(MeshError(f"{_one_line(error)} (with {DEBUG_VARIABLE}=1 it says where)"), FAILED)


def _run(arguments: list[str]) -> int:
    module, options = parsed(arguments)
    return int(module.run(options))


def parsed(arguments: list[str]) -> tuple[ModuleType, argparse.Namespace]:
    """The verb of a command line and what it is told; UsageError where it cannot be used."""
    head, verb, tail = _split(arguments)
    options = _main_parser().parse_args(head)
    if verb is None:
        raise UsageError("which verb? `meshnode --help` lists them")
    module = _verb_module(verb)
    example = EXAMPLES.get(verb)  # others have theirs in what they say of themselves
    parser = Parser(
        prog=f"meshnode {verb}",
        description=module.__doc__,
        epilog=example and f"example: {example}",
        allow_abbrev=False,
    )
    module.configure(parser)
    add_globals(parser)
    parser.parse_args(tail, options)
    return module, options


def _split(arguments: list[str]) -> tuple[list[str], str | None, list[str]]:
    """Options before the verb, the verb, and the rest: only then is it known whose parser reads the rest."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-"):
        at += 2 if arguments[at] in _WITH_VALUE else 1
    if at >= len(arguments):
        return arguments, None, []
    return arguments[:at], arguments[at], arguments[at + 1 :]


def _main_parser() -> Parser:
    lines = [f"  {verb:13} {does}" for verb, _, does in _VERBS]
    parser = Parser(
        prog="meshnode",
        usage="meshnode [--home DIR] VERB … [--output table|json|jsonl]",
        description="A peer-to-peer mesh node: plain SQLite tables that sync.\n\nverbs:\n" + "\n".join(lines),
        epilog="`meshnode VERB --help` explains one verb. Exit codes: 0 done; 1 an error, or no such row, or a failed "
        "check; 2 a command line that cannot be used, or (wait) somebody is behind; 3 (doctor) something to look at; "
        "130 interrupted.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
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


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError):
        return str(error)
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
