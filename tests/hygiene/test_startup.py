"""What a verb loads before it answers: most of its time, where no node runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from meshnode.cli.main import main

WRITING = {"meshnode.engine.engine", "meshnode.engine.context", "meshnode.node.local", "meshnode.node.founding"}
NETWORK = {"aioquic", "zeroconf", "cryptography", "meshnode.net.endpoint", "meshnode.net.mdns"}
SERVING = {"uvicorn", "starlette", "h11", "meshnode.control.client"}
REST = {"rich", "platformdirs", "importlib.metadata", "prometheus_client", "meshnode.node.discovering"}
DASHBOARD = {"jinja2", "markupsafe", "meshnode.control.web", "webbrowser"}


def loaded_by(code: str) -> set[str]:
    """The modules that a new interpreter has after it."""
    shown = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], check=True, capture_output=True, text=True
    )
    return set(shown.stdout.split())


@pytest.mark.parametrize(
    ("loads", "unused"),
    [
        ("import meshnode.cli.main, meshnode.cli.connect, meshnode.node.reads", WRITING | NETWORK | SERVING | REST),
        (
            "import meshnode.cli.main, meshnode.cli.connect, meshnode.control.client",
            WRITING | NETWORK | REST | {"uvicorn", "starlette", "sqlite3", "meshnode.store"},
        ),
        (
            "import meshnode.cli.main, meshnode.cli.dashboard, meshnode.control.client",
            WRITING | NETWORK | REST | DASHBOARD | {"uvicorn", "starlette", "sqlite3", "meshnode.store"},
        ),
        ("import meshnode.cli.up, meshnode.node.node, meshnode.control.server", DASHBOARD),
    ],
    ids=["without-a-node", "with-a-node", "dashboard", "a-node-before-its-dashboard-was-opened"],
)
def test_a_verb_that_reads_loads_what_it_needs(loads: str, unused: set[str]) -> None:
    assert loaded_by(loads) & unused == set()


def test_lists_are_read_without_the_writing_side(tmp_path: Path) -> None:
    home = str(tmp_path / "n")
    assert main(["--home", home, "init"]) == 0
    verbs = "('events', 'notices', 'conflicts')"
    code = f"from meshnode.cli.main import main\nfor verb in {verbs}: main(['--home', {home!r}, verb])"
    assert loaded_by(code) & (WRITING | NETWORK | SERVING | REST) == set()
