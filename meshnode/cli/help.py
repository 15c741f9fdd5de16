"""Explain one verb, as its `--help` does, or the program; or write all of it as manual pages.

`--man DIR` writes a page for the program and one for each verb, made of the same texts. Where DIR is the folder `man1`
of a place that `man` looks in, as ~/.local/share/man/man1, `man meshnode` and `man meshnode-up` show them.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from meshnode.cli.main import main_parser, verb_parser
from meshnode.errors import UsageError


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("words", nargs="*", metavar="VERB", help="the verb, and one of its own (default: the program)")
    parser.add_argument("--man", metavar="DIR", type=Path, help="write the manual pages into this folder instead")


def run(options: argparse.Namespace) -> int:
    """Show it, or write the pages."""
    if options.man is not None:
        if options.words:
            raise UsageError("--man writes every page: name no verb beside it")
        from meshnode.cli.manpages import write_pages

        print(f"Wrote {write_pages(options.man)} manual pages into {options.man}.")
        return 0
    print(parser_of(options.words).format_help(), end="")
    return 0


def parser_of(words: list[str]) -> argparse.ArgumentParser:
    """What reads a verb, or a verb of a verb; UsageError where there is none."""
    if not words:
        return main_parser()
    parser: argparse.ArgumentParser = verb_parser(words[0])[1]
    for word in words[1:]:
        subs = [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
        if not subs or word not in subs[0].choices:
            known = f"it has {', '.join(subs[0].choices)}" if subs else "it has none"
            raise UsageError(f"`{parser.prog}` has no verb {word!r}: {known}")
        parser = subs[0].choices[word]
    return parser
