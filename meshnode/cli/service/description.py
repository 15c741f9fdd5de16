"""What a service runs, as a frozen value: each system's file is made of it, and read back into it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from meshnode.errors import UsageError

_NAME_DIGITS = 8  # of the digest of a home's path in a name: two homes of one person never share them by chance
_CARRIED = ("PYTHONPATH",)  # without it the program that installs the service might not be found again
_LEVEL, _DESCRIPTOR = "--log-level", "--passphrase-fd"


@dataclass(frozen=True, slots=True)
class Service:
    """`usual` says that the home is the platform's own; a service of any other home has a name with a digest."""

    program: tuple[str, ...]
    home: str
    usual: bool
    log_level: str | None = None
    passphrase_file: str | None = None
    environment: tuple[tuple[str, str], ...] = ()

    @property
    def instance(self) -> str:
        """What tells this home's service from others; empty for the usual home."""
        return "" if self.usual else hashlib.sha256(self.home.encode()).hexdigest()[:_NAME_DIGITS]

    @property
    def command(self) -> tuple[str, ...]:
        """The words that run the node: what is in the passphrase file is its standard input."""
        level = () if self.log_level is None else (_LEVEL, self.log_level)
        descriptor = () if self.passphrase_file is None else (_DESCRIPTOR, "0")
        return (*self.program, "--home", self.home, "up", *level, *descriptor)


def program_of(executable: str) -> tuple[str, ...]:
    """The interpreter that runs now, with this package; `-P`, since the folder that it starts in is not to be searched.

    The path is not resolved: a virtual environment is found by the name of its own link to the interpreter.
    """
    if not executable:
        raise UsageError("the interpreter does not know its own path: install meshnode in a virtual environment")
    return (executable, "-P", "-m", "meshnode")


def carried(environment: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables that a service has to have as they are now."""
    return tuple((name, environment[name]) for name in _CARRIED if environment.get(name))


def described(
    command: Sequence[str], *, usual: bool, passphrase_file: str | None, environment: Sequence[tuple[str, str]]
) -> Service | None:
    """The service whose command this is; None where the command is none of ours."""
    if "--home" not in command:
        return None
    at = command.index("--home")
    rest = list(command[at + 3 :])
    level = rest[rest.index(_LEVEL) + 1] if _LEVEL in rest[:-1] else None
    program, home = tuple(command[:at]), "".join(command[at + 1 : at + 2])
    found = Service(program, home, usual, level, passphrase_file, tuple(environment))
    return found if found.command == tuple(command) else None


def refuse_unwritable(service: Service) -> None:
    """UsageError for a word that a line of a file cannot hold: such a path is a mistake, or made to add lines."""
    words = [*service.command, service.passphrase_file or "", *(text for pair in service.environment for text in pair)]
    for word in words:
        if any(ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0 for character in word):
            raise UsageError(f"{word!r} has a line break or control character in it: a service cannot be told of it")
        try:
            word.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{word!r} is not UTF-8: a service cannot be told of it") from None
