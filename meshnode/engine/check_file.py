"""What SQLite says of its own file; what it says of values is asked of the table again before it counts.

SQLite 3.40.0 to 3.41.0 reads the wrong column of a WITHOUT ROWID table whose key is not declared first, and then takes
sound rows for damaged ones.
"""

from __future__ import annotations

import re
from types import ModuleType
from typing import Final

from meshnode.engine.findings import Findings
from meshnode.store.affinity import reads_as_number
from meshnode.store.database import Tx
from meshnode.store.materialize import is_row_level
from meshnode.store.tables import quote

_LINES: Final = 1_000_000  # told by one check: mistaken ones are a line per row, and must not crowd out the others
_CLAIM: Final = re.compile(r"(NULL|NUMERIC|TEXT|non-[A-Z]+) value in (.+)\Z", re.DOTALL)
_TYPES: Final = {
    "NULL": ("null",),
    "NUMERIC": ("integer", "real"),
    "TEXT": ("text",),
    "non-INT": ("real", "text", "blob"),
    "non-INTEGER": ("real", "text", "blob"),
    "non-REAL": ("integer", "text", "blob"),
    "non-TEXT": ("integer", "real", "blob"),
    "non-BLOB": ("integer", "real", "text"),
}


def check_file(tx: Tx, sqlite: ModuleType, findings: Findings) -> None:
    """The database file by itself."""
    mistaken: set[str] = set()  # at most a few per column: the lines name no row
    for line in _lines(tx, sqlite, findings):
        if line == "ok" or line in mistaken:
            continue
        if _is_mistaken(tx, line):
            mistaken.add(line)
        else:
            findings.differ("", "database file", line)


def _lines(tx: Tx, sqlite: ModuleType, findings: Findings) -> list[str]:
    """What SQLite says of the file; table by table where an index needs a function or collation of the application."""
    try:
        return [line for (line,) in tx.execute(f"PRAGMA integrity_check({_LINES})")]
    except sqlite.Error as error:
        if not is_row_level(error):
            raise
    lines = []
    for (name,) in tx.execute("SELECT name FROM main.sqlite_master WHERE type = 'table' ORDER BY name").fetchall():
        try:
            lines += [line for (line,) in tx.execute(f"PRAGMA main.integrity_check({quote(name)})")]
        except sqlite.Error as error:
            if not is_row_level(error):
                raise
            findings.differ(name, "database file", f"the table and its indexes cannot be checked here: {error}")
    return lines


def _is_mistaken(tx: Tx, line: str) -> bool:
    """Whether the line claims a value of a type in a column that has none of it."""
    claim = _CLAIM.match(line)
    if claim is None or claim[1] not in _TYPES:
        return False
    column = tx.execute(
        "SELECT t.name, c.name FROM pragma_table_list AS t JOIN pragma_table_xinfo(t.name) AS c "
        "WHERE t.schema = 'main' AND t.name || '.' || c.name = ?",
        (claim[2],),
    ).fetchone()
    if column is None:
        return False
    table, name = map(quote, column)
    types = ", ".join(repr(each) for each in _TYPES[claim[1]])
    found = tx.execute(f"SELECT {name} FROM main.{table} NOT INDEXED WHERE typeof({name}) IN ({types})")  # noqa: S608
    # In a numeric column text is wrong where it reads as a number, and only there.
    return not any(claim[1] != "TEXT" or (isinstance(value, str) and reads_as_number(value)) for (value,) in found)
