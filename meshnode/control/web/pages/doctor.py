"""What is wrong with this node, and what to do: the checks of `meshnode doctor`, the worst on top."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from meshnode.control.web.examination import NAMES, Examination, Looked
from meshnode.control.web.live import Wake
from meshnode.control.web.site import Context, Fragment, Page, Query, Web, form_of, said
from meshnode.control.web.texts import count
from meshnode.node.doctorviews import FAIL, PASS, VERDICTS, WARN

_SEE: Final[Mapping[str, tuple[str, str]]] = {  # which page helps further
    "node": ("Mesh", "/"),
    "links": ("Mesh", "/"),
    "streams": ("Mesh", "/"),
    "clock": ("Mesh", "/"),
    "membership": ("Members", "/members"),
    "schema": ("Tables", "/tables"),
    "held": ("Tables", "/tables"),
    "withheld": ("Tables", "/tables"),
    "conflicts": ("Conflicts", "/conflicts"),
    "notices": ("Notices", "/notices"),
}
_SYNC: Final = frozenset({"links", "streams", "held"})  # what a sync may be asked for about
_BADGES: Final = {PASS: "good", WARN: "warn", FAIL: "bad"}
_ONES: Final = {PASS: "pass", WARN: "warn", FAIL: "fail"}


@dataclass(frozen=True, slots=True)
class CheckRow:
    """One check as it is shown."""

    name: str
    looked: Looked | None  # None before it was made
    current: bool  # it is being made

    @property
    def badge(self) -> tuple[str, str]:
        """Kind and text."""
        if self.current:
            return "idle", "looking"
        return ("idle", "waits") if self.looked is None else (_BADGES[self.looked.verdict], self.looked.verdict)

    @property
    def see(self) -> tuple[str, str] | None:
        """The page that helps further, where there is something."""
        return None if self._fine else _SEE.get(self.name)

    @property
    def sync(self) -> bool:
        """Whether asking the others for everything may help."""
        return not self._fine and self.name in _SYNC

    @property
    def _fine(self) -> bool:
        return self.looked is None or self.looked.verdict == PASS


async def _checks(web: Web, _query: Query) -> Context:
    examination = web.examination
    if not examination.begun:
        examination.begin()  # what a page that is opened first begins, all the others share
    return {
        "retired": (await web.looks.status()).retired,
        "rows": rows_of(examination),
        "running": examination.running,
        "current": examination.current,
        "done": examination.done,
        "of": len(examination.wanted),
        "summary": summary_of(examination),
        "latest_ms": max((each.at_ms for each in examination.looked.values()), default=None),
    }


def rows_of(examination: Examination) -> list[CheckRow]:
    """The worst first; of one verdict in the order of the checks, which goes from the home to the mesh."""
    rows = [CheckRow(name, examination.looked.get(name), name == examination.current) for name in NAMES]
    return sorted(rows, key=lambda row: -1 if row.looked is None else VERDICTS.index(row.looked.verdict), reverse=True)


def summary_of(examination: Examination) -> str:
    """One sentence, which a screen reader hears when a run ends."""
    if examination.running:
        return f"{count(len(examination.wanted), 'check')} being made."
    verdicts = [each.verdict for each in examination.looked.values()]
    counts = [f"{verdicts.count(verdict)} {_ONES[verdict]}" for verdict in reversed(VERDICTS)]
    return f"{count(len(verdicts), 'check')}: {', '.join(counts)}."


def _routes(web: Web) -> Sequence[BaseRoute]:
    async def run(request: Request) -> Response:
        form = await form_of(request)
        name = form.get("check", "")
        if not web.examination.begin([name] if name else []):
            return said(web, request, "Checks are being made already: what they find is shown here.", back="/doctor")
        text = f"The check {name} is made again." if name else "All checks are made again."
        return said(web, request, f"{text} What is found is shown here.", back="/doctor")

    return [Route("/doctor/run", run, methods=["POST"])]


PAGE: Final = Page(
    "doctor",
    "Doctor",
    "r",
    fragments=(Fragment("doctor", frozenset({Wake.CHECKS, Wake.COARSE}), _checks),),
    routes=_routes,
)
