"""Print the script by which a shell completes verbs, options, names of tables and members, and other words.

Where each shell looks for it, when it starts:

  bash  ~/.local/share/bash-completion/completions/meshnode
  zsh   _meshnode, in a folder of $fpath
  fish  ~/.config/fish/completions/meshnode.fish

Names of tables, members and conflicts are read from the database of the node's home as it is, or are left out where
that cannot be done at once: nothing is started, locked or waited for. After an upgrade, print it again.
"""

from __future__ import annotations

import argparse
import sys

from meshnode.errors import UsageError

SHELLS = ("bash", "zsh", "fish")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("shell", nargs="?", choices=SHELLS, help="the shell that is to read it")
    parser.add_argument("--words", help=argparse.SUPPRESS)  # what the scripts ask for while somebody types


def run(options: argparse.Namespace) -> int:
    """Print the script, or words for it."""
    if options.words is not None:
        from meshnode.cli.completion.words import words_of

        sys.stdout.write("".join(f"{word}\n" for word in words_of(options.words, options.home)))
        return 0
    if options.shell is None:
        raise UsageError(f"for which shell? There are {', '.join(SHELLS)}")
    from meshnode.cli.completion.scripts import script

    sys.stdout.write(script(options.shell))
    return 0
