"""What may stand at each place of a command line: words, names from the database, files, folders or anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from meshnode.cli.commands import Command, Option

FILES, FOLDERS, ANYTHING = "files", "folders", "anything"
ASKED = ("tables", "members", "conflicts", "notices")
"""Those for which the program is asked."""
_BY_NAME = {
    "FILE": FILES,
    "DIR": FOLDERS,
    "TABLE": "tables",
    "SITE": "members",
    "PEER": "members",
    "SITE|NAME": "members",
}
_BY_PLACE = {  # where the name alone does not tell
    ("conflicts", "--table"): "tables",
    ("request-sync", "--table"): "tables",
    ("verify", "--table"): "tables",
    ("table class", "NAME"): "tables",
    ("conflicts resolve", "ID"): "conflicts",
    ("conflicts acknowledge", "ID"): "conflicts",
    ("notices", "ID"): "notices",
}


@dataclass(frozen=True, slots=True)
class Kind:
    """`name` is one of those above, or `words`, which are in `words`."""

    name: str
    words: tuple[str, ...] = ()


def places(command: Command, verbs: Sequence[str]) -> tuple[tuple[Kind, ...], bool]:
    """Of each argument by its place; and whether the last goes on."""
    found = [_kind(command, each.name, each.choices, verbs) for each in command.arguments]
    if command.name == "config set":
        return (found[0], Kind(ANYTHING)), True  # the first setting, then what it is to be
    return tuple(found), bool(command.arguments) and command.arguments[-1].many


def value_of(command: Command, option: Option, verbs: Sequence[str]) -> Kind | None:
    """Of the value of an option; None where it takes none."""
    if option.value is None:
        return None
    place = _BY_PLACE.get((command.name, option.flags[-1]))
    return Kind(place) if place else _kind(command, option.value, option.choices, verbs)


def _kind(command: Command, name: str, choices: tuple[str, ...], verbs: Sequence[str]) -> Kind:
    if choices:
        return Kind("words", choices)
    known = _words(command, name, verbs)
    if known:
        return Kind("words", tuple(known))
    return Kind(_BY_PLACE.get((command.name, name)) or _BY_NAME.get(name, ANYTHING))


def _words(command: Command, name: str, verbs: Sequence[str]) -> Sequence[str]:
    """Names that the program knows, and its parsers leave to it."""
    from meshnode.model.policy import TableClass
    from meshnode.node.config import POLICY, SETTINGS
    from meshnode.node.doctor.checks import CHECKS

    if name in ("KEY", "KEY VALUE"):
        return list(POLICY) if command.words[0] == "policy" else list(SETTINGS)
    known: dict[str, Sequence[str]] = {
        "CLASS": list(TableClass),
        "CHECK": [check.name for check in CHECKS],
        "VERB": verbs,
    }
    return [str(word) for word in known.get(name, ())]
