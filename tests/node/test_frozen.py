"""A program that embeds a node, frozen by PyInstaller with the hooks of the package, is a device like any other."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue

from support.nodes import free_port
from support.screen import screen

import meshnode
from meshnode import BlockingNode, Home
from meshnode._pyinstaller import get_hook_dirs
from meshnode.cli.main import _VERBS
from meshnode.node.configfile import change_settings

ROOT = Path(__file__).parents[2]
PACKAGE = Path(meshnode.__file__).parent
PATIENCE_S = 60.0
KEY, COLUMNS = {"id": "TEXT"}, {"title": "TEXT", "text": "TEXT"}


def freeze(script: Path, folder: Path) -> Path:
    """The program of a script. PyInstaller finds the hooks by itself: the package is installed."""
    places = ["--distpath", folder / "dist", "--workpath", folder / "work", "--specpath", folder]
    command = [sys.executable, "-m", "PyInstaller", "--log-level", "WARN", *map(str, places), str(script)]
    built = subprocess.run(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    assert built.returncode == 0, built.stderr
    return folder / "dist" / script.stem / script.stem


def test_the_frozen_notes_sync_with_a_node_that_is_not(tmp_path: Path) -> None:
    program = freeze(ROOT / "examples" / "notes_tk.py", tmp_path)
    assert not (program.parent / "_internal" / "meshnode" / "control").exists()  # an embedded node has no pages
    ports = {"desk": free_port(), "lap": free_port()}
    for name, port in ports.items():
        others = [f"127.0.0.1:{each}" for each in ports.values() if each != port]
        settings = {"name": name, "port": port, "peers": others, "listen": "127.0.0.1", "mdns_enabled": False}
        (tmp_path / name).mkdir()
        change_settings(Home(tmp_path / name).config_path, settings)
    arrived: SimpleQueue[object] = SimpleQueue()
    with BlockingNode.open(tmp_path / "desk") as desk, screen() as display:
        desk.add_table("notes", KEY, COLUMNS)
        invite = desk.invite().invite
        with BlockingNode.open(tmp_path / "lap", invite=invite) as lap:
            lap.add_table("notes", KEY, COLUMNS)
            desk.set_online(False)
            lap.put("notes", {"id": "n1"}, {"title": "Milk"})
        desk.put("notes", {"id": "n2"}, {"title": "Bread"})
        desk.table("notes").on_changes(arrived.put)
        desk.set_online(True)
        alone = {"DISPLAY": display, "HOME": str(tmp_path), "PATH": ""}  # nothing of this interpreter and its packages
        with subprocess.Popen([program, tmp_path / "lap"], env=alone, stderr=subprocess.PIPE, text=True) as window:
            try:
                arrived.get(timeout=PATIENCE_S)
                assert desk.wait_synced("lap", timeout_s=PATIENCE_S).complete
            finally:
                window.terminate()
                print(window.communicate()[1])  # shown where the test fails
        with BlockingNode.open(tmp_path / "lap") as lap:
            for node in (desk, lap):
                assert [row["title"] for row in node.table("notes").rows()] == ["Milk", "Bread"]


def test_the_hooks_lead_to_every_verb_page_and_file() -> None:
    """Of the verbs and pages, frozen: what names alone lead to. To freeze them too would take as long again."""
    found: dict[str, set[str]] = {"hiddenimports": set(), "datas": set()}
    for hook in Path(get_hook_dirs()[0]).glob("hook-*.py"):
        told = runpy.run_path(str(hook))
        found["hiddenimports"] |= set(told.get("hiddenimports", []))
        found["datas"] |= {source for source, _ in told.get("datas", [])}
    verbs = {f"meshnode.cli.{module}" for _, module, _ in _VERBS}
    pages = {f"meshnode.control.web.{page.stem}" for page in (PACKAGE / "control/web").glob("[a-z]*.py")}
    assert verbs | pages | {"meshnode.node.node", "meshnode.node.blocking"} <= found["hiddenimports"]
    files = {path for path in (PACKAGE / "control").rglob("*.*") if path.suffix not in (".py", ".pyc")}
    files |= set((PACKAGE / "cli/completion").glob("template.*"))
    assert len(files) > 20
    assert {str(path) for path in files} <= found["datas"]
