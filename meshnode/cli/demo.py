"""Three nodes on this device find each other, pair, load a real table, are cut off and killed, and end equal.

They live in a temporary folder and talk over loopback: nothing is said to the network.
"""

from __future__ import annotations

import argparse


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("--keep", metavar="DIR", help="leave the three homes in this folder, for the ordinary verbs")
    parser.add_argument("--json", action="store_true", help="print one line of JSON and nothing else")


def run(options: argparse.Namespace) -> int:
    """Run it: exit code 0 only if all nodes' rows are equal."""
    from meshnode.cli.demonstration import demonstrate

    return int(demonstrate(keep=options.keep, as_json=options.json or options.output in ("json", "jsonl")))
