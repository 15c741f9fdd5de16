"""Every operation of the control API, by the subject that its module is about."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any, Final

from meshnode.control.operation import Operation
from meshnode.control.operations import apps, conflicts, log, members, node, pairing, tables

SUBJECTS: Final = (node, tables, apps, conflicts, members, pairing, log)


def declared(module: ModuleType) -> list[Operation[Any, Any]]:
    """The operations of one subject, as they stand in its module."""
    return [value for value in vars(module).values() if isinstance(value, Operation)]


def _by_path() -> dict[str, Operation[Any, Any]]:
    every = [operation for module in SUBJECTS for operation in declared(module)]
    found = {operation.path: operation for operation in every}
    if len(found) != len(every):
        raise ValueError("two operations of one name")
    return found


OPERATIONS: Final[Mapping[str, Operation[Any, Any]]] = MappingProxyType(_by_path())
"""By path."""
