"""This project's node and others at the same work in one run, and one table; what is not installed says how to.

    python -m tests.bench.alternatives [--python PROGRAM] [--node PROGRAM] [--npm FOLDER] [--only NAME] [--json]

10,000 changes of rows with five columns and 114 bytes of values, and 200 live writes. `--python` is an interpreter in
which this project and the Python peers are installed, `--npm` the folder that has `node_modules`, `--node` a Node of
version 22 or later. The figures are comparable only with what the last column says: what a peer signs, and what is on
the disk when it counts a change as there.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.bench.alternatives.driving import Result, run

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[3]
SCRIPTS = "meshnode-alternatives"  # folder beside `node_modules`: Node looks for packages from a script's own place


@dataclass(frozen=True, slots=True)
class Alternative:
    """One peer: the modules or packages that it needs, as they are installed, and how it differs."""

    script: str
    modules: tuple[str, ...]
    packages: tuple[str, ...]
    note: str
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def in_node(self) -> bool:
        """Whether it is a script for Node."""
        return self.script.endswith(".mjs")


def _npm(script: str, note: str, *packages: str, **settings: str) -> Alternative:
    return Alternative(script, packages, packages, note, tuple(settings.items()))


ALTERNATIVES = {
    "meshnode": Alternative("peer_meshnode.py", ("meshnode",), (".",), "each change signed; fsync before the ack"),
    "libp2p": Alternative(
        "peer_libp2p.py",
        ("meshnode", "libp2p"),
        (".", "libp2p"),
        "the same events and engine on one TCP stream, apply in line; fsync before the ack",
    ),
    "loro": Alternative("peer_loro.py", ("loro",), ("loro",), "unsigned; file without fsync; plain TCP"),
    "pycrdt": Alternative(
        "peer_pycrdt.py",
        ("pycrdt", "pycrdt.store", "pycrdt.websocket", "websockets"),
        ("pycrdt", "pycrdt-store", "pycrdt-websocket", "websockets"),
        "unsigned; merged state; SQLite with fsync by update",
    ),
    "hyperbee": _npm(
        "peer_hyperbee.mjs", "signed log of one writer; no fsync", "hyperbee", "corestore", "hypercore", BATCH="500"
    ),
    "autobase": _npm(
        "peer_autobase.mjs", "signed logs of many writers; no fsync", "autobase", "corestore", "hyperbee", BATCH="500"
    ),
    "automerge": _npm(
        "peer_automerge.mjs", "unsigned; files without fsync", "@automerge/automerge-repo",
        "@automerge/automerge-repo-network-websocket", "@automerge/automerge-repo-storage-nodefs", "ws",
        BATCH="500", STR="raw",
    ),
    "orbitdb": _npm(
        "peer_orbitdb.mjs", "each change signed; one by one, no fsync", "@orbitdb/core", "helia", "libp2p",
        "blockstore-level", "@libp2p/gossipsub", "@libp2p/identify", "@libp2p/tcp", "@chainsafe/libp2p-noise",
        "@chainsafe/libp2p-yamux", "@multiformats/multiaddr",
    ),
}  # fmt: skip


def missing(each: Alternative, python: str, node: str | None, npm: Path | None) -> str | None:
    """The command that installs what it lacks; None where it can run."""
    if each.in_node:
        have = npm is not None and all((npm / "node_modules" / name).is_dir() for name in each.modules)
        if have and node is not None:
            return None
        folder = npm or Path("FOLDER")
        return (
            f"npm install --prefix {folder} {' '.join(each.packages)}, and --npm {folder}, --node PROGRAM (22 or later)"
        )
    imports = f"import {', '.join(each.modules)}"
    found = subprocess.run([python, "-c", imports], capture_output=True, env=_environment(), check=False)
    return None if found.returncode == 0 else f"{python} -m pip install {' '.join(each.packages)}"


def measured(each: Alternative, options: argparse.Namespace, folder: Path) -> Result:
    """Run it in a folder of its own."""
    command = [options.python, str(HERE / each.script)]
    if each.in_node:
        scripts = options.npm / SCRIPTS
        scripts.mkdir(exist_ok=True)
        for script in HERE.glob("*.mjs"):
            shutil.copy(script, scripts)
        command = [options.node, str(scripts / each.script)]
    numbers = {"N": str(options.changes), "LIVE": str(options.live)}
    return run(command, folder, {**_environment(), **numbers, **dict(each.settings)}, options.changes)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join((str(HERE), str(ROOT)))}


def _row(name: str, each: Alternative, options: argparse.Namespace) -> dict[str, object]:
    lacks = missing(each, options.python, options.node, options.npm)
    if lacks is not None:
        return {"peer": name, "note": f"not installed: {lacks}"}
    print(f"{name} …", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=options.dir, ignore_cleanup_errors=True) as folder:
        try:
            return {"peer": name, **asdict(measured(each, options, Path(folder))), "note": each.note}
        except (TimeoutError, EOFError) as error:
            said = (Path(folder) / "stderr.txt").read_text(errors="replace").strip().splitlines()
            return {"peer": name, "note": f"failed: {error}: {said[-1] if said else 'it said nothing'}"}


def _print(rows: Sequence[dict[str, object]]) -> None:
    names = {
        "peer": "peer", "author_per_s": "author/s", "catch_up_per_s": "catch-up/s", "live_median_ms": "live ms",
        "live_p99_ms": "99 % ms", "peak_mb": "peak MB", "bytes_per_change": "bytes each", "note": "what it is",
    }  # fmt: skip
    cells = [list(names.values())]
    for row in rows:
        found = (row.get(name, "") for name in names)
        cells.append(
            [f"{each:,.{0 if each >= 100 else 1}f}" if isinstance(each, float) else str(each) for each in found]
        )
    widths = [max(len(line[at]) for line in cells) for at in range(len(names))]
    for line in cells:
        print("  ".join(f"{text:{width}}" for text, width in zip(line, widths, strict=True)).rstrip())


def main() -> None:
    """Run what is installed, and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--node", default=shutil.which("node"))
    parser.add_argument("--npm", type=Path)
    parser.add_argument("--only", action="append", choices=list(ALTERNATIVES))
    parser.add_argument("--changes", type=int, default=10_000)
    parser.add_argument("--live", type=int, default=200)
    parser.add_argument("--dir", type=Path)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.npm = None if options.npm is None else options.npm.absolute()
    rows = [_row(name, each, options) for name, each in ALTERNATIVES.items() if name in (options.only or ALTERNATIVES)]
    print(json.dumps(rows)) if options.json else _print(rows)


if __name__ == "__main__":
    main()
