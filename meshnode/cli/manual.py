"""How help looks, and what it says besides arguments: groups of verbs, exit codes, files, variables, examples.

It is loaded where somebody asks for help, and by what is made of it: manual pages and completion.
"""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence

from meshnode.cli.examples import examples_of
from meshnode.cli.notes import ENVIRONMENT, EXITS, FILES, GROUPS

PROGRAM = "meshnode"
WIDEST = 100  # characters of a line: longer ones are hard to read, whatever the terminal has
GLOBAL = ("home", "output", "passphrase_fd", "help")  # not in each usage: they are the same everywhere
_ENTRY = 2  # spaces before an entry of a list
_HANGING = re.compile(r" *(\S+ {2,})?")


class Paragraphs(argparse.HelpFormatter):
    """Paragraphs stay apart, indented lines stay lines; nothing is broken at a hyphen, and usage tells what differs."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)
        self._width = min(self._width, WIDEST)

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[argparse._MutuallyExclusiveGroup],
        prefix: str | None = None,
    ) -> None:
        """Without what every verb takes."""
        super().add_usage(usage, [each for each in actions if each.dest not in GLOBAL], groups, prefix)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(filled(text, width))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return _wrapped(" ".join(text.split()), width)


def filled(text: str, width: int) -> list[str]:
    """The lines of a text: a paragraph is wrapped as a whole, an indented line for itself."""
    lines: list[str] = []
    for paragraph in text.strip().split("\n\n"):
        lines += [""] if lines else []
        running: list[str] = []
        for line in paragraph.split("\n"):
            if not line.startswith(" "):
                running.append(line)
                continue
            lines += _wrapped(" ".join(running), width)
            running = []
            hanging = _HANGING.match(line)
            assert hanging is not None
            deeper = 0 if hanging[1] or len(hanging[0]) > _ENTRY else 4  # what is below an entry is text already
            lines += _wrapped(line, width, " " * (len(hanging[0]) + deeper))
        lines += _wrapped(" ".join(running), width)
    return lines


def _wrapped(text: str, width: int, hanging: str = "") -> list[str]:
    return textwrap.wrap(
        text, width, subsequent_indent=hanging, break_on_hyphens=False, break_long_words=False, drop_whitespace=True
    )


def complete(parser: argparse.ArgumentParser, verbs: Sequence[tuple[str, str, str]]) -> None:
    """Give a parser, just before it shows its help, all that this says."""
    if parser.formatter_class is Paragraphs:
        return  # it was shown before
    name = parser.prog.removeprefix(PROGRAM).strip()
    parser.formatter_class = Paragraphs
    parser._positionals.title = "arguments"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            action._choices_actions = [
                action._ChoicesPseudoAction(sub, [], first_clause(each)) for sub, each in action.choices.items()
            ]
    if not name:
        parser.description = f"{parser.description}\n\n{verbs_text(verbs)}"
    parser.epilog = "\n\n".join(part for part in (parser.epilog, *sections(name)) if part)


def sections(name: str) -> list[str]:
    """What stands below the options of a command; the empty name is the program itself."""
    exits = EXITS.get(name, {})
    shown = examples_of(name)
    heading = "example" if len(shown) == 1 else "examples"
    return [
        _listed("exit codes", {str(code): what for code, what in exits.items()}),
        _listed("files", FILES.get(name, {})),
        _listed("environment", ENVIRONMENT.get(name, {})),
        f"{heading}:\n" + "\n".join(f"  {line}" for line in shown) if shown else "",
    ]


def first_clause(parser: argparse.ArgumentParser) -> str:
    """What a command does, for a list of commands."""
    text = " ".join((parser.description or "").split())
    clause = re.split(r"[.;:](?= |$)", text, maxsplit=1)[0]
    return clause[:1].lower() + clause[1:]


def _listed(title: str, entries: Mapping[str, str]) -> str:
    if not entries:
        return ""
    width = max(map(len, entries))
    return "\n".join([f"{title}:", *(f"  {name:{width}}  {what}" for name, what in entries.items())])


def grouped(verbs: Sequence[tuple[str, str, str]]) -> dict[str, list[tuple[str, str]]]:
    """The verbs by what people do with them; those that nobody put into a group come last."""
    about = {verb: does for verb, _, does in verbs}
    groups = {title: [(verb, about.pop(verb)) for verb in names if verb in about] for title, names in GROUPS.items()}
    if about:
        groups["more"] = list(about.items())
    return {title: members for title, members in groups.items() if members}


def verbs_text(verbs: Sequence[tuple[str, str, str]]) -> str:
    """The same as the program's help shows them."""
    width = max(len(verb) for verb, _, _ in verbs)
    return "\n\n".join(
        "\n".join([f"{title}:", *(f"  {verb:{width}}  {does}" for verb, does in members)])
        for title, members in grouped(verbs).items()
    )
