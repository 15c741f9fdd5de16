"""What is named and is not there ends every verb with code 1, and one line: the command line was fine (README)."""

from __future__ import annotations

from pathlib import Path

import pytest

from meshnode.cli.main import _VERBS, main

ID = "0" * 32
LINES: dict[str, tuple[str, ...]] = {  # by verb; every verb that names something
    "table": ("class nope private",),
    "adopt": ("absent.db", "app.db --table nope"),
    "release": ("absent.db",),
    "put": ("nope id=1", "notes id=1 nope=1"),
    "get": ("nope id=1", "notes id=1", "notes nope=1", "notes id=1 --explain"),
    "rm": ("nope id=1", "notes id=1", "notes nope=1"),
    "rows": ("nope",),
    "evict": ("nope --before 2026-01-01",),
    "rehydrate": ("nope",),
    "compact": ("nope",),
    "forget": ("nope id=1", "notes nope=1", "notes id=1 --undo"),
    "import": ("nope there.csv", "notes absent.csv"),
    "conflicts": ("--table nope", f"resolve {ID} --prefer own", f"acknowledge {ID}"),
    "watch": ("nope",),
    "events": ("--table nope", "--site nope"),
    "export-events": ("out --for nope",),
    "import-events": ("absent",),
    "notices": ("acknowledge 999",),
    "role": ("nope member",),
    "retire": ("nope --yes", "own --yes --recovery absent"),
    "sync-state": ("--peer nope",),
    "frontier": ("--peer nope",),
    "request-sync": ("nope", "--table nope"),
    "digest": ("nope",),
    "invite": ("approve nope", f"withdraw {'00' * 8}"),
    "config": ("apply absent", "check absent"),
    "identity": ("import absent --home new",),
    "conform": ("absent",),
}
NAMES_NOTHING = frozenset(("init", "up", "discover", "policy", "peers", "members", "vouch", "leave", "status")) | {
    *("bench", "doctor", "metrics", "wait", "check", "demo", "nearby", "dashboard", "service", "completion", "help")
}
NEEDS_OTHERS = frozenset({"join", "pair", "verify"})  # what they name is on the network, or asked of a running node


def test_every_verb_is_looked_at() -> None:
    assert {verb for verb, _, _ in _VERBS} == LINES.keys() | NAMES_NOTHING | NEEDS_OTHERS


def test_what_is_not_there_is_code_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*words: str) -> tuple[int, str, str]:
        return main(["--home", str(tmp_path / "n"), *words]), *capsys.readouterr()

    for line in ("get notes id=1", "put notes id=1", "status", "check --repair"):
        code, out, err = said(*line.split())
        assert (code, out, "no node in" in err) == (1, "", True), (line, err)
    assert said("init", "--name", "own")[0] == 0
    assert said("table", "add", "notes", "--key", "id:TEXT", "--column", "n:INTEGER")[0] == 0
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.csv").write_text("id,n\na,1\n")
    wrong = []
    for verb, lines in LINES.items():
        for line in lines:
            code, out, err = said(verb, *line.split())
            if code != 1 or out or not err.startswith("meshnode: ") or err.count("\n") != 1:
                wrong.append((verb, line, code, err))
    assert wrong == []
