"""A program that embeds a node and says nothing of logging: nothing of the node's is on its standard error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

WARNS = """
import asyncio, logging, sys
from meshnode import Node

async def work():
    async with Node.open(sys.argv[1], mdns_enabled=False, listen="127.0.0.1") as node:
        logging.getLogger("meshnode.notices").warning("as a notice of the kind scope does")

asyncio.run(work())
"""


def ran(code: str, *arguments: str) -> str:
    return subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True).stderr


def test_what_the_node_logs_goes_where_the_program_says_and_nowhere_else(tmp_path: Path) -> None:
    assert ran(WARNS, str(tmp_path / "n")) == ""
    assert "kind scope" in ran(f"import logging; logging.basicConfig()\n{WARNS}", str(tmp_path / "n"))


def test_a_verb_warns_on_standard_error_all_the_same() -> None:
    code = (
        "import logging; import meshnode.model.logevent; from meshnode.cli import connect\n"
        "async def work(): logging.getLogger('meshnode.notices').warning('clock')\n"
        "connect.run(work()); logging.getLogger('meshnode.notices').warning('later')\n"
    )
    assert ran(code) == "clock\n"
