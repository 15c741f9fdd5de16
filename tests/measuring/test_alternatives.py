"""The table of other programs at the same work: this node's line, and what it says of one that is not installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_what_is_there_is_measured_and_of_the_rest_it_says_how_to_install_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.bench.alternatives", "--only", "meshnode", "--only", "hyperbee", "--json"]
    numbers = ["--changes", "100", "--live", "2", "--dir", str(tmp_path), "--npm", str(tmp_path)]
    found = subprocess.run([*command, *numbers], cwd=ROOT, capture_output=True, text=True, check=True)
    own, other = json.loads(found.stdout)
    assert (own.pop("peer"), own.pop("note")) == ("meshnode", "each change signed; fsync before the ack")
    assert all(value > 0 for value in own.values()), own
    assert set(own) >= {"author_per_s", "catch_up_per_s", "live_median_ms", "live_p99_ms"}
    assert other["note"].startswith(f"not installed: npm install --prefix {tmp_path} hyperbee corestore hypercore")
    assert list(tmp_path.iterdir()) == []
