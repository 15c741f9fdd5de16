"""Programs that use meshnode are type-checked under --strict: the examples, and typical uses, right and wrong ones."""

from __future__ import annotations

import re
from pathlib import Path

from mypy import api

ROOT = Path(__file__).parents[2]
USES = ROOT / "tests" / "typing" / "uses.py"


def test_programs_are_checked_as_they_should_be() -> None:
    """Over the cache of the checks before the tests, so that only these files are new."""
    told, errors, _ = api.run(
        [
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "--cache-dir",
            str(ROOT / ".mypy_cache"),
            "--hide-error-context",
            "--no-error-summary",
            str(ROOT / "examples"),
            str(USES),
        ]
    )
    assert errors == ""
    found = re.findall(r"^(.*?):(\d+): error: .*\[([a-z-]+)\]$", told, re.MULTILINE)
    assert len(found) == told.count(" error: "), told
    lines = USES.read_text(encoding="utf-8").splitlines()
    wanted = [(number, line.rpartition("# error: ")[2]) for number, line in enumerate(lines, 1) if "# error: " in line]
    assert [(int(number), code) for _, number, code in found] == wanted, told
    assert {Path(path).name for path, _, _ in found} == {"uses.py"}
    assert len(wanted) > 10
