"""SQLCipher, through the package `sqlcipher3`, which is imported where a database is encrypted."""

from __future__ import annotations

import importlib
from types import ModuleType

from meshnode.errors import UsageError


def sqlcipher() -> ModuleType:
    """The DB-API module. UsageError where the extra is not installed."""
    try:
        return importlib.import_module("sqlcipher3.dbapi2")
    except ImportError as error:
        raise UsageError(
            "the package that encrypts databases is not here: install the extra `meshnode[encrypted]`"
        ) from error
