"""What `doctor` tells: findings, each with its verdict, what was found and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from meshnode.node.views import View

PASS, WARN, FAIL = "pass", "warn", "fail"
VERDICTS = (PASS, WARN, FAIL)  # from the best to the worst


class FindingView(View, frozen=True, kw_only=True):
    """One thing that a check found."""

    check: str
    verdict: str  # pass, warn or fail
    found: str
    todo: str = ""  # what to do about it; empty where nothing is to be done


class DoctorView(View, frozen=True, kw_only=True):
    """All that was found, check by check; the worst of a check's findings is the check's verdict."""

    home: str
    running: bool  # a node answered, and said what only it knows
    software: str = ""  # what looked: the node where one runs, else the program
    verdict: str  # the worst
    findings: tuple[FindingView, ...] = ()


def worst(findings: Sequence[FindingView]) -> str:
    """The verdict over all of them."""
    return max((finding.verdict for finding in findings), key=VERDICTS.index, default=PASS)
