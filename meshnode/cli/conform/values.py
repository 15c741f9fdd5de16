"""The vectors' own notation of values: `["int","1"]`, `["float","0x1.8p+0"]`, `["map",[[k,v],…]]` and the like."""

from __future__ import annotations

from typing import Any

from meshnode.model.hlc import Hlc


def value_of(noted: list[Any]) -> Any:
    """The value that the notation stands for."""
    kind, *rest = noted
    if kind == "null":
        return None
    body = rest[0]
    match kind:
        case "int":
            return int(body)
        case "float":
            return float.fromhex(body)
        case "text" | "bool":
            return body
        case "bytes":
            return bytes.fromhex(body)
        case "array":
            return [value_of(item) for item in body]
        case "map":
            return {value_of(name): value_of(item) for name, item in body}
        case _:
            raise ValueError(f"{kind!r} is no kind of value in the vectors' notation")


def same(left: Any, right: Any) -> bool:
    """Whether two values are one to CBOR: 1, 1.0 and true differ, and so do 0.0 and -0.0."""
    if type(left) is not type(right):
        return False
    if isinstance(left, float):
        return bool(left.hex() == right.hex())
    if isinstance(left, list):
        return bool(len(left) == len(right) and all(map(same, left, right)))
    if isinstance(left, dict):
        named = {(type(name), name) for name in left} == {(type(name), name) for name in right}
        return bool(named and all(same(item, right[name]) for name, item in left.items()))
    return bool(left == right)


def hlc_of(pair: list[int]) -> Hlc:
    """`[physical, logical]`."""
    return Hlc(pair[0], pair[1])
