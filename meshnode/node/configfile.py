"""`config.toml` on the disk: changed whole or not at all, and never over what somebody else wrote meanwhile."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshnode.errors import ConfigError, reason_of
from meshnode.limits import CONFIG_BYTES
from meshnode.node.config import Config, with_settings
from meshnode.node.configtext import Said, changed_text, config_text, parse_config, said_in, usable_in
from meshnode.node.private import open_file, write_private

ATTEMPTS = 5  # at changing a file that another program, an editor for instance, changes at the same time


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a file said, and says now."""

    before: Config
    after: Said


class _MovedOnError(Exception):
    """The file is not any more what the change was made of."""


def load_said(path: Path) -> Said:
    """What a configuration file says; one that does not exist is all defaults. ConfigError names file and setting."""
    text = read_text(path)
    return Said(Config()) if text is None else said_in(text, str(path))


def load_config(path: Path) -> Config:
    """The settings alone."""
    return load_said(path).config


def read_text(path: Path) -> str | None:
    """The file as it is, None where there is none."""
    data = _read(path)
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"cannot read {path}: {reason_of(error)}") from error


def change_settings(path: Path, values: Mapping[str, Any]) -> FileChange:
    """Say these settings otherwise; ConfigError for what they cannot be, or where nothing can be written."""
    fresh = with_settings(Config(), values)

    def edit(kept: str | None) -> tuple[Config, str]:
        if kept is None:
            return Config(), config_text(fresh)
        return parse_config(kept, str(path)), changed_text(kept, values)

    return _change(path, edit)


def replace_settings(path: Path, text: str) -> FileChange:
    """Put this text in place of the file, whatever that says; ConfigError where it cannot be used."""
    said_in(text)
    return _change(path, lambda kept: (Config() if kept is None else usable_in(kept), text))


def _change(path: Path, edit: Callable[[str | None], tuple[Config, str]]) -> FileChange:
    for _ in range(ATTEMPTS):
        kept = read_text(path)
        before, text = edit(kept)
        with suppress(_MovedOnError):
            if text != kept:
                _write(path, kept, text)
            return FileChange(before, said_in(text))
    raise ConfigError(f"{path} is being changed by another program: nothing was written, try again")


def _write(path: Path, kept: str | None, text: str) -> None:
    """A link stays one: the file that it leads to is replaced."""
    if len(text.encode()) > CONFIG_BYTES:
        raise ConfigError(f"{path} would have more than {CONFIG_BYTES} bytes: nothing was written")
    target = Path(os.path.realpath(path))
    try:
        writable = target.stat().st_mode & stat.S_IWUSR
    except OSError:
        writable = 1  # there is none yet, or whoever writes is told why not
    if not writable:
        raise ConfigError(f"{path} is read-only, so it stays as it is: `chmod u+w {target}` lets it be changed")

    def still_so() -> None:
        if _read(path) != (None if kept is None else kept.encode()):
            raise _MovedOnError

    write_private(target, text.encode(), ready=still_so)


def _read(path: Path) -> bytes | None:
    try:
        with open_file(path) as file:
            data = file.read(CONFIG_BYTES + 1)
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise ConfigError(f"{path.parent} is no folder, and the home of a node is one: name another") from error
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {reason_of(error)}") from error
    if len(data) > CONFIG_BYTES:
        raise ConfigError(f"{path} has more than {CONFIG_BYTES} bytes: that is no configuration")
    return data
