"""Words from the node's database while somebody types: at once or not at all, and without a trace.

Of a file that no program has open nothing is locked or made (`immutable`). An encrypted one is left alone: its key may
be under a passphrase.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from meshnode.node.homepath import DATABASE, default_home
from meshnode.store.wordlists import words

_HEADER = b"SQLite format 3\x00"


def words_of(kind: str, home: str | None) -> list[str]:
    """Those that there are; none where anything is not as it should be: nobody asked for an answer by name."""
    try:
        path = _database(Path(home).expanduser().absolute() if home else default_home())
        with path.open("rb") as file:
            if file.read(len(_HEADER)) != _HEADER:
                return []
        alone = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro{alone}", uri=True, timeout=0)) as connection:
            return words(connection, kind)
    except Exception:  # a damaged file, a strange setting, a word that is no kind: a shell waits, and shows nothing
        return []


def _database(home: Path) -> Path:
    """As the settings say, which are only read where they may."""
    text = (home / "config.toml").read_text(encoding="utf-8") if (home / "config.toml").exists() else ""
    named = ""
    if "database" in text:
        import tomllib

        named = str(tomllib.loads(text).get("database", ""))
    return (home / Path(named).expanduser()).absolute() if named else home / DATABASE
