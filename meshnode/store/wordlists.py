"""Names that a person may be about to type, straight from the tables: for the completion of words, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

WORDS: Final = 500  # words of one kind; nobody reads more, and a peer may have made names without end

QUERIES: Final = {
    "tables": """\
SELECT CASE schema WHEN 'main' THEN name ELSE schema || '.' || name END
FROM meshnode_tables WHERE registered = 1 ORDER BY 1 LIMIT ?""",
    "members": """\
SELECT coalesce(nullif(peers.name, ''), nullif(keyring.name, ''), lower(substr(hex(keyring.site), 1, 8)))
FROM meshnode_keyring AS keyring LEFT JOIN meshnode_peers AS peers ON peers.site = keyring.site ORDER BY 1 LIMIT ?""",
    "conflicts": """\
SELECT lower(substr(hex(id), 1, 8)) FROM meshnode_conflicts WHERE status = 'open' ORDER BY no DESC LIMIT ?""",
    "notices": "SELECT CAST(no AS TEXT) FROM meshnode_notices WHERE acknowledged = 0 ORDER BY seq DESC LIMIT ?",
}


class Connection(Protocol):
    """As much of a DB-API connection as this needs."""

    def execute(self, sql: str, values: tuple[int], /) -> Iterable[tuple[object]]:
        """Run one statement."""


def words(connection: Connection, kind: str) -> list[str]:
    """Those of one kind that a terminal can show and a command line take as a word; a peer may have chosen them."""
    rows = connection.execute(QUERIES[kind], (WORDS,))
    found = (word for (word,) in rows if isinstance(word, str) and word.isprintable() and word.strip())
    return list(dict.fromkeys(word for word in found if not word.startswith("-")))
