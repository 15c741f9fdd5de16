"""Asks the person at the terminal, yes or no."""

from __future__ import annotations

import sys


def ask(question: str) -> bool | None:
    """Whether the answer on standard input is yes; None where that has ended, so that nobody can answer."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    line = sys.stdin.readline()
    if not line:
        print(file=sys.stderr)
        return None
    return line.strip().lower() in ("y", "yes")
