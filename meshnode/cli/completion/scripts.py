"""The scripts: what is known of each command as a table of its shell, above the code that looks it up.

Words that peers chose reach a shell as lines of text: none of the three evaluates them, each quotes what it inserts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.resources import files

from meshnode.cli.commands import Command, all_commands, program
from meshnode.cli.completion.kinds import Kind, places, value_of

_ABOUT = 60  # characters of what is said beside a word


@dataclass(frozen=True, slots=True)
class Entry:
    """One command, as a script knows it."""

    name: str
    verbs: tuple[tuple[str, str], ...]
    options: tuple[tuple[str, str], ...]
    values: tuple[tuple[str, Kind], ...]
    places: tuple[Kind, ...]
    goes_on: bool


def script(shell: str) -> str:
    """The script of one shell."""
    table = "\n".join(line for entry in entries(program()) for line in RENDERERS[shell](entry))
    template = files("meshnode.cli.completion").joinpath(f"template.{shell}").read_text(encoding="utf-8")
    return template.replace("@TABLE@", table)


def entries(whole: Command) -> Iterator[Entry]:
    """Every command, the program first."""
    verbs = [each.name for each in whole.commands]
    for command in all_commands(whole):
        values = [(flag, value_of(command, option, verbs)) for option in command.options for flag in option.flags]
        known, goes_on = places(command, verbs)
        yield Entry(
            command.name,
            tuple((each.words[-1], each.about) for each in command.commands),
            tuple((flag, option.about) for option in command.options for flag in option.flags),
            tuple((flag, kind) for flag, kind in values if kind is not None),
            known,
            goes_on,
        )


def _bash(entry: Entry) -> Iterator[str]:
    yield f"    '{entry.name}')"
    yield f"        verbs='{' '.join(word for word, _ in entry.verbs)}'"
    yield f"        options='{' '.join(flag for flag, _ in entry.options)}'"
    yield f"        values=({' '.join(_quoted(f'{flag} {_kind(kind)}') for flag, kind in entry.values)})"
    yield f"        places=({' '.join(_quoted(_kind(kind)) for kind in entry.places)}) more={int(entry.goes_on)} ;;"


def _zsh(entry: Entry) -> Iterator[str]:
    yield f"    '{entry.name}')"
    yield f"        verbs=({' '.join(_quoted(f'{word}:{_about(about)}') for word, about in entry.verbs)})"
    yield f"        flags=({' '.join(_quoted(f'{flag}:{_about(about)}') for flag, about in entry.options)})"
    yield f"        values=({' '.join(_quoted(f'{flag} {_kind(kind)}') for flag, kind in entry.values)})"
    yield f"        places=({' '.join(_quoted(_kind(kind)) for kind in entry.places)}) more={int(entry.goes_on)} ;;"


def _fish(entry: Entry) -> Iterator[str]:
    def listed(name: str, words: list[str]) -> str:
        return f"            set -g __meshnode_{name} {' '.join(_quoted(word, fish=True) for word in words)}".rstrip()

    yield f"        case '{entry.name}'"
    yield listed("verbs", [f"{word}\t{_about(about)}" for word, about in entry.verbs])
    yield listed("options", [f"{flag}\t{_about(about)}" for flag, about in entry.options])
    yield listed("values", [f"{flag} {_kind(kind)}" for flag, kind in entry.values])
    yield listed("places", [_kind(kind) for kind in entry.places])
    yield listed("more", [str(int(entry.goes_on))])


RENDERERS: dict[str, Callable[[Entry], Iterator[str]]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}


def _kind(kind: Kind) -> str:
    return " ".join((kind.name, *kind.words))


def _about(text: str) -> str:
    return text if len(text) <= _ABOUT else text[: _ABOUT - 1].rstrip() + "…"


def _quoted(text: str, *, fish: bool = False) -> str:
    if fish:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return "'" + text.replace("'", "'\\''") + "'"
