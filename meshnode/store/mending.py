"""SQL that makes a destination of a table that cannot be one: what a refusal tells its reader to run (profile §5).

SQLite changes no constraint in place, so the table is made again from its own text, in which only what is refused is
another; rows, indexes and triggers are kept. It is one line, and runs as it stands, all of it or nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Final, NamedTuple

from meshnode.store.database import Tx, UnreadableText
from meshnode.store.shapes import Shape
from meshnode.store.tables import quote

_TOKEN: Final = re.compile(
    r"""--[^\n]*|/\*.*?(?:\*/|\Z)|\s+|'(?:[^']|'')*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^]]*\]|[\w$]+|.""", re.DOTALL
)
_BLANK: Final = re.compile(r"--|/\*|\s")
_UNIQUE_INDEX: Final = re.compile(r"\s*CREATE\s+UNIQUE\s+INDEX\b", re.IGNORECASE)
_CONSTRAINTS: Final = frozenset(("CONSTRAINT", "PRIMARY", "UNIQUE", "CHECK", "FOREIGN"))
_CLOSING: Final = {'"': '"', "`": "`", "[": "]", "'": "'"}
_RANDOM_ID: Final = "TEXT NOT NULL DEFAULT (lower(hex(randomblob(16))))"


class Token(NamedTuple):
    """One word, quoted name, string or sign of an SQL text."""

    start: int
    end: int
    text: str
    depth: int  # of the parentheses that it is in

    def is_word(self, word: str) -> bool:
        """Whether it is this keyword."""
        return self.text.upper() == word

    @property
    def name(self) -> str:
        """The name that it spells."""
        closing = _CLOSING.get(self.text[0])
        return self.text if closing is None else self.text[1:-1].replace(closing * 2, closing)


class Edit(NamedTuple):
    """Other text in place of a part of a text."""

    start: int
    end: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Definition:
    """The text of a CREATE TABLE: where its list of columns and constraints is, and what is in it."""

    start: int  # of the list, its parenthesis included
    end: int
    items: tuple[tuple[Token, ...], ...]  # each with the comma before it, where there is one

    def columns(self) -> Iterator[Sequence[Token]]:
        """The definitions of columns, without their commas."""
        return (tokens for tokens in map(_bare, self.items) if tokens[0].text.upper() not in _CONSTRAINTS)

    def constraints(self, kind: str) -> list[Sequence[Token]]:
        """The constraints of the table of this kind."""
        return [
            item
            for item in self.items
            if _bare(item)[0].text.upper() in _CONSTRAINTS and any(each.is_word(kind) for each in _kind(_bare(item)))
        ]

    def without(self, left_out: Sequence[Sequence[Token]]) -> Iterator[Edit]:
        """The list without these items; what follows them has a comma before it, its own or one of theirs."""
        spare: list[Token] = []
        for item in self.items:
            has_comma = item[0].text == ","
            if item in left_out:
                yield _out(_bare(item))
                spare += item[:1] if has_comma else ()
                continue
            if not has_comma:
                del spare[:1]
            yield from (_out([comma]) for comma in spare)
            spare.clear()
        yield from (_out([comma]) for comma in spare)


def _bare(item: Sequence[Token]) -> Sequence[Token]:
    return item[1:] if item[0].text == "," else item


def _kind(constraint: Sequence[Token]) -> Sequence[Token]:
    return constraint[2:3] if constraint[0].is_word("CONSTRAINT") else constraint[:1]


def _out(tokens: Sequence[Token]) -> Edit:
    """Leave these tokens out, and what is between them."""
    return Edit(tokens[0].start, tokens[-1].end)


# --- what mends what


def plain_index(tx: Tx, table: str, index: str) -> str:
    """The same index, not unique; or the table made again where it is a constraint of the table."""
    sql = tx.execute("SELECT sql FROM main.sqlite_master WHERE type = 'index' AND name = ?", (index,)).fetchone()[0]
    if sql is not None:
        return f"DROP INDEX {quote(index)}; {_plain(written(sql))}"
    return _again(tx, table, lambda definition: list(_without_unique(definition)))


def binary_key(tx: Tx, table: str, key: Iterable[str]) -> str:
    """The same table, with keys that are compared byte for byte."""
    names = {name.lower() for name in key}

    def edit(definition: Definition) -> list[Edit]:
        columns = [item for item in definition.columns() if item[0].name.lower() in names]
        listed = definition.constraints("PRIMARY")
        return [each for item in (*columns, *listed) for each in _without_collation(item)]

    return _again(tx, table, edit)


def own_key(tx: Tx, table: str, column: str, known: Shape | None) -> str:
    """The same table, with a key that SQLite does not number: of the type that it had, or with random ids."""
    had = None if known is None else next((declared for name, declared in known.key if name == column), None)
    declared = "INT" if had == "INTEGER" else had

    def edit(definition: Definition) -> list[Edit]:
        kinds = [item[1] for item in definition.columns() if item[0].name.lower() == column.lower()]
        numbered = [token for item in definition.items for token in item if token.is_word("AUTOINCREMENT")]
        typed = [Edit(kind.start, kind.end, _RANDOM_ID if declared is None else declared) for kind in kinds]
        return [*typed, *(_out([token]) for token in numbered)]

    return _again(tx, table, edit, leave_out=column if declared is None else None)


def keyed(tx: Tx, table: str, known: Shape | None) -> str:
    """The same table, with the key that it had, or with another column of random ids as its key."""
    names = [row[0] for row in _columns(tx, table)]

    def edit(definition: Definition) -> list[Edit]:
        edits = list(definition.without(definition.constraints("PRIMARY")))
        if known is not None and {name for name, _ in known.key} <= set(names):
            listed = ", ".join(quote(name) for name, _ in known.key)
            return [*edits, Edit(definition.end - 1, definition.end - 1, f", PRIMARY KEY ({listed})")]
        own = f"{quote(_free(names, 'id'))} {_RANDOM_ID} PRIMARY KEY, "
        return [*edits, Edit(definition.start + 1, definition.start + 1, own)]

    return _again(tx, table, edit)


def in_place_of_view(view: str, known: Shape | None) -> str:
    """A table in place of a view, which holds nothing."""
    return f"BEGIN; DROP VIEW main.{quote(view)}; {_created_as(view, known)}; COMMIT"


def in_place_of_virtual(tx: Tx, table: str, known: Shape | None) -> str:
    """A table in place of a virtual one, which gets another name."""
    other = _free(_names(tx), f"{table}_virtual")
    moved = f"ALTER TABLE main.{quote(table)} RENAME TO {quote(other)}"
    return f"BEGIN; {moved}; {_created_as(table, known)}; COMMIT"


def created(name: str, known: Shape) -> str:
    """The table that there was."""
    strict = any(kind is not None for _, kind in known.columns.values())
    columns = [*known.key, *((column, declared) for column, (declared, _) in known.columns.items())]
    listed = [f"{quote(column)} {declared}".rstrip() for column, declared in columns]
    key = ", ".join(quote(column) for column, _ in known.key)
    options = "STRICT, WITHOUT ROWID" if strict else "WITHOUT ROWID"
    return f"CREATE TABLE main.{quote(name)} ({', '.join(listed)}, PRIMARY KEY ({key})) {options}"


def renamed(tx: Tx, found: str, name: str) -> str:
    """Another name that differs in letter case alone: SQLite takes the two for one."""
    between = quote(_free(_names(tx), f"{name}_renamed"))
    return f"ALTER TABLE {quote(found)} RENAME TO {between}; ALTER TABLE {between} RENAME TO {quote(name)}"


def renamed_column(tx: Tx, table: str, column: str, size: int) -> str:
    """A column's name cut to fewer than `size` bytes."""
    names = [row[0] for row in _columns(tx, table)]
    cut = _free(names, column.encode()[: size // 2].decode(errors="ignore") or "unnamed")
    return f"ALTER TABLE {quote(table)} RENAME COLUMN {quote(column)} TO {quote(cut)}"


# --- how


def _again(tx: Tx, table: str, edit: Callable[[Definition], list[Edit]], *, leave_out: str | None = None) -> str:
    """Copy the rows, make the table again with its text edited, put the rows back, and make what belonged to it."""
    sql = tx.execute("SELECT sql FROM main.sqlite_master WHERE type = 'table' AND name = ?", (table,))
    sql = written(sql.fetchone()[0])
    definition = _parse(sql)
    body = _edited(sql, edit(definition), definition.start)
    kept = ", ".join(quote(name) for name, _ in _columns(tx, table) if name != leave_out)
    copy = f"temp.{quote(table + '_rows')}"
    found = tx.execute(
        "SELECT sql FROM main.sqlite_master WHERE type IN ('index', 'trigger') AND tbl_name = ? COLLATE NOCASE "
        "AND sql IS NOT NULL ORDER BY rowid",
        (table,),
    )
    return "; ".join(
        (
            "BEGIN",
            f"CREATE TABLE {copy} AS SELECT {kept} FROM main.{quote(table)}",  # noqa: S608  # nothing here runs it
            f"DROP TABLE main.{quote(table)}",
            f"CREATE TABLE main.{quote(table)} {_one_line(body)}",
            f"INSERT INTO main.{quote(table)} ({kept}) SELECT {kept} FROM {copy}",  # noqa: S608
            f"DROP TABLE {copy}",
            *(_plain(written(each)) for (each,) in found),
            "COMMIT",
        )
    )


def _created_as(name: str, known: Shape | None) -> str:
    """The table that there was, or one to which columns are to be added."""
    return f"CREATE TABLE main.{quote(name)} (id {_RANDOM_ID} PRIMARY KEY)" if known is None else created(name, known)


def _plain(sql: str) -> str:
    """What makes an index that is not unique, or anything else, again."""
    return _one_line(_UNIQUE_INDEX.sub("CREATE INDEX", sql, count=1))


def _one_line(sql: str) -> str:
    """The same text where a line goes on to the end."""
    return "".join(_in_line(match[0]) for match in _TOKEN.finditer(sql))


def _in_line(text: str) -> str:
    if text.startswith("--"):
        return f"/*{text[2:].replace('*/', '* /')} */"
    return " " if text.isspace() else text


def _without_unique(definition: Definition) -> Iterator[Edit]:
    yield from definition.without(definition.constraints("UNIQUE"))
    for item in definition.columns():
        for at, token in enumerate(item):
            if token.depth == 1 and token.is_word("UNIQUE"):
                first = at - 2 if item[at - 2].is_word("CONSTRAINT") else at
                last = at + 3 if [each.text.upper() for each in item[at + 1 : at + 3]] == ["ON", "CONFLICT"] else at
                yield _out(item[first : last + 1])


def _without_collation(item: Sequence[Token]) -> Iterator[Edit]:
    for at, token in enumerate(item):
        if token.is_word("COLLATE"):
            yield _out(item[at : at + 2])


def _columns(tx: Tx, table: str) -> list[tuple[str, str]]:
    """What can be written into: neither generated nor hidden."""
    found = tx.execute("SELECT name, type FROM pragma_table_xinfo(?, 'main') WHERE hidden = 0", (table,))
    return [(name, declared or "") for name, declared in found]


def written(sql: str | UnreadableText) -> str:
    """What `sqlite_master` has of an object; a comment, say, that is not UTF-8 keeps nobody from reading the rest."""
    return sql if isinstance(sql, str) else sql.decode(errors="replace")


def _names(tx: Tx) -> list[str]:
    return [name for (name,) in tx.execute("SELECT name FROM main.sqlite_master")]


def _free(taken: Iterable[str], wanted: str) -> str:
    """A name that nothing has, in any letter case."""
    names = {name.lower() for name in taken}
    candidates = (wanted if number == 1 else f"{wanted}_{number}" for number in count(1))
    return next(name for name in candidates if name.lower() not in names)


def _edited(sql: str, edits: Iterable[Edit], start: int) -> str:
    parts, at = [], start
    for edit in sorted(edits):
        parts += [sql[at : edit.start], edit.text]
        at = edit.end
    return "".join([*parts, sql[at:]])


def _parse(sql: str) -> Definition:
    """Find the columns and constraints in a text that SQLite itself has taken before."""
    inside = [token for token in _tokens(sql) if token.depth]
    items: list[list[Token]] = [[]]
    for token in inside[1:-1]:
        if token.depth == 1 and (token.text == "," or _begins_constraint(token, items[-1])):
            items.append([])
        items[-1].append(token)
    return Definition(inside[0].start, inside[-1].end, tuple(tuple(item) for item in items))


def _begins_constraint(token: Token, item: Sequence[Token]) -> bool:
    """Constraints of a table need no comma between them."""
    before = _bare(item) if item else ()
    if not before or before[0].text.upper() not in _CONSTRAINTS or token.text.upper() not in _CONSTRAINTS:
        return False
    named = before[0].is_word("CONSTRAINT") and len(before) == 2
    return not named or token.is_word("CONSTRAINT")


def _tokens(sql: str) -> Iterator[Token]:
    """What is no blank and no comment; a parenthesis is as deep as what it holds."""
    depth = 0
    for match in _TOKEN.finditer(sql):
        text = match[0]
        if _BLANK.match(text):
            continue
        depth += text == "("
        yield Token(match.start(), match.end(), text, depth)
        depth -= text == ")"
