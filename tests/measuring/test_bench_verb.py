"""`meshnode bench` as it is called: what it prints where, what it leaves, and what it refuses before it measures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from meshnode.bench import plan
from meshnode.cli.main import main


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "QUICK", replace(plan.QUICK, apply_s=0.001, apply_events=300))


def test_one_line_of_json_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, picture = tmp_path / "new" / "disk", tmp_path / "growth.svg"
    assert main(["bench", "--only", "apply", "--json", "--dir", str(folder), "--svg", str(picture)]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert json.loads(out)["ratios"]["apply_to_verify"] > 0
    assert err.split() == ["0.0", "s", "apply"]
    assert list(folder.iterdir()) == []
    assert picture.read_text().startswith("<svg ")


def test_a_table_by_default_and_a_line_a_figure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--only", "apply"]) == 0
    head, names, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("meshnode ")
    assert names.split() == ["group", "figure", "value", "unit", "note"]
    assert rows[-1].startswith("ratio")
    assert main(["--output", "jsonl", "bench", "--only", "apply"]) == 0
    assert [json.loads(line)["group"] for line in capsys.readouterr().out.splitlines()] == ["apply", "apply", "ratio"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--only", "fast"), "there is no scenario 'fast'"),
        (("--svg", "absent/growth.svg"), "name a file in a folder that is there"),
        (("--dir", "file"), "cannot make the folder"),
    ],
)
def test_what_cannot_be_used_is_said_at_once(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    assert main(["bench", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1
