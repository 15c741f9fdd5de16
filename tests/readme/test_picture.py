"""The picture at the head of the README is what the demo shows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]


def test_the_demo_looks_as_its_picture_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "tests" / "readme")
    import picture

    drawn = tmp_path / "demo.svg"
    subprocess.run([sys.executable, picture.__file__, str(drawn)], check=True)
    assert picture.words(drawn.read_text(encoding="utf-8")) == picture.words(
        kept := picture.PICTURE.read_text(encoding="utf-8")
    )
    assert "(tests/readme/demo.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert "url(http" not in kept
    assert "href" not in kept
    assert ElementTree.fromstring(kept).tag == "{http://www.w3.org/2000/svg}svg"
