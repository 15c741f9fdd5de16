"""Found a mesh on this device: makes its keys, its database and its settings."""

from __future__ import annotations

import argparse
import platform
import sys
from collections.abc import Sequence

from meshnode.cli import connect
from meshnode.cli.output import print_one, printable
from meshnode.cli.passphrase import add_protection_flags
from meshnode.node.views import FoundView


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument(
        "--name", default="", help="what other people see this device called (default: the host's name)"
    )
    add_protection_flags(parser)


def run(options: argparse.Namespace) -> int:
    """Found it, and say what to do next."""
    found, words = connect.run(_found(options))
    if options.output in ("json", "jsonl"):
        print_one(found, options.output)
        return 0
    print(founded_text(found))
    print("Next: `meshnode up` runs the node, `meshnode invite` lets another device in.")
    if sys.stdout.isatty():  # elsewhere they would lie in somebody's log
        print(
            "\nOr write these words down, they are the same key: `--recovery FILE` takes a file with them as well.\n"
            + _lines(words)
        )
    return 0


async def _found(options: argparse.Namespace) -> tuple[FoundView, list[str]]:
    """What was founded, and the recovery key as words."""
    from meshnode.node.founding import found
    from meshnode.node.words import words_of

    async with connect.new_home(options, "init") as home:
        view = await found(home, name=options.name or platform.node() or "meshnode")
        return view, words_of(home.recovery_key().seed)


def founded_text(found: FoundView) -> str:
    """What a person has to know after founding."""
    return (
        f"Founded mesh {found.mesh_tag}; this device is {printable(found.name)!r}, site {found.short}, "
        f"in {found.home}\n"
        f"Move {found.recovery_key} to a safe place off this device: no other key stands above it."
    )


def _lines(words: Sequence[str]) -> str:
    """A few to a line."""
    return "\n".join("  " + " ".join(words[at : at + 6]) for at in range(0, len(words), 6))
