"""Manual pages, in the man(7) macros, of the same texts that `--help` shows."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path

from meshnode import __version__
from meshnode.cli.commands import Argument, Command, Option, program
from meshnode.cli.examples import examples_of
from meshnode.cli.main import verbs
from meshnode.cli.manual import grouped
from meshnode.cli.notes import ENVIRONMENT, EXITS, FILES
from meshnode.errors import ConfigError, reason_of

SECTION = "1"
DATED = "2026-12-01"  # of the release: two builds of it make the same pages
_LINE = 60  # characters of a source line, which escapes make longer


def write_pages(folder: Path) -> int:
    """Write every page; returns how many."""
    whole = program()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for command in (whole, *whole.commands):
            (folder / f"{page_name(command)}.{SECTION}").write_text(page(command, whole), encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write manual pages into {folder}: {reason_of(error)}") from error
    return 1 + len(whole.commands)


def page_name(command: Command) -> str:
    """`meshnode`, or `meshnode-VERB`."""
    return "-".join(("meshnode", *command.words[:1]))


def page(command: Command, whole: Command) -> str:
    """One page: verbs of a verb stand on that verb's."""
    name = page_name(command)
    about = "a peer-to-peer mesh node: plain SQLite tables that sync" if not command.words else command.about
    lines = [
        f'.TH {name.upper()} {SECTION} "{DATED}" "meshnode {__version__}" "meshnode manual"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(about)}",
        ".SH SYNOPSIS",
        *_synopsis(command),
        ".SH DESCRIPTION",
        *_paragraphs(command.description),
    ]
    if not command.words:
        for title, members in grouped(verbs()).items():
            lines += [f".SS {_text(title.capitalize())}"]
            lines += [line for verb, does in members for line in _entry(f"\\fBmeshnode\\-{_text(verb)}\\fR(1)", does)]
    lines += _own(command)
    for sub in command.commands if command.words else ():
        lines += [f'.SH "{_text(sub.name.upper())}"', *_synopsis(sub), *_paragraphs(sub.description, first=False)]
        lines += _own(sub)
    shared = [option for option in command.options if option.shared]
    lines += [".SH OPTIONS OF EVERY VERB", *(line for option in shared for line in _option(option))]
    lines += _notes(command)
    others = [page_name(each) for each in whole.commands] if not command.words else ["meshnode"]
    lines += [".SH SEE ALSO", ",\n".join(f"\\fB{_text(other)}\\fR(1)" for other in others)]
    return "\n".join(lines) + "\n"


def _synopsis(command: Command) -> list[str]:
    verb, rest = " ".join(("meshnode", *command.words)), command.usage
    if not command.words:
        return ["\\fBmeshnode\\fR [\\fB\\-\\-home\\fR \\fIDIR\\fR] \\fIVERB\\fR ..."]
    return [f"\\fB{_text(verb)}\\fR {_text(rest.removeprefix(verb).strip())}".rstrip()]


def _own(command: Command) -> list[str]:
    """Arguments and options that are this command's."""
    shown = [line for argument in command.arguments for line in _argument(argument)]
    shown += [line for option in command.options if not option.shared for line in _option(option)]
    return [".SS Arguments and options", *shown] if shown else []


def _notes(command: Command) -> Iterator[str]:
    """Exit codes, files, variables and examples, of its own verbs too."""
    for title, table in (("EXIT STATUS", EXITS), ("FILES", FILES), ("ENVIRONMENT", ENVIRONMENT)):
        told = [
            line
            for each in (command, *(command.commands if command.words else ()))
            for name, what in table.get(each.name, {}).items()
            for line in _entry(
                f"\\fB{_text(str(name))}\\fR", f"{what}" + (f" ({each.name})" if each is not command else "")
            )
        ]
        if told:
            yield f".SH {title}"
            yield from told
    if command.notes and command.words:
        yield ".SH NOTES"
        yield from _paragraphs(command.notes)
    examples = dict.fromkeys(
        line for each in (command, *(command.commands if command.words else ())) for line in examples_of(each.name)
    )
    if examples:
        yield from (".SH EXAMPLES", ".nf", *(_text(line) for line in examples), ".fi")


def _argument(argument: Argument) -> list[str]:
    return _entry(f"\\fI{_text(argument.name)}\\fR", argument.about)


def _option(option: Option) -> list[str]:
    flags = ", ".join(f"\\fB{_text(flag)}\\fR" for flag in option.flags)
    return _entry(flags + ("" if option.value is None else f" \\fI{_text(option.value)}\\fR"), option.about)


def _entry(term: str, text: str) -> list[str]:
    return [".TP", term, *_filled(text)]


def _paragraphs(text: str, *, first: bool = True) -> list[str]:
    """Paragraphs, and indented lines as they are."""
    lines: list[str] = []
    for number, paragraph in enumerate(text.strip().split("\n\n")):
        lines += [".PP"] if number or not first else []
        plain = [line for line in paragraph.split("\n") if not line.startswith(" ")]
        listed = [line for line in paragraph.split("\n") if line.startswith(" ")]
        lines += _filled(" ".join(plain))
        lines += [".nf", *(_text(line) for line in listed), ".fi"] if listed else []
    return lines


def _filled(text: str) -> list[str]:
    """Running text, in lines of a length that people edit."""
    lines = textwrap.wrap(" ".join(text.split()), _LINE, break_long_words=False, break_on_hyphens=False)
    return [_text(line) for line in lines]


def _text(text: str) -> str:
    """Text that roff reads as such: no escape, no request at the start of a line, hyphens that can be copied."""
    escaped = (
        text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("…", "...")
    )
    return f"\\&{escaped}" if escaped.startswith((".", "\\(aq")) else escaped
