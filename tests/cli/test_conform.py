"""`conform`: every vector file passes, and a run that finds something wrong says what and fails."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from support.command import meshnode

from meshnode.cli.conform.verb import run_file, run_folder

VECTORS = Path(__file__).parents[1] / "vectors"
FILES = sorted(file.name for file in VECTORS.glob("*.json"))


@pytest.mark.parametrize("name", FILES)
def test_every_vector_passes(name: str) -> None:
    result = run_file(VECTORS / name)
    assert result.failures == []
    assert result.passed > 0


def test_all_ten_files_are_there() -> None:
    assert len(FILES) == 10


async def test_the_verb_prints_a_result_per_file(tmp_path: Path) -> None:
    shutil.copy(VECTORS / "hlc.json", tmp_path)
    result = await meshnode("conform", str(tmp_path), "--output", "json", home=tmp_path)
    assert (result.code, result.json) == (0, {"hlc.json": {"passed": 34, "failed": 0, "failures": []}})


async def test_a_wrong_vector_and_an_unknown_file_fail_the_run(tmp_path: Path) -> None:
    vectors = json.loads((VECTORS / "hlc.json").read_text())
    vectors["cases"][0]["result"] = [9, 9]
    (tmp_path / "hlc.json").write_text(json.dumps(vectors))
    (tmp_path / "new.json").write_text("{}")
    result = await meshnode("conform", str(tmp_path), "--output", "json", home=tmp_path)
    assert result.code == 1
    assert result.json["hlc.json"]["failures"] == ["tick 0: the result is [5, 0], not [9, 9]"]
    assert (result.json["hlc.json"]["passed"], result.json["new.json"]["failed"]) == (33, 1)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"cases": 1}', '{"encode": [{}]}', "[" * 100_000])
@pytest.mark.parametrize("name", FILES)
def test_a_file_that_is_no_vector_file_is_a_failure_and_no_crash(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content)
    assert run_folder(tmp_path)[name].failed > 0
