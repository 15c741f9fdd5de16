"""Draws the README's picture: the demo as a terminal shows it once it is over, as SVG.

    python tests/readme/picture.py [FILE]

It is the record of one run. What differs in the next one, `words` leaves out.
"""

from __future__ import annotations

import asyncio
import io
import re
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from rich.console import Console
from rich.terminal_theme import MONOKAI

from meshnode.cli.demonstration.screen import Screen, summary
from meshnode.cli.demonstration.story import Story

PICTURE = Path(__file__).parent / "demo.svg"
COLUMNS = 92  # of the terminal
VARYING = (
    (r"\b[0-9a-f]{32}\b", "digest"),
    (r"\b[0-9a-f]{8}\b", "site"),
    (r"\d+\.\d s", "seconds"),
    (r"\d+", "number"),  # process ids, how far a write had come, how many zones there are this year
)
_FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


def drawn() -> str:
    """Run the demo, and draw what it prints; nothing in the picture is loaded from elsewhere."""
    console = Console(file=io.StringIO(), width=COLUMNS, record=True, highlight=False)
    console.print("[green]$[/green] meshnode demo")
    with tempfile.TemporaryDirectory(prefix="meshnode-demo-") as folder:
        result = asyncio.run(Story(Path(folder), Screen(console)).run())
    summary(console, result, None)
    return _FONT.sub("", console.export_svg(title="meshnode demo", theme=MONOKAI, unique_id="demo"))


def words(picture: str) -> list[str]:
    """What stands in it, word by word, without what another run has others of."""
    shown = " ".join("".join(text.itertext()) for text in ElementTree.fromstring(picture).iter() if _is_text(text))
    shown = shown.replace("\N{NO-BREAK SPACE}", " ")
    for pattern, name in VARYING:
        shown = re.sub(pattern, name, shown)
    return shown.split()


def _is_text(element: ElementTree.Element) -> bool:
    return element.tag.endswith("}text")


if __name__ == "__main__":
    (Path(sys.argv[1]) if len(sys.argv) > 1 else PICTURE).write_text(drawn(), encoding="utf-8")
