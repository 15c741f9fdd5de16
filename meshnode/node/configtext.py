"""Settings as TOML: read with every fault and its line, written with what each is, changed and the rest left alone."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import msgspec

from meshnode.errors import ConfigError, UsageError
from meshnode.node.config import SETTINGS, Config, fault_of, setting_of

_HEAD = (
    "# Settings of this meshnode; a line `# name = value` shows a default. `meshnode config` shows and changes them."
)
_SWITCH = {"true": True, "on": True, "yes": True, "false": False, "off": False, "no": False}
_AT_LINE = re.compile(r"at line (\d+)")
_PLACE = re.compile(r" \(at [^)]*\)$")
_DIGITS = 9  # of a number on a command line: more are none of a setting, and int() has a bound of its own


@dataclass(frozen=True, slots=True)
class Said:
    """What a text says: every setting, and the names of those that stand in it."""

    config: Config
    named: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a text says nothing that can be used."""

    line: int  # from 1 on
    setting: str  # its name; empty where the text is no TOML
    reason: str


@dataclass(frozen=True, slots=True)
class _Statement:
    """One `name = value` at the top of a file, which may take several lines."""

    name: str
    first: int
    last: int


# --- reading


def said_in(text: str, source: str = "config.toml") -> Said:
    """TOML text to settings; raises ConfigError with the source's name and every fault."""
    faults = faults_in(text)
    if faults:
        raise ConfigError(f"{source}: " + "; ".join(f"line {fault.line}: {fault.reason}" for fault in faults))
    raw = tomllib.loads(text)
    return Said(msgspec.convert(raw, Config), frozenset(raw))


def parse_config(text: str, source: str = "config.toml") -> Config:
    """The settings alone."""
    return said_in(text, source).config


def faults_in(text: str) -> list[Fault]:
    """Everything that is wrong with a text, by lines."""
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        return [_no_toml(text, str(error))]
    reasons = {name: fault for name, value in raw.items() if (fault := fault_of(name, value)) is not None}
    if not reasons:
        return []
    lines: dict[str, int] = {}
    for statement in _statements(text.split("\n")):
        lines.setdefault(statement.name, statement.first + 1)
    return sorted(
        (Fault(lines.get(name, 1), name, reason) for name, reason in reasons.items()), key=lambda fault: fault.line
    )


def _no_toml(text: str, error: str) -> Fault:
    """The first place where a text is no TOML: its line once, and what is set there, where that can be told."""
    found = _AT_LINE.search(error)
    line = int(found[1]) if found else text.count("\n") + 1
    written = text.split("\n")[line - 1].partition("=")[0].strip()
    if written in SETTINGS and error.startswith("Cannot overwrite a value"):
        return Fault(line, written, f"{written} is set a second time: one of the two lines has to go")
    reason = _PLACE.sub("", error)
    return Fault(line, written if written in SETTINGS else "", f"not TOML: {reason[:1].lower()}{reason[1:]}")


def usable_in(text: str) -> Config:
    """What of a text that has faults can be used: what stands there for people who are told of a change."""
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return Config()
    return msgspec.convert({name: value for name, value in raw.items() if fault_of(name, value) is None}, Config)


def parsed_value(name: str, text: str) -> Any:
    """A value as it is written on a command line: lists as JSON or TOML; ConfigError where it is none of the setting.

    Whether the setting may be that is another question (`fault_of`).
    """
    setting = setting_of(name)
    if isinstance(setting.default, str):
        return text
    if isinstance(setting.default, bool):
        return _SWITCH.get(text.lower(), text)
    if isinstance(setting.default, int):
        return int(text) if re.fullmatch(rf"-?[0-9]{{1,{_DIGITS}}}", text, re.ASCII) else text
    return _parsed_list(text) if text.lstrip().startswith("[") else [text]


