"""What a vector file's run comes to: how many cases passed, and one line for each that did not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

FAILURES_SHOWN = 100  # of one file; the rest is counted
_SHOWN_CHARACTERS = 120  # of one value in a failure


class FileResult(msgspec.Struct, frozen=True):
    """The result of one file as it is printed."""

    passed: int
    failed: int
    failures: list[str]


class CaseFailedError(Exception):
    """A case did not come out as its vector says."""


class Report:
    """Collects the cases of one file; a case that raises anything is a failed case, not the end of the run."""

    def __init__(self) -> None:
        self._passed = 0
        self._failed = 0
        self._failures: list[str] = []

    @contextmanager
    def case(self, name: str) -> Iterator[None]:
        """Everything inside is one case."""
        try:
            yield
        except CaseFailedError as failure:
            self.fail(f"{name}: {failure}")
        except Exception as error:  # whatever production code raises out of turn is what a vector is to find
            self.fail(f"{name}: {type(error).__name__}: {error}")
        else:
            self._passed += 1

    def fail(self, text: str) -> None:
        """Count one failure."""
        self._failed += 1
        if len(self._failures) < FAILURES_SHOWN:
            self._failures.append(text)

    def result(self) -> FileResult:
        """The run so far."""
        return FileResult(self._passed, self._failed, list(self._failures))


def expect(what: str, found: Any, wanted: Any) -> None:
    """Fail the case unless both are the same value of the same type."""
    if type(found) is not type(wanted) or found != wanted:
        raise CaseFailedError(f"{what} is {_shown(found)}, not {_shown(wanted)}")


def expect_raises(what: str, kind: type[Exception], run: Callable[[], Any]) -> None:
    """Fail the case unless exactly this family of errors is raised."""
    try:
        found = run()
    except kind:
        return
    raise CaseFailedError(f"{what} was accepted as {_shown(found)}")


def _shown(value: Any) -> str:
    text = value.hex() if isinstance(value, bytes) else repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}… ({len(text)} characters)"
