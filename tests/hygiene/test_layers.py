"""The layers of the README, as import-linter holds them, and what a verb may import before it does anything."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAVY = ("aioquic", "cryptography", "cbor2", "pycose", "rich", "segno", "starlette", "uvicorn", "zeroconf", "sqlite3")


def test_imports_go_down_only() -> None:
    """In a process of its own: the linter silences the loggers of the one that it runs in."""
    code = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(no_cache=True))"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert found.returncode == 0, found.stdout


def imported_with(module: str) -> set[str]:
    code = f"import sys, {module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    return set(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split())


@pytest.mark.parametrize("module", ["meshnode", "meshnode.cli.main", "meshnode.cli.connect", "meshnode.cli.put"])
def test_the_start_of_a_verb_imports_nothing_heavy(module: str) -> None:
    assert not set(HEAVY) & imported_with(module)


def test_a_verb_that_opens_the_store_itself_imports_no_network() -> None:
    assert not {"aioquic", "cryptography", "rich", "starlette", "zeroconf"} & imported_with("meshnode.node.local")
