"""The recovery key as verbs are given it: a file, which may be under a passphrase of its own (profile §9)."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TypedDict

from meshnode.cli.passphrase import asked, read_descriptor
from meshnode.node.keyfile import is_protected, kept_as
from meshnode.node.passphrase import unasked

_FLAG = "--recovery-passphrase-fd"


class Recovery(TypedDict):
    """By which file the recovery key signs, as the operations take it."""

    recovery: str | None
    passphrase: str | None


def add_recovery(parser: argparse.ArgumentParser) -> None:
    """The flag by which the recovery key signs instead of this device's own key."""
    parser.add_argument(
        "--recovery", metavar="FILE", help="sign with the recovery key instead: its file, or one with its words"
    )
    parser.add_argument(
        _FLAG,
        type=int,
        metavar="N",
        help="open descriptor on which the passphrase of that file is read (default: ask at the terminal)",
    )


def recovery_of(options: argparse.Namespace) -> Recovery:
    """The file, named so that a node which runs in another folder finds it, and what it is under, if anything."""
    if options.recovery is None:
        return {"recovery": None, "passphrase": None}
    path = Path(options.recovery).expanduser().absolute()
    return {"recovery": str(path), "passphrase": _passphrase(path, options.recovery_passphrase_fd)}


def _passphrase(path: Path, descriptor: int | None) -> str | None:
    if not is_protected(path):
        return None
    if descriptor is not None:
        return read_descriptor(descriptor, _FLAG)
    if kept_as(path) is not None:
        return None  # the keyring has it
    answer = asked(f"Passphrase of {path}: ")
    if answer is None:
        raise unasked(path, "", _FLAG)
    return answer
