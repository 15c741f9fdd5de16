"""Asks the person at the terminal, yes or no, while other things go on.

The answer is read on a thread that nothing waits for, and straight from the descriptor: where the question became
pointless meanwhile, the program ends without somebody having to press Enter.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import threading

from meshnode.errors import UsageError

LAST = "It is the only one that can let others in or retire them: after that only the recovery key can."
_LINE_BYTES = 1000  # of an answer


def add_yes(parser: argparse.ArgumentParser) -> None:
    """The flag that answers the question beforehand."""
    parser.add_argument("--yes", action="store_true", help="take yes for the answer, and do not ask")


def require_yes(options: argparse.Namespace, question: str) -> None:
    """UsageError unless --yes was given or the person says yes; without a terminal nobody is asked."""
    if options.yes or (sys.stdin.isatty() and ask(question)):
        return
    raise UsageError("nothing was done: say yes, or give --yes")


def ask(question: str) -> bool | None:
    """Whether the answer on standard input is yes; None where that has ended, so that nobody can answer."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return _answer(_read_line())


async def ask_meanwhile(question: str) -> bool | None:
    """The same, without holding anything up; cancelled, it leaves the question where it is."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[bytes] = loop.create_future()

    def settle(line: bytes) -> None:
        if not answered.done():
            answered.set_result(line)

    def read() -> None:
        line = _read_line()
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, line)

    threading.Thread(target=read, daemon=True).start()
    try:
        return _answer(await answered)
    except asyncio.CancelledError:
        print(file=sys.stderr)
        raise


def _read_line() -> bytes:
    line = b""
    while not line.endswith(b"\n") and len(line) < _LINE_BYTES:
        try:
            piece = os.read(sys.stdin.fileno(), 1)
        except (OSError, ValueError):  # there is no standard input
            piece = b""
        if not piece:
            break
        line += piece
    return line


def _answer(line: bytes) -> bool | None:
    if not line or not sys.stdin.isatty():
        print(file=sys.stderr)  # no Enter has ended the line of the question
    if not line:
        return None
    return line.strip().lower() in (b"y", b"yes")
