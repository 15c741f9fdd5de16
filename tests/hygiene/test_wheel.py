"""The wheel that people install: every module, what is shown or filled in, documents, the type marker, and no more."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "meshnode", source / "meshnode", ignore=shutil.ignore_patterns("__pycache__"))
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(source)]
    modules = {str(path.relative_to(source)) for path in (source / "meshnode").rglob("*.py")}
    modules |= {str(path.relative_to(source)) for path in (source / "meshnode").rglob("template.*")}  # of completion
    web = source / "meshnode" / "control" / "web"
    shown = {str(path.relative_to(source)) for kind in ("templates", "static") for path in (web / kind).rglob("*.*")}
    subprocess.run(command, check=True, capture_output=True, text=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    info = {name for name in names if ".dist-info/" in name}
    documents = {"meshnode/PROTOCOL.md", "meshnode/control/openapi.json", "meshnode/py.typed"}
    assert names - info == modules | shown | documents
    (entry_points,) = (name for name in info if name.endswith("entry_points.txt"))
    points = zipfile.ZipFile(wheel).read(entry_points).decode()
    assert "[console_scripts]\nmeshnode = meshnode.cli.main:main" in points
    assert "[pyinstaller40]\nhook-dirs = meshnode._pyinstaller:get_hook_dirs" in points
