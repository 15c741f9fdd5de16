"""Scopes: which tables a peer wants, as patterns where the last match decides (profile §8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from meshnode.errors import ProtocolError
from meshnode.limits import NAME_BYTES

WILDCARD: Final = "*"
GAINS_LOOKED_AT: Final = 4096  # combinations of mentioned schemas and tables that two scopes are compared over
_EVERYTHING: Final = ("*.*",)


def _parse_pattern(pattern: object) -> tuple[str, str, bool]:
    """Schema, table and whether it lets in."""
    if type(pattern) is not str:
        raise ProtocolError("a scope pattern is text")
    excludes = pattern.startswith("!")
    schema, dot, table = pattern[excludes:].partition(".")
    if not dot:
        raise ProtocolError("a scope pattern is schema.table, each an exact name or *")
    for part in (schema, table):
        size = len(part.encode())
        # An asterisk inside a longer part would be globbing, which does not exist.
        if not 0 < size <= NAME_BYTES or (WILDCARD in part and part != WILDCARD):
            raise ProtocolError("a scope pattern is schema.table, each an exact name or *")
    return schema, table, not excludes


@dataclass(frozen=True, slots=True)
class Scope:
    """A list of patterns, kept as it was given; the empty list means everything."""

    patterns: tuple[str, ...] = ()
    _rules: tuple[tuple[str, str, bool], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # Latest first, so that the first match decides.
        rules = [_parse_pattern(pattern) for pattern in (self.patterns or _EVERYTHING)]
        object.__setattr__(self, "_rules", tuple(reversed(rules)))

    def contains(self, schema: str, table: str) -> bool:
        """Whether events of this table are in scope; names match byte for byte."""
        for rule_schema, rule_table, lets_in in self._rules:
            if rule_schema in (WILDCARD, schema) and rule_table in (WILDCARD, table):
                return lets_in
        return False

    def text(self) -> str:
        """One line that names it, the same for scopes with the same patterns."""
        return " ".join(self.patterns or _EVERYTHING)

    def names(self) -> tuple[set[str], set[str]]:
        """The schemas and the tables that its patterns name, wildcards among them."""
        return {rule[0] for rule in self._rules} | {WILDCARD}, {rule[1] for rule in self._rules} | {WILDCARD}


def gained(before: Scope, after: Scope) -> list[tuple[str, str]]:
    """What `after` lets in and `before` did not, as (schema, table) with `*` for every name that neither mentions.

    Patterns tell only the names that they mention from all others, so one name that nobody mentions stands for the
    rest: the wildcard itself is such a name, since no event is about it. Beyond a bound the answer is everything.
    """
    if before.patterns == after.patterns:
        return []
    schemas, tables = (one | other for one, other in zip(before.names(), after.names(), strict=True))
    if len(schemas) * len(tables) > GAINS_LOOKED_AT:
        return [(WILDCARD, WILDCARD)]
    pairs = [(schema, table) for schema in sorted(schemas) for table in sorted(tables)]
    found = [pair for pair in pairs if after.contains(*pair) and not before.contains(*pair)]
    return [pair for pair in found if not any(_covers(other, pair) for other in found if other != pair)]


def _covers(wide: tuple[str, str], narrow: tuple[str, str]) -> bool:
    return all(one in (WILDCARD, other) for one, other in zip(wide, narrow, strict=True))


def parse_scope_untrusted(patterns: Sequence[object]) -> Scope:
    """The scope that a peer's `hello` names; ProtocolError for any other form."""
    return Scope(tuple(pattern for pattern in patterns if _parse_pattern(pattern)))  # type: ignore[misc]
