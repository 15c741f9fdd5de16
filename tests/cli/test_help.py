"""Help: each verb says what it does, what each of its words means and what comes of it, and shows how; so do pages."""

from __future__ import annotations

import re
import shlex
import subprocess
from functools import cache
from pathlib import Path

import pytest
from support.command import meshnode

from meshnode.cli.commands import Command, all_commands, program
from meshnode.cli.examples import EXAMPLES, examples_of
from meshnode.cli.help import parser_of
from meshnode.cli.main import main, parsed, verbs
from meshnode.cli.manpages import write_pages
from meshnode.cli.manual import filled, grouped
from meshnode.cli.notes import ENVIRONMENT, EXITS, FILES, GROUPS

LATER = {"dashboard"}  # in its group already, not yet a verb


@cache
def commands() -> dict[str, Command]:
    return {each.name: each for each in all_commands(program())}


NAMES = [
    *[verb for verb, _, _ in verbs()],
    *[name for name in EXAMPLES if " " in name],
]


def test_every_verb_of_a_verb_is_looked_at() -> None:
    assert sorted(["", *NAMES]) == sorted(commands())


@pytest.mark.parametrize("name", ["", *NAMES], ids=lambda name: name.replace(" ", "-") or "program")
def test_help_explains_every_word_and_can_be_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = commands()[name]
    dumb = [option.flags[-1] for option in command.options if not option.about]
    dumb += [argument.name for argument in command.arguments if not argument.about]
    assert dumb == []
    assert re.fullmatch(r"[A-Z`].*\.", command.description.strip().partition("\n\n")[0], re.DOTALL)
    for columns, widest in ((80, 80), (200, 100)):
        monkeypatch.setenv("COLUMNS", str(columns))
        text = parser_of(name.split()).format_help()
        whole = [example.strip() for example in examples_of(name)]
        assert [line for line in text.splitlines() if len(line) > widest and line.strip() not in whole] == []
        if columns == 80:
            assert [line for line in whole if len(line) + 2 > 80 and " > " not in line] == []
    assert name == "" or "example" in text
    assert ("exit codes:" in text) is (name in EXITS)


@pytest.mark.parametrize("name", EXAMPLES, ids=lambda name: name.replace(" ", "-"))
def test_each_example_is_a_command_line_of_the_verb(name: str) -> None:
    for line in examples_of(name):
        program, *arguments = shlex.split(re.split(" [<>] ", line)[0])
        module, _ = parsed(arguments)
        words = [word for word in arguments if word not in ("--home", "/srv/notes")]
        assert (program, words[: len(name.split())]) == ("meshnode", name.split())
        assert callable(module.run)


def test_what_is_said_is_said_of_commands_that_there_are() -> None:
    for table in (EXAMPLES, EXITS, FILES, ENVIRONMENT):
        assert set(table) <= set(commands())


def test_every_verb_is_in_one_group() -> None:
    named = [verb for group in GROUPS.values() for verb in group]
    assert len(named) == len(set(named))
    assert set(named) - LATER == {verb for verb, _, _ in verbs()} - LATER
    assert "more" not in grouped(verbs())
    assert [verb for _, members in grouped((*verbs(), ("new", "new", "do it"))).items() for verb, _ in members][
        -1
    ] == "new"


@pytest.mark.parametrize("name", ["", "up", "table add", "service install"], ids=lambda name: name.replace(" ", "-"))
def test_the_verb_help_says_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help", *name.split()]) == 0
    shown = capsys.readouterr().out
    with pytest.raises(SystemExit):
        main([*name.split(), "--help"])
    assert capsys.readouterr().out == shown
    assert shown.startswith(f"usage: meshnode {name}".strip())


@pytest.mark.parametrize(
    ("words", "says"),
    [(["tabel"], "'table'"), (["table", "ad"], "add, list, class"), (["up", "x"], "it has none")],
    ids=["no-verb", "no-verb-of-it", "none-at-all"],
)
async def test_what_there_is_not_is_one_line(tmp_path: Path, words: list[str], says: str) -> None:
    asked = await meshnode("help", *words, home=tmp_path)
    assert (asked.code, asked.err.count("\n")) == (2, 1)
    assert says in asked.err.replace("class, list", "list, class")


def test_text_is_filled_by_its_form() -> None:
    text = (
        "One two\nthree.\n\nList:\n  ab    one two three four\n  long line of words\n      deeper text that goes\nEnd."
    )
    assert filled(text, 20) == [
        *("One two three.", "", "List:"),
        *("  ab    one two", "        three four"),
        *("  long line of words",),
        *("      deeper text", "      that goes"),
        "End.",
    ]


# --- manual pages


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("man") / "man1"
    assert write_pages(folder) == len(verbs()) + 1
    return folder


def test_the_pages_are_without_a_fault(pages: Path) -> None:
    files = sorted(map(str, pages.iterdir()))
    judged = subprocess.run(["mandoc", "-Tlint", "-Wwarning", *files], capture_output=True, text=True)
    assert judged.stdout + judged.stderr == ""


def test_a_page_says_what_help_says(pages: Path) -> None:
    for verb, _, does in verbs():
        file = str(pages / f"meshnode-{verb}.1")
        shown = subprocess.run(["mandoc", "-Tutf8", "-Owidth=1000", file], capture_output=True, text=True, check=True)
        text = re.sub(r".\x08", "", shown.stdout)
        assert f"meshnode-{verb} - {does}" in text
        for name in [name for name in commands() if name.split()[:1] == [verb]]:
            told = [option.about for option in commands()[name].options] + list(examples_of(name))
            told += [flag for option in commands()[name].options for flag in option.flags]
            assert [each for each in told if each.replace("…", "...") not in text] == [], name


async def test_pages_that_cannot_be_written_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    asked = await meshnode("help", "--man", str(tmp_path / "file"), home=tmp_path)
    assert (asked.code, asked.err.count("\n")) == (2, 1)
    both = await meshnode("help", "up", "--man", str(tmp_path), home=tmp_path)
    assert (both.code, "no verb beside" in both.err) == (2, True)
