"""Reads the vector files beside the tests, and the notation that they write values in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DIRECTORY = Path(__file__).parent.parent / "vectors"


def load(name: str) -> dict[str, Any]:
    """One vector file by its name without `.json`."""
    loaded: dict[str, Any] = json.loads((DIRECTORY / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


def value_of(noted: list[Any]) -> Any:
    """The value behind `["int", "1"]`, `["map", [[key, value], …]]` and the like."""
    kind, *rest = noted
    match kind:
        case "null":
            return None
        case "int":
            return int(rest[0])
        case "float":
            return float.fromhex(rest[0])
        case "bytes":
            return bytes.fromhex(rest[0])
        case "text" | "bool":
            return rest[0]
        case "array":
            return [value_of(item) for item in rest[0]]
        case "map":
            return {value_of(key): value_of(item) for key, item in rest[0]}
    raise ValueError(f"unknown kind of value {kind!r}")


def site_keys() -> dict[bytes, bytes]:
    """Site id to public key of the five sites that the vectors use."""
    return {bytes.fromhex(site["site_id"]): bytes.fromhex(site["public_key"]) for site in load("identity")["sites"]}


def seeds() -> dict[bytes, bytes]:
    """Site id to seed of the same sites."""
    return {bytes.fromhex(site["site_id"]): bytes.fromhex(site["seed"]) for site in load("identity")["sites"]}
