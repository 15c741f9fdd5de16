"""pytest plugin of `.ci/run`: what was skipped, or expected to fail and did, is a failure."""

from __future__ import annotations

from collections.abc import Generator

import pytest

Report = pytest.TestReport | pytest.CollectReport


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Report, Report]:
    """A test, or its set-up."""
    return _strict((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Report, Report]:
    """A whole module."""
    return _strict((yield))


def _strict(report: Report) -> Report:
    if report.skipped:
        report.outcome = "failed"
        vars(report).pop("wasxfail", None)  # or the run's exit code would forgive it
        report.longrepr = f"skipped: {report.longrepr}"
    return report
