"""The demo's table: the IANA zone table `zone1970.tab` as the tzdata package ships it."""

from __future__ import annotations

from importlib import resources

from meshnode.errors import StoreError
from meshnode.node.views import RowChange

TABLE = "zones"
KEY = {"zone": "TEXT"}
COLUMNS = {"countries": "TEXT", "coordinates": "TEXT", "comments": "TEXT", "note": "TEXT"}


def zone_rows() -> list[RowChange]:
    """Every zone: country codes, coordinates, name and, where there are any, comments (tab-separated)."""
    try:
        text = (resources.files("tzdata") / "zoneinfo" / "zone1970.tab").read_text(encoding="utf-8")
    except (ModuleNotFoundError, OSError) as error:
        raise StoreError(f"the zone table is missing: install the tzdata package ({error})") from error
    return [_row(line) for line in text.splitlines() if line and not line.startswith("#")]


def _row(line: str) -> RowChange:
    countries, coordinates, zone, *comments = line.split("\t")
    columns = {"countries": countries, "coordinates": coordinates}
    if comments:
        columns["comments"] = comments[0]
    return RowChange(key={"zone": zone}, columns=columns)
