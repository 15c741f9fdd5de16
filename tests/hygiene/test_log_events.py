"""Everything that is logged is an event of the list, and everything on the list is logged."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from meshnode.model.logevent import LogEvent

PACKAGE = Path(__file__).parents[2] / "meshnode"
LOGGING = {"debug", "info", "warning", "error", "exception", "critical", "log"}
HOME = {"logevent.py", "logs.py"}  # where lines are made and written
AT = {("drive.py", "self._say"): 0, ("logs.py", "Line"): 0}  # where the event stands in other calls that say one


def calls() -> Iterator[tuple[str, ast.Call]]:
    for module in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                yield module.name, node


def test_nothing_is_logged_past_the_list() -> None:
    past = [
        f"{module}:{call.lineno}"
        for module, call in calls()
        if module not in HOME
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in LOGGING
        and ast.unparse(call.func.value).lower() in ("logger", "log", "logging")
    ]
    assert past == []


def test_every_name_of_the_list_is_said_somewhere_and_no_other() -> None:
    said: Counter[str] = Counter()
    for module, call in calls():
        at = AT.get((module, ast.unparse(call.func)), 2 if ast.unparse(call.func) == "log_event" else None)
        if at is not None:
            said[ast.unparse(call.args[at])] += 1
    assert set(said) - {"event"} == {f"LogEvent.{event.name}" for event in LogEvent}


def test_a_name_is_that_of_its_constant() -> None:
    assert [event.value for event in LogEvent] == [event.name.lower().replace("_", "-") for event in LogEvent]
