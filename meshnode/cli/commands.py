"""Every verb with its sub-verbs, options and arguments as frozen values, taken from the parsers that read them.

Manual pages and the completion of words are made of it, so that they know what the program knows.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from meshnode.cli.globals import EVERY_VERB
from meshnode.cli.main import main_parser, verb_parser, verbs
from meshnode.cli.manual import first_clause

MANY = ("*", "+")


@dataclass(frozen=True, slots=True)
class Option:
    """`value` is what stands for its value in help; None where it takes none."""

    flags: tuple[str, ...]
    value: str | None
    choices: tuple[str, ...]
    about: str
    shared: bool  # by all verbs


@dataclass(frozen=True, slots=True)
class Argument:
    """A word by its place."""

    name: str
    choices: tuple[str, ...]
    about: str
    many: bool
    optional: bool


@dataclass(frozen=True, slots=True)
class Command:
    """The program itself, a verb, or a verb of a verb; `words` are those that name it."""

    words: tuple[str, ...]
    about: str
    description: str
    notes: str
    usage: str
    options: tuple[Option, ...]
    arguments: tuple[Argument, ...]
    commands: tuple[Command, ...] = ()

    @property
    def name(self) -> str:
        """Its words; empty for the program."""
        return " ".join(self.words)


def program() -> Command:
    """All of it: this loads the module of every verb."""
    found = tuple(_command(verb_parser(verb)[1], (verb,), does) for verb, _, does in verbs())
    parser = main_parser()
    return _command(parser, (), parser.description or "", found)


def all_commands(command: Command) -> Iterator[Command]:
    """This one and all that are below it."""
    yield command
    for each in command.commands:
        yield from all_commands(each)


def _command(
    parser: argparse.ArgumentParser, words: tuple[str, ...], about: str, commands: tuple[Command, ...] = ()
) -> Command:
    notes = parser.epilog or ""
    parser.format_help()  # completes what help says: titles, and how usage is written
    options, arguments = [], []
    shared = _shared(parser)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            commands = tuple(_command(sub, (*words, name), first_clause(sub)) for name, sub in action.choices.items())
        elif action.help == argparse.SUPPRESS:
            continue
        elif action.option_strings:
            options.append(_option(action, shared=id(action) in shared))
        else:
            arguments.append(_argument(action))
    usage = " ".join(parser.format_usage().split()).removeprefix("usage: ")
    description = parser.description or ""
    return Command(words, about, description, notes, usage, tuple(options), tuple(arguments), commands)


def _shared(parser: argparse.ArgumentParser) -> set[int]:
    """The options that every verb has, by identity: argparse tells apart nothing else."""
    groups = [group for group in parser._action_groups if group.title == EVERY_VERB]
    helps = [action for action in parser._actions if isinstance(action, argparse._HelpAction)]
    return {id(action) for action in (*helps, *(each for group in groups for each in group._group_actions))}


def _option(action: argparse.Action, *, shared: bool) -> Option:
    choices = tuple(str(each) for each in action.choices or ())
    value = (
        None if action.nargs == 0 else _metavar(action) or (action.dest.upper() if not choices else "|".join(choices))
    )
    return Option(tuple(action.option_strings), value, choices, _about(action), shared)


def _argument(action: argparse.Action) -> Argument:
    choices = tuple(str(each) for each in action.choices or ())
    name = _metavar(action) or ("|".join(choices) if choices else action.dest.upper())
    return Argument(name, choices, _about(action), many=action.nargs in MANY, optional=action.nargs in ("*", "?"))


def _metavar(action: argparse.Action) -> str:
    return action.metavar if isinstance(action.metavar, str) else ""


def _about(action: argparse.Action) -> str:
    return " ".join((action.help or "").replace("%%", "%").split())