def parsed_values(words: list[str]) -> dict[str, Any]:
    """`KEY VALUE KEY VALUE …`; UsageError where it is something else.

    A list is one word of JSON or TOML, or all the words up to the next one that is the name of a setting.
    """
    values: dict[str, Any] = {}
    at = 0
    while at < len(words):
        name, texts = words[at], words[at + 1 : at + 2]
        setting = setting_of(name)
        if isinstance(setting.default, list) and texts and not texts[0].lstrip().startswith("["):
            texts += takewhile(lambda word: word not in SETTINGS, words[at + 2 :])
        if not texts:
            raise UsageError(f"{name} has no value: write KEY VALUE; an empty list is '[]'")
        if name in values:
            raise UsageError(f"{name} is named twice")
        values[name] = parsed_value(name, texts[0]) if len(texts) == 1 else texts
        at += 1 + len(texts)
    return values


def _parsed_list(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _statements(lines: list[str]) -> Iterator[_Statement]:
    """Those of a text that is TOML: each ends where what was read of it is TOML by itself.

    What a table holds is told as well: no setting is one, and every setting comes before it.
    """
    first = 0
    while first < len(lines):
        last, raw = first, _read(lines[first : first + 1])
        while raw is None and last + 1 < len(lines):
            last += 1
            raw = _read(lines[first : last + 1])
        if raw:
            yield _Statement(next(iter(raw)), first, last)
        first = last + 1


def _read(lines: list[str]) -> dict[str, Any] | None:
    try:
        return tomllib.loads("\n".join(lines) + "\n")
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


# --- writing


def config_text(config: Config) -> str:
    """A `config.toml` with what each setting is; those that differ from their default are set, the others comments."""
    parts = [_HEAD]
    for setting in SETTINGS.values():
        value = getattr(config, setting.name)
        mark = "# " if value == setting.default else ""
        parts.append(f"\n# {about_text(setting.name)}\n{mark}{setting.name} = {value_text(value)}")
    return "\n".join(parts) + "\n"


def about_text(name: str) -> str:
    """One line on a setting, as a fresh file has it."""
    setting = SETTINGS[name]
    return f"{setting.about[0].upper()}{setting.about[1:]}.{'' if setting.live else ' At the next start.'}"


def changed_text(text: str, values: Mapping[str, Any]) -> str:
    """A `config.toml` that says these settings otherwise; everything else stays as its owner wrote it.

    ConfigError where the text cannot be used as it is, or where that cannot be done.
    """
    wanted = msgspec.structs.replace(parse_config(text), **values)
    for name, value in values.items():
        text = _changed(text, name, value)
    try:
        done = parse_config(text) == wanted
    except ConfigError:
        done = False
    if not done:
        raise ConfigError(f"config.toml cannot be changed by itself: set {', '.join(values)} there, and save it")
    return text


def _changed(text: str, name: str, value: Any) -> str:
    lines, fresh = text.split("\n"), f"{name} = {value_text(value)}"
    for statement in _statements(lines):
        if statement.name == name:
            lines[statement.first : statement.last + 1] = [fresh + _comment(lines[statement.last], statement, name)]
            return "\n".join(lines)
    for at, line in enumerate(lines):
        if _shows_default(line, name):
            lines[at] = fresh
            return "\n".join(lines)
    end = len(lines) - (lines[-1] == "")
    return "\n".join([*lines[:end], fresh, ""])


def _comment(line: str, statement: _Statement, name: str) -> str:
    """What stands behind a value on its one line, the end of a Windows line too."""
    if statement.first == statement.last:
        for at, character in enumerate(line):
            if character == "#" and _read([line[:at]]):
                return line[len(line[:at].rstrip()) :]
    return "\r" if line.endswith("\r") else ""


def _shows_default(line: str, name: str) -> bool:
    before, equals, _ = line.lstrip("# \t").partition("=")
    return line.lstrip().startswith("#") and bool(equals) and before.strip() == name


def value_text(value: Any) -> str:
    """A value as TOML has it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(value_text(item) for item in value) + "]"
    if isinstance(value, str):
        return '"' + "".join(_toml_character(character) for character in value) + '"'
    return str(value)


def _toml_character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    return character if character.isprintable() else f"\\U{ord(character):08x}"
