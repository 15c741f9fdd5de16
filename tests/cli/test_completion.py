"""Words that shells complete: all that the parsers know, and names from the database, which nothing ever evaluates."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import shutil
import sqlite3
import subprocess
import sys
import time
import tty
from collections.abc import Sequence
from contextlib import closing
from functools import cache
from pathlib import Path

import pytest
from support.command import TIMEOUT_S, meshnode

from meshnode.cli.commands import program
from meshnode.cli.completion.kinds import ASKED
from meshnode.cli.completion.scripts import Entry, entries, script
from meshnode.cli.completion.words import words_of

SHELLS = ("bash", "zsh", "fish")
WAITING_S = 3.0  # what waits at all waits for longer, five seconds
HOSTILE = "a $(touch PWNED)`touch PWNED`;touch PWNED & 'x' \"y\" \\ *"
# It answers what completion asks, and writes down what else it was called with.
PROGRAM = """\
#!{python}
import json, os, runpy, sys
if "--words" in sys.argv:
    os.environ.pop("PYTHONSTARTUP", None)
    runpy.run_module("meshnode", run_name="__main__", alter_sys=True)
open("called", "w").write(json.dumps(sys.argv[1:]))
print("RA" + "N")
"""
START = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
    "fish": ["fish", "--no-config", "-i"],
}
PREPARE = {
    "bash": "PS1='rea''dy>'; source ./script",
    "zsh": "PS1='rea''dy>'; autoload -U compinit; compinit -D -u; source ./script",
    "fish": "function fish_prompt; echo -n rea; echo -n 'dy>'; end; source ./script",
}


@cache
def known() -> dict[str, Entry]:
    """What the parsers know, by the words of each command."""
    return {entry.name: entry for entry in entries(program())}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With the scripts, and a program of that name."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "meshnode").write_text(PROGRAM.format(python=sys.executable))
    (tmp_path / "bin" / "meshnode").chmod(0o755)
    return tmp_path


def environment(folder: Path) -> dict[str, str]:
    inherited = {name: value for name, value in os.environ.items() if name != "MESHNODE_HOME"}
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return {**inherited, "PATH": path, "HOME": str(folder), "TERM": "dumb", "LC_ALL": "C.UTF-8", "PYTHONPATH": source()}


def source() -> str:
    return str(Path(__file__).parents[2])


# --- everything that the parsers know


def completed_by_bash(folder: Path, lines: Sequence[Sequence[str]]) -> list[list[str]]:
    """What bash offers for the last word of each line."""
    (folder / "script").write_text(script("bash"))
    ask = """\
source ./script
compopt() { COMPREPLY+=("$*"); }
while IFS= read -r -d '' line; do
    mapfile -d $'\\x1f' -t COMP_WORDS <<< "$line"
    COMP_WORDS[-1]=${COMP_WORDS[-1]%$'\\n'}
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _meshnode meshnode "${COMP_WORDS[COMP_CWORD]}" ''
    (IFS=$'\\x1f'; printf '%s\\0' "${COMPREPLY[*]}")
done
"""
    told = "".join("\x1f".join(("meshnode", *line)) + "\0" for line in lines)
    ran = subprocess.run(
        ["bash", "-c", ask], input=told, cwd=folder, env=environment(folder), capture_output=True, text=True, check=True
    )
    assert ran.stderr == ""
    return [answer.split("\x1f") if answer else [] for answer in ran.stdout.split("\0")[:-1]]


def test_bash_offers_every_verb_and_every_option(folder: Path) -> None:
    names = list(known())
    lines = [[*name.split(), last] for name in names for last in ("", "-")]
    found = completed_by_bash(folder, lines)
    assert len(found) == 2 * len(names)
    for name, words, options in zip(names, found[::2], found[1::2], strict=True):
        verbs = [word for word, _ in known()[name].verbs]
        assert [word for word in words if word in verbs] == verbs, name
        assert sorted(options) == sorted(flag for flag, _ in known()[name].options), name


def test_zsh_knows_every_verb_and_every_option(folder: Path) -> None:
    (folder / "script").write_text(script("zsh"))
    names = "\n".join(known())
    ask = """\
compdef() { : }; source ./script
while IFS= read -r name; do
    _meshnode_of "$name" && print -r -- "$name|${(j: :)${verbs[@]%%:*}}|${(j: :)${flags[@]%%:*}}"
