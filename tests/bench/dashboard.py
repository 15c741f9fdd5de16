"""How soon the dashboard's pages paint on loopback: a table of 100,000 rows, its log, and a mesh of 50 members.

`python tests/bench/dashboard.py [ROWS]` prints, for each page, the browser's own first contentful paint, how long the
node took to answer, and how many nodes the page has. The bound is 500 ms.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.dashboard import MeshInMemory, Served, chromium, large_mesh, visiting
from support.nodes import loopback

from meshnode import Node
from meshnode.node.api import ROWS_PER_IMPORT
from meshnode.node.views import RowChange

TIMES = 5
MEASURE = """() => ({
  paint: performance.getEntriesByName('first-contentful-paint')[0].startTime,
  answered: performance.getEntriesByType('navigation')[0].responseEnd,
  nodes: document.querySelectorAll('*').length,
})"""


def measure(browser: Browser, node: Node | MeshInMemory, paths: list[str], rows: int = 0) -> None:
    with Served(node) as served:
        if rows:
            fill(served, rows)
        with visiting(browser, served, viewport={"width": 1600, "height": 1000}) as (page, _):
            for path in paths:
                taken = []
                for _each in range(TIMES):
                    page.goto(served.origin + path)
                    while not page.evaluate("performance.getEntriesByName('first-contentful-paint').length"):
                        page.wait_for_timeout(20)
                    taken.append(page.evaluate(MEASURE))
                taken.sort(key=lambda each: each["paint"])
                half, worst = taken[TIMES // 2], taken[-1]
                print(
                    f"{path:55} paint {half['paint']:4.0f} ms, at worst {worst['paint']:4.0f} ms,"
                    f" answered {half['answered']:4.0f} ms, {half['nodes']:,} nodes",
                    flush=True,
                )


def fill(served: Served, rows: int) -> None:
    served.do(served.node.add_table("notes", {"id": "TEXT"}, {"title": "TEXT", "done": "INTEGER"}))
    for first in range(0, rows, ROWS_PER_IMPORT):
        batch = range(first, min(first + ROWS_PER_IMPORT, rows))
        changes = [RowChange(key={"id": f"n{at:06}"}, columns={"title": f"Milk {at}", "done": 0}) for at in batch]
        served.do(served.node.import_rows("notes", changes))


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    middle = f'{{"id":"n{rows // 2:06}"}}'
    paths = ["/", "/tables", "/tables/rows?table=notes", f"/tables/rows?table=notes&after={middle}"]
    paths += [f"/tables/row?table=notes&key={middle}", "/events", f"/events?upto={rows // 2}"]
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = chromium(playwright)
        print("50 members:")
        measure(browser, large_mesh(50), ["/"])
        print(f"{rows:,} rows:")
        measure(browser, Node(Path(folder) / "n", config=loopback(name="desk")), paths, rows)
        browser.close()


if __name__ == "__main__":
    main()
