"""One field of a peer's frame to one value, checked: types, sizes, ranges (profile §8, §10).

Everything here takes what a peer sent and raises ProtocolError alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from meshnode.errors import CloseCode, ProtocolError
from meshnode.model.hlc import U64_MAX, Hlc

Read: TypeAlias = Callable[[Any], Any]


def byte_string(*lengths: int) -> Read:
    """A byte string of one of these lengths."""

    def read(value: Any) -> bytes:
        if type(value) is not bytes or len(value) not in lengths:
            raise ProtocolError(f"not a byte string of {' or '.join(map(str, lengths))} bytes")
        return value

    return read


def unsigned(least: int = 0, most: int = U64_MAX) -> Read:
    """An unsigned integer in a range, both ends included."""

    def read(value: Any) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ProtocolError(f"not an unsigned integer from {least} to {most}")
        return value

    return read


def text(most: int, least: int = 0) -> Read:
    """Text whose UTF-8 has a number of bytes in a range; bytes count, not letters."""

    def read(value: Any) -> str:
        if type(value) is not str or not least <= len(value.encode()) <= most:
            raise ProtocolError(f"not text of {least} to {most} bytes")
        return value

    return read


def array(read_item: Read) -> Read:
    """An array of any length, as a tuple."""

    def read(value: Any) -> tuple[Any, ...]:
        if type(value) is not list:
            raise ProtocolError("not an array")
        return tuple([read_item(item) for item in value])

    return read


def mapping(read_key: Read, read_value: Read, most: int = U64_MAX) -> Read:
    """A map with any keys of one shape; more than `most` entries are a limit, not nonsense."""

    def read(value: Any) -> dict[Any, Any]:
        if type(value) is not dict:
            raise ProtocolError("not a map")
        if len(value) > most:
            raise ProtocolError(f"a map of {len(value)} entries is larger than {most}", CloseCode.LIMIT)
        return {read_key(key): read_value(item) for key, item in value.items()}

    return read


u64: Final = unsigned()


def hlc(value: Any) -> Hlc:
    """A clock reading `[physical, logical]`; how far ahead it is, is for the session to judge."""
    if type(value) is not list or len(value) != 2:
        raise ProtocolError("not a pair of physical and logical time")
    return Hlc(u64(value[0]), u64(value[1]))


def byte_strings(value: Any) -> list[bytes]:
    """An array of byte strings, as it is."""
    # An entry that is no byte string is the link's fault; one that is no event is only `malformed` (profile §8).
    if type(value) is not list or not set(map(type, value)) <= {bytes}:
        raise ProtocolError("not an array of byte strings")
    return value


def struct(kind: type[Any], reads: Mapping[str, Read], *, open_ended: bool = False) -> Read:
    """Read a map with exactly these keys into `kind`; an open-ended one may have more, which are ignored."""

    def read(value: Any) -> Any:
        if type(value) is not dict or not reads.keys() <= value.keys():
            raise ProtocolError(f"not a map with the keys {', '.join(reads)}")
        if len(value) > len(reads) and not open_ended:
            raise ProtocolError(f"a map with other keys than {', '.join(reads)}")
        fields: dict[str, Any] = {}
        for name, read_field in reads.items():
            try:
                fields[name] = read_field(value[name])
            except ProtocolError as error:
                raise ProtocolError(f"{name}: {error}", error.code) from None
        return kind(**fields)

    return read


def optional(read_value: Read) -> Read:
    """Null, or a value."""
    return lambda value: None if value is None else read_value(value)
