"""Where a verb gets the passphrase of the home from: an open descriptor, or the terminal, where it is not shown."""

from __future__ import annotations

import argparse
import getpass
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from meshnode.errors import UsageError, reason_of
from meshnode.node.passphrase import Passphrase

_GIVEN = "given_passphrase"  # in the options, once it is known where it comes from
_BYTES = 4096  # of a line on a descriptor: more than a passphrase may have


def add_protection_flags(parser: argparse.ArgumentParser) -> None:
    """Declare the flags of every verb that makes a home."""
    parser.add_argument(
        "--passphrase",
        action="store_true",
        help="put the keys under a passphrase, which is asked for twice (with --passphrase-fd: read there)",
    )
    parser.add_argument(
        "--encrypt", action="store_true", help="encrypt the database, under a key that comes from the site key"
    )


def passphrase_of(options: argparse.Namespace) -> Passphrase:
    """What opens the home that the options name, and what the keys of one that is made go under.

    It is the same one each time: a verb that asks before it writes opens the home twice, and is given it once.
    """
    given: Passphrase | None = getattr(options, _GIVEN, None)
    if given is None:
        given = _passphrase(options)
        setattr(options, _GIVEN, given)
    return given


def _passphrase(options: argparse.Namespace) -> Passphrase:
    number = options.passphrase_fd
    if number is not None:
        return Passphrase(lambda: read_descriptor(number, "--passphrase-fd"))
    if getattr(options, "passphrase", False):
        return Passphrase(new_passphrase)
    return Passphrase(ask=asked)


def read_descriptor(number: int, flag: str) -> str:
    """The first line that comes out of an open descriptor."""
    line = b""
    try:
        while len(line) < _BYTES and not line.endswith(b"\n"):
            byte = os.read(number, 1)  # no more than the line: the next one may be somebody else's
            if not byte:
                break
            line += byte
    except (OSError, OverflowError) as error:
        raise UsageError(f"{flag} {number}: no open descriptor to read from: {reason_of(error)}") from error
    if not line.rstrip(b"\r\n"):
        raise UsageError(f"{flag} {number}: there is no passphrase to read")
    return line.rstrip(b"\r\n").decode("utf-8", "surrogateescape")


def new_passphrase() -> str:
    """Ask for one that is new, twice: nobody sees what they type."""
    first = asked("New passphrase: ")
    if first is None:
        raise UsageError("there is no terminal to ask for a passphrase at: give one by `--passphrase-fd N`")
    if first != asked("The same again: "):
        raise UsageError("the two passphrases are not the same: nothing was changed")
    return first


def asked(question: str) -> str | None:
    """Ask at the terminal, without showing the answer; None where there is no terminal."""
    with warnings.catch_warnings(), _interruptible():
        warnings.simplefilter("error", getpass.GetPassWarning)  # it would be shown
        try:
            return getpass.getpass(question)
        except (getpass.GetPassWarning, EOFError, OSError):
            return None


@contextmanager
def _interruptible() -> Iterator[None]:
    """Ctrl-C ends the question, also while an event loop handles signals by itself."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
