"""The plugin of `.ci/run` under which nothing can be skipped unseen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("program", "code"),
    [
        ("def test_a(): pass", 0),
        ("import pytest\ndef test_a(): pytest.skip('no')", 1),
        ("import pytest\n@pytest.mark.skipif(True, reason='no')\ndef test_a(): pass", 1),
        ("import pytest\n@pytest.mark.xfail\ndef test_a(): assert False", 1),
        ("import pytest\npytest.skip('no', allow_module_level=True)", 2),
    ],
)
def test_a_skip_is_a_failure(tmp_path: Path, program: str, code: int) -> None:
    (tmp_path / "test_it.py").write_text(program)
    (tmp_path / "pytest.ini").write_text("[pytest]\nasyncio_default_fixture_loop_scope = function\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".ci"), "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", "-p", "no_skips", "-q"]
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert found.returncode == code, found.stdout
