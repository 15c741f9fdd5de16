"""Scope patterns (profile §8): exact names or `*`, `!` excludes, the last match decides, nothing matched is out."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.laws import law

from meshnode.errors import ProtocolError
from meshnode.model.scope import Scope, gained, parse_scope_untrusted


@pytest.mark.parametrize(
    ("patterns", "schema", "table", "inside"),
    [
        ([], "any", "thing", True),
        (["*.*"], "any", "thing", True),
        (["main.*"], "main", "notes", True),
        (["main.*"], "Main", "notes", False),
        (["main.*"], "other", "notes", False),
        (["*.notes"], "other", "notes", True),
        (["*.notes"], "other", "Notes", False),
        (["main.notes"], "main", "notes", True),
        (["main.*", "!main.secret"], "main", "secret", False),
        (["main.*", "!main.secret"], "main", "open", True),
        (["!main.secret", "main.*"], "main", "secret", True),
        (["!main.secret"], "main", "open", False),
        (["*.*", "!*.*", "main.notes"], "main", "notes", True),
        (["*.*", "!*.*", "main.notes"], "main", "other", False),
        (["main.a.b"], "main", "a.b", True),  # split at the first dot
        (["main.a.b"], "main.a", "b", False),
        (["main.!x"], "main", "!x", True),
        (["!!a.b", "a.*"], "a", "b", True),  # excludes schema `!a`
    ],
)
def test_contains(patterns: list[str], schema: str, table: str, inside: bool) -> None:
    assert parse_scope_untrusted(patterns).contains(schema, table) is inside


@pytest.mark.parametrize(
    "pattern",
    [
        *("", "!", "main", ".", "main.", ".notes", "!main", "!.", "*"),
        *("ma*.notes", "main.no*", "main.a*b", "**.*", "main.**"),
        *("x" * 129 + ".t", "s." + "é" * 65),
        *(1, None, b"*.*", ["*.*"]),
    ],
)
def test_any_other_form_is_a_protocol_error(pattern: Any) -> None:
    with pytest.raises(ProtocolError):
        parse_scope_untrusted(["*.*", pattern])


PARTS = st.sampled_from(["*", "a", "b", "c"])
PATTERNS = st.builds(lambda no, s, t: f"{no}{s}.{t}", st.sampled_from(["", "!"]), PARTS, PARTS)


@law
@given(st.lists(PATTERNS, max_size=6), st.sampled_from("abc"), st.sampled_from("abc"))
def test_the_last_match_decides(patterns: list[str], schema: str, table: str) -> None:
    expected = not patterns
    for pattern in patterns:
        rule_schema, _, rule_table = pattern.lstrip("!").partition(".")
        if rule_schema in ("*", schema) and rule_table in ("*", table):
            expected = not pattern.startswith("!")
    assert Scope(tuple(patterns)).contains(schema, table) is expected


@law
@given(st.lists(PATTERNS, max_size=5), st.lists(PATTERNS, max_size=5), st.sampled_from("abcd"), st.sampled_from("abcd"))
def test_what_a_scope_gains_is_named(before: list[str], after: list[str], schema: str, table: str) -> None:
    old, new = Scope(tuple(before)), Scope(tuple(after))
    named = any(one in ("*", schema) and other in ("*", table) for one, other in gained(old, new))
    assert named or not (new.contains(schema, table) and not old.contains(schema, table))


def test_what_a_scope_gains_is_no_more_than_needed() -> None:
    narrow = Scope(("main.notes",))
    assert gained(narrow, narrow) == gained(Scope(), narrow) == []
    assert gained(narrow, Scope(("main.notes", "main.tasks", "x.y"))) == [("main", "tasks"), ("x", "y")]
    assert gained(narrow, Scope(("main.*",))) == [("main", "*")]
    assert gained(narrow, Scope()) == [("*", "*")]
    assert gained(Scope(("*.*", "!main.notes")), Scope()) == [("main", "notes")]
    many = Scope(tuple(f"s{number}.t{number}" for number in range(100)))
    assert gained(narrow, many) == [("*", "*")], "beyond a bound it is not looked at"


def test_text_and_equality() -> None:
    assert Scope().text() == Scope(("*.*",)).text() == "*.*"
    assert Scope(("main.*", "!main.x")).text() == "main.* !main.x"
    assert parse_scope_untrusted(["a.b"]) == Scope(("a.b",))
    assert Scope(("a.b",)) != Scope(("a.c",))