done
"""
    ran = subprocess.run(["zsh", "-f", "-c", ask], input=f"{names}\n", cwd=folder, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [
        f"{name}|{' '.join(word for word, _ in entry.verbs)}|{' '.join(flag for flag, _ in entry.options)}"
        for name, entry in known().items()
    ]


def test_fish_offers_every_verb_and_every_option(folder: Path) -> None:
    (folder / "script").write_text(script("fish"))
    lines = "".join(f"meshnode {name} {last}".replace("  ", " ") + "\n" for name in known() for last in ("", "-"))
    ask = 'source ./script; while read -l line; echo "== $line"; complete -C "$line" | string split -f 1 \\t; end'
    ran = subprocess.run(
        ["fish", "--no-config", "-c", ask],
        input=lines,
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    answers = [answer.splitlines()[1:] for answer in ran.stdout.split("== ")[1:]]
    for (name, entry), words, options in zip(known().items(), answers[::2], answers[1::2], strict=True):
        assert {word for word, _ in entry.verbs} <= set(words), name
        assert sorted(options) == sorted(flag for flag, _ in entry.options), name


PARTIAL = {
    "ta": ["table"],
    "table ": ["add", "list", "class"],
    "table add --cl": ["--class"],
    "table class x ": ["shared", "raw", "private"],
    "table add x --class r": ["raw"],
    "--output ": ["table", "json", "jsonl"],
    "--output = j": ["json", "jsonl"],
    "status --output j": ["json", "jsonl"],
    "role x ": ["authority", "member", "reader"],
    "config set max_": ["max_links"],
    "config set max_links ": [],
    "policy set replay": ["replay_budget_days"],
    "doctor wal d": ["database", "disk"],
    "invite a": ["approve"],
    "help serv": ["service"],
    "completion ": ["bash", "zsh", "fish"],
    "import notes ": ["-o default"],
    "demo --keep ": ["-o dirnames"],
    "put notes id = ": [],
    "no-such-verb ": [],
    "up --name --p": [],
}


def test_partial_lines_are_completed_by_what_they_say(folder: Path) -> None:
    found = completed_by_bash(folder, [line.split(" ") for line in PARTIAL])
    assert {line: sorted(words) for line, words in zip(PARTIAL, found, strict=True)} == {
        line: sorted(words) for line, words in PARTIAL.items()
    }


# --- names from the database


@pytest.fixture
async def home(tmp_path: Path) -> Path:
    path = tmp_path / "n"
    assert (await meshnode("init", "--name", "desk", home=path)).code == 0
    for name in ("notes", HOSTILE):
        assert (await meshnode("table", "add", name, "--key", "id:TEXT", home=path)).code == 0
    return path


def test_words_come_from_the_database_without_a_trace(home: Path) -> None:
    before = sorted((path.name, path.stat().st_mtime_ns) for path in home.iterdir())
    assert words_of("tables", str(home)) == [HOSTILE, "notes"]
    assert words_of("members", str(home)) == ["desk"]
    assert (words_of("conflicts", str(home)), words_of("notices", str(home))) == ([], [])
    assert sorted((path.name, path.stat().st_mtime_ns) for path in home.iterdir()) == before
    (home / "elsewhere").mkdir()
    for file in home.glob("meshnode.db*"):
        shutil.move(file, home / "elsewhere")
    (home / "config.toml").write_text('database = "elsewhere/meshnode.db"\n')
    assert words_of("tables", str(home)) == [HOSTILE, "notes"]


async def test_the_program_prints_them_for_the_scripts(home: Path) -> None:
    shown = await meshnode("completion", "--words", "tables", home=home)
    assert (shown.code, shown.out, shown.err) == (0, f"{HOSTILE}\nnotes\n", "")


@pytest.mark.parametrize("kind", [*ASKED, "nonsense"])
@pytest.mark.parametrize("content", [None, b"", b"SQLite format 3\x00" + b"x" * 5000, b"\x91" * 5000], ids=range(4))
def test_where_nothing_can_be_read_nothing_is_offered(tmp_path: Path, kind: str, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "meshnode.db").write_bytes(content)
    (tmp_path / "config.toml").write_text("database = [" if content == b"" else "")
    assert words_of(kind, str(tmp_path)) == []
    assert not [path for path in tmp_path.iterdir() if path.name not in ("meshnode.db", "config.toml")]


def test_a_locked_database_is_not_waited_for(home: Path) -> None:
    with closing(sqlite3.connect(home / "meshnode.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute("UPDATE meshnode_meta SET value = value")
        asked = time.monotonic()
        assert words_of("tables", str(home)) == []
        assert time.monotonic() - asked < WAITING_S


def test_asking_for_words_loads_next_to_nothing() -> None:
    code = (
        "import sys; from meshnode.cli.main import main;"
        "main(['--home', '/nowhere', 'completion', '--words', 'tables']);"
        "print(*{name.partition('.')[0] for name in sys.modules}, *sys.modules)"
    )
    loaded = set(
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    )
    assert "sqlite3" in loaded
    assert not {"asyncio", "msgspec", "cbor2", "blake3", "nacl", "rich", "platformdirs", "subprocess"} & loaded
    assert len([name for name in loaded if name.startswith("meshnode.")]) < 20


# --- as somebody types


@pytest.mark.parametrize("shell", SHELLS)
def test_what_a_peer_named_is_inserted_as_one_word_and_never_run(shell: str, folder: Path, home: Path) -> None:
    (folder / "script").write_text(script(shell))
    typed = [f"meshnode --home {home} status --outp\tjsonl\r", f"meshnode --home {home} get a\tlast\r"]
    called = as_typed(shell, folder, typed)
    assert called == [
        ["--home", str(home), "status", "--output", "jsonl"],
        ["--home", str(home), "get", HOSTILE, "last"],
    ]
    assert not list(folder.rglob("PWNED"))


def as_typed(shell: str, folder: Path, lines: Sequence[str]) -> list[list[str]]:
    """How the program was called by lines that were typed into a shell at a terminal."""
    ours, theirs = pty.openpty()
    tty.setraw(ours)
    process = subprocess.Popen(
        ["setsid", "--ctty", *START[shell]],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=folder,
        env=environment(folder),
    )
    os.close(theirs)
    called = []
    try:
        os.write(ours, f"{PREPARE[shell]}\r".encode())
        shown(ours, b"ready>")
        for line in lines:
            os.write(ours, line.encode())
            shown(ours, b"RAN")
            called.append(json.loads((folder / "called").read_text()))
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    return called


def shown(terminal: int, wanted: bytes) -> None:
    """Read what a shell writes until this comes."""
    text = b""
    while wanted not in text:
        assert select.select([terminal], [], [], TIMEOUT_S)[0], text.decode(errors="replace")
        text += os.read(terminal, 4096)


def test_the_readme_puts_each_script_where_its_shell_finds_it(folder: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", (Path(source()) / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if "meshnode completion" in block]
    (folder / "bin" / "meshnode").write_text(f'#!/bin/sh\nexec {sys.executable} -m meshnode "$@"\n')
    for shell, line in [
        ("sh", block),
        ("bash", "source ~/.local/share/bash-completion/completions/meshnode; complete -p meshnode"),
        ("bash", "source <(meshnode completion bash); complete -p meshnode"),
        ("zsh", "fpath+=(~/.zfunc); autoload -U compinit; compinit -D -u; [[ $_comps[meshnode] == _meshnode ]]"),
        ("fish", "test (complete -C 'meshnode tab' | string split -f 1 \\t) = table"),
    ]:
        ran = subprocess.run([shell, "-c", line], cwd=folder, env=environment(folder), capture_output=True, text=True)
        assert (ran.returncode, ran.stderr) == (0, ""), (shell, line)


@pytest.mark.parametrize("shell", SHELLS)
async def test_the_verb_prints_the_script(shell: str, tmp_path: Path) -> None:
    printed = await meshnode("completion", shell, home=tmp_path)
    assert (printed.code, printed.out) == (0, script(shell))


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_one_of_its_shell(shell: str) -> None:
    assert not re.search("@[A-Z]+@", script(shell))
    subprocess.run([shell, "-n"], input=script(shell), text=True, check=True)


async def test_without_a_shell_it_says_which_there_are(tmp_path: Path) -> None:
    asked = await meshnode("completion", home=tmp_path)
    assert (asked.code, "bash, zsh, fish" in asked.err) == (2, True)
