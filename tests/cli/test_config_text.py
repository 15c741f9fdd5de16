"""Settings as TOML: every fault with its line and the nearest name, one setting changed and the rest as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshnode.errors import ConfigError, UsageError
from meshnode.node.config import SETTINGS, Config, fault_of
from meshnode.node.configtext import (
    about_text,
    changed_text,
    config_text,
    faults_in,
    parse_config,
    parsed_value,
    parsed_values,
    said_in,
    value_text,
)


def test_every_setting_has_a_line_of_what_it_is_in_a_fresh_file() -> None:
    lines = config_text(Config(name="desk")).splitlines()
    for name, setting in SETTINGS.items():
        (at,) = (at for at, line in enumerate(lines) if line.lstrip("# ").startswith(f"{name} = "))
        assert lines[at - 1] == f"# {about_text(name)}"
        assert lines[at].startswith("#") == (name != "name")
        assert len(lines[at - 1]) <= 120
        assert ("next start" in lines[at - 1]) != setting.live


def test_all_faults_are_told_with_their_lines() -> None:
    """Lines within a text or a list are none of a setting."""
    text = (
        "prot = 1\nname = '''\nport = 2'''\npeers = [\n 'a:1', # port = 3\n 1,\n]\nport = 70000\n[tabel]\nlisten = 1\n"
    )
    assert [(each.line, each.setting) for each in faults_in(text)] == [
        (1, "prot"),
        (4, "peers"),
        (8, "port"),
        (9, "tabel"),
    ]
    assert "did you mean 'port'?" in faults_in(text)[0].reason
    assert 'a list of texts, such as ["a", "b"], not' in faults_in(text)[1].reason
    with pytest.raises(ConfigError, match=r"^here: line 1: there is no setting 'prot'"):
        said_in(text, "here")


@pytest.mark.parametrize(("text", "line"), [("\n\nport = ", 3), ("a = 1\nb = '''\n\n", 4)])
def test_what_is_no_toml_is_one_fault_at_its_line(text: str, line: int) -> None:
    (fault,) = faults_in(text)
    assert (fault.line, fault.reason.startswith("not TOML"), "line" in fault.reason) == (line, True, False)


def test_a_setting_that_is_set_twice_is_named_and_so_is_every_other_fault() -> None:
    (fault,) = faults_in("port = 1\nport = 2")
    assert (fault.line, fault.setting, fault.reason) == (
        2,
        "port",
        "port is set a second time: one of the two lines has to go",
    )
    with pytest.raises(ConfigError, match=r"line 1: port .*; line 2: there is no setting 'prt'"):
        parse_config("port = -1\nprt = 1")


@pytest.mark.parametrize("pattern", ["a..b", "a.b.c", "nix", ".a"])
def test_a_scope_that_matches_no_table_is_refused_with_a_reason(pattern: str) -> None:
    (fault,) = faults_in(f'scope = ["main.a", "{pattern}"]')
    assert f"scope: '{pattern}' matches no table: a scope pattern is schema.table" in fault.reason


def test_a_value_that_is_refused_is_not_shown_at_length() -> None:
    (fault,) = faults_in(f"port = '{'x' * 5000}'")
    assert len(fault.reason) < 150


@pytest.mark.parametrize(
    ("before", "values", "after"),
    [
        ("port = 1 # why\nname = 'a'\n", {"port": 2}, "port = 2 # why\nname = 'a'\n"),
        ("name = 'a#b' # why\n", {"name": "#"}, 'name = "#" # why\n'),
        ("scope = [\n 'main.a', # port = 1\n]\nport = 1\n", {"scope": []}, "scope = []\nport = 1\n"),
        ("# port = 0\nname = 'a'", {"port": 5}, "port = 5\nname = 'a'"),
        ("name = 'a'", {"port": 5}, "name = 'a'\nport = 5\n"),
        ("", {"port": 5, "peers": ["a:1"]}, 'port = 5\npeers = ["a:1"]\n'),
        ("port = 1\r\n# why\r\n", {"port": 2}, "port = 2\r\n# why\r\n"),
        ('database = """\n# port = 3\n"""\n', {"port": 4}, None),
    ],
    ids=[str(number) for number in range(8)],
)
def test_a_change_touches_nothing_else(before: str, values: dict[str, Any], after: str | None) -> None:
    if after is None:
        with pytest.raises(ConfigError, match="set port there"):
            changed_text(before, values)
        return
    assert changed_text(before, values) == after


def test_a_text_that_cannot_be_used_is_not_changed() -> None:
    with pytest.raises(ConfigError, match="line 2: port is set a second time"):
        changed_text("port = 1\nport = 2\n", {"port": 3})


@pytest.mark.parametrize(
    ("setting", "text", "value"),
    [
        ("name", "7", "7"),
        ("name", '"a"', '"a"'),
        ("port", "4747", 4747),
        ("port", "-1", -1),
        ("port", "9" * 5000, "9" * 5000),
        ("mdns_enabled", "Off", False),
        ("mdns_enabled", "1", "1"),
        ("peers", '["a:1", "\\ud83d\\ude00:1"]', ["a:1", "😀:1"]),
        ("peers", "['a:1',]", ["a:1"]),
        ("peers", "[]", []),
        ("peers", "a:1", ["a:1"]),
        ("peers", "[a", "[a"),
        ("peers", "[]\nport = 1", []),
    ],
    ids=[str(number) for number in range(13)],
)
def test_values_of_a_command_line_have_the_type_of_their_setting(setting: str, text: str, value: object) -> None:
    parsed = parsed_value(setting, text)
    assert (parsed, type(parsed)) == (value, type(value))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["port"], "port has no value"),
        (["prot"], "did you mean 'port'"),
        (["port", "1", "port", "2"], "named twice"),
        (["prot", "1"], "did you mean 'port'"),
    ],
    ids=["odd", "unknown", "twice", "nearest"],
)
def test_words_that_are_no_settings(words: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parsed_values(words)


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8), max_size=3))
def test_any_list_comes_back_from_a_file_and_from_a_command_line(texts: list[str]) -> None:
    assert parsed_value("scope", value_text(texts)) == texts
    assert parsed_value("scope", json.dumps(texts)) == texts


@pytest.mark.parametrize(
    ("setting", "value"),
    [("database", "a\0b"), ("database", "\udcff"), ("scope", ["\udcff.a"]), ("peers", [None]), ("name", None)],
    ids=["nul", "surrogate", "scope", "none", "null"],
)
def test_what_no_file_could_say_is_refused(setting: str, value: object) -> None:
    assert fault_of(setting, value) is not None


def test_what_is_named_is_told_apart_from_defaults() -> None:
    said = said_in("port = 0\n")
    assert (said.config, said.named) == (Config(), {"port"})
    assert parse_config("") == Config()


def test_a_list_takes_words_up_to_the_next_setting() -> None:
    words = ["scope", "main.a", "!main.b", "port", "5", "peers", '["a:1"]', "name", "scope"]
    assert parsed_values(words) == {"scope": ["main.a", "!main.b"], "port": 5, "peers": ["a:1"], "name": "scope"}
