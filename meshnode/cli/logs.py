"""How a running node writes its log to standard error: a line an event, as text or JSON, at a bounded rate."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

from meshnode.cli.output import printable
from meshnode.model.logevent import Line, LogEvent, clean, without_invites

FORMATS: Final = ("text", "json")
LEVELS: Final = ("debug", "info", "warning", "error")
LINES: Final = 60  # of one event and peer in PAUSE_S: a member can link and leave without end
PAUSE_S: Final = 60.0
SUBJECTS: Final = 1024  # (event, peer) pairs told apart; beyond them all share one


def log_to_stderr(*, level: str = "info", form: str = "text") -> None:
    """Send the node's events there; libraries speak up for warnings alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    handler.addFilter(Limit())
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("meshnode").setLevel(level.upper())
    # It warns with a traceback of every network that went away; discovery says in its state what that means.
    logging.getLogger("zeroconf").setLevel(logging.ERROR)


class Limit(logging.Filter):
    """Passes so many lines of one event and peer a minute; the next one that passes says how many did not."""

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[tuple[str, str], tuple[float, int]] = {}  # since when, and how many lines

    def filter(self, record: logging.LogRecord) -> bool:
        line = line_of(record)
        subject = (line.event.value, str(line.values.get("peer") or line.values.get("lane") or ""))
        if subject not in self._seen and len(self._seen) >= SUBJECTS:
            subject = ("", "")
        since, lines = self._seen.get(subject, (record.created, 0))
        if record.created - since >= PAUSE_S or record.created < since:
            record.__dict__["left_out"] = max(lines - LINES, 0)
            since, lines = record.created, 0
        self._seen[subject] = (since, lines + 1)
        return lines < LINES


def line_of(record: logging.LogRecord) -> Line:
    """The event of a record; what a library says is one too."""
    if isinstance(record.args, tuple) and len(record.args) == 1 and isinstance(record.args[0], Line):
        return record.args[0]
    return Line(LogEvent.LIBRARY, {"source": record.name, "text": record.getMessage()})


class TextLines(logging.Formatter):
    """`2026-12-01T09:30:00.125Z INFO link-up peer=1eed29b1 address=192.0.2.7:4747`; a traceback stands indented."""

    def format(self, record: logging.LogRecord) -> str:
        left_out = f" left_out={_left_out(record)}" if _left_out(record) else ""
        lines = [f"{_time(record)} {record.levelname} {line_of(record)}{left_out}"]
        return "\n".join(lines + [f"    {printable(each)}" for each in _trace(self, record)])


class JsonLines(logging.Formatter):
    """An object a line: `time`, `level`, `event`, then the values of the event, `left_out` and `trace`."""

    def format(self, record: logging.LogRecord) -> str:
        line = line_of(record)
        said = {name: clean(value) if isinstance(value, str) else value for name, value in line.values.items()}
        whole: dict[str, object] = {"time": _time(record), "level": record.levelname.lower(), "event": line.event.value}
        whole.update(said)
        if _left_out(record):
            whole["left_out"] = _left_out(record)
        trace = _trace(self, record)
        if trace:
            whole["trace"] = [printable(each) for each in trace]
        return json.dumps(whole, ensure_ascii=False, separators=(",", ":"))


def _trace(formatter: logging.Formatter, record: logging.LogRecord) -> Sequence[str]:
    """The lines of a traceback: messages in it may be a peer's words."""
    if not record.exc_info:
        return ()
    return [without_invites(line) for line in formatter.formatException(record.exc_info).split("\n")]


def _left_out(record: logging.LogRecord) -> int:
    """How many lines like this one were left out before it."""
    return int(getattr(record, "left_out", 0))


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
