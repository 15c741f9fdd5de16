"""The flags that every verb takes: which home, what form of output, and where the passphrase of the home is read."""

from __future__ import annotations

import argparse
from typing import Final

EVERY_VERB: Final = "options of every verb"


def add_globals(parser: argparse.ArgumentParser, *, defaults: bool = False) -> None:
    """Accepted before and after the verb; after it, an absent option leaves what was said before it."""
    absent = None if defaults else argparse.SUPPRESS
    group = parser.add_argument_group(EVERY_VERB)
    group.add_argument(
        "--home", metavar="DIR", default=absent, help="the node's folder (default: $MESHNODE_HOME, or the platform's)"
    )
    group.add_argument(
        "--output", choices=("table", "json", "jsonl"), default=absent, help="form of what is printed (default: table)"
    )
    group.add_argument(
        "--passphrase-fd",
        type=int,
        metavar="N",
        default=absent,
        help="open descriptor on which the passphrase of the home's keys is read (default: ask at the terminal)",
    )
