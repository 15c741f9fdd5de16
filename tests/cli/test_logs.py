"""The log of a running node: one line an event, whatever a peer says in it, as text or JSON, at a bounded rate."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.nodes import Process

from meshnode.cli.logs import LINES, SUBJECTS, JsonLines, Limit, TextLines, log_to_stderr
from meshnode.model.logevent import VALUE_CHARACTERS, Line, LogEvent, log_event


@pytest.fixture(autouse=True)
def quiet_afterwards() -> Iterator[None]:
    root, ours = logging.getLogger(), logging.getLogger("meshnode")
    before = (list(root.handlers), root.level, ours.level)
    yield
    root.handlers[:], root.level = before[0], before[1]
    ours.setLevel(before[2])


def record(event: LogEvent = LogEvent.LINK_DOWN, at: float = 0.0, **values: object) -> logging.LogRecord:
    made = logging.LogRecord("meshnode.x", logging.INFO, "", 0, "%s", (Line(event, values),), None)
    made.created = at
    return made


@given(st.text(max_size=2 * VALUE_CHARACTERS))
def test_a_peers_words_stay_one_value_of_one_line(words: str) -> None:
    text = TextLines().format(record(peer="1eed29b1", reason=words, by="peer"))
    assert text.isprintable()
    assert len(text) < VALUE_CHARACTERS * 12
    assert text.endswith(" by=peer")
    _, _, rest = text.partition(" reason=")
    shown = rest.removesuffix(" by=peer")
    assert isinstance(json.loads(shown), str) if shown.startswith('"') else " " not in shown and "=" not in shown
    whole = JsonLines().format(record(reason=words))
    assert whole.isprintable()
    assert json.loads(whole)["event"] == "link-down"


def test_both_forms_say_the_same() -> None:
    values = {"peer": "1eed29b1", "address": "[fe80::1%2]:4747", "events": 3, "seconds": 0.25, "reason": "a b=c"}
    text = TextLines().format(record(LogEvent.LINK_UP, 1_800_000_000.125, **values))
    assert text == (
        "2027-01-15T08:00:00.125Z INFO link-up peer=1eed29b1 address=[fe80::1%2]:4747 events=3 seconds=0.25"
        ' reason="a b=c"'
    )
    said = json.loads(JsonLines().format(record(LogEvent.LINK_UP, 1_800_000_000.125, **values)))
    assert said == {"time": "2027-01-15T08:00:00.125Z", "level": "info", "event": "link-up", **values}


def test_a_traceback_cannot_pass_for_lines_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    for form in ("text", "json"):
        written = io.StringIO()
        monkeypatch.setattr("sys.stderr", written)
        log_to_stderr(form=form)
        try:
            raise ValueError("\n2027-01-15T08:00:00.125Z INFO member-joined\x1b[2J")
        except ValueError:
            log_event(logging.getLogger("meshnode.x"), logging.ERROR, LogEvent.FAULT, trace=True, work="a test")
        first, *rest = written.getvalue().splitlines()
        assert "fault" in first
        assert all(line.startswith("    ") for line in rest)
        assert bool(rest) == (form == "text")
        assert "\x1b" not in written.getvalue()


def test_a_library_is_heard_from_warnings_on_and_as_one_event(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    log_to_stderr(level="debug", form="json")
    logging.getLogger("other").info("quiet")
    logging.getLogger("other").warning("said %s", "twice\nfake")
    (line,) = written.getvalue().splitlines()
    assert json.loads(line)["text"] == "said twice\\nfake"


def test_nobody_can_cause_lines_without_end() -> None:
    limit = Limit()
    passed = [each for each in range(1000) if limit.filter(record(at=each / 100, peer="1eed29b1"))]
    assert len(passed) == LINES
    assert limit.filter(record(at=10, peer="2eed29b1")), "another peer has its own"
    assert limit.filter(record(LogEvent.NOTICE, at=10, peer="1eed29b1")), "and so has another event"
    later = record(at=61, peer="1eed29b1")
    assert limit.filter(later)
    assert f"left_out={1000 - LINES}" in TextLines().format(later)
    assert json.loads(JsonLines().format(later))["left_out"] == 1000 - LINES


def test_invented_names_share_one_bound() -> None:
    limit = Limit()
    passed = sum(limit.filter(record(at=1, peer=f"{number:08x}")) for number in range(10 * SUBJECTS))
    assert passed == SUBJECTS + LINES


async def test_a_node_speaks_json_and_nothing_else(tmp_path: Path) -> None:
    quiet = ("--listen", "127.0.0.1", "--no-mdns")
    process = Process(tmp_path / "n", *quiet, "--log-format", "json", "--log-level", "debug")
    async with process:
        await process.client.add_table("notes", {"id": "TEXT"}, {"title": "TEXT"})
        await process.client.put("notes", {"id": "n1"}, {"title": "a title that is nobody's business"})
        site = (await process.client.status()).site
    lines = [json.loads(line) for line in process.said if line]
    events = {line["event"]: line for line in lines}
    assert events["node-up"]["site"] == site
    assert events["founded"]["recovery_key"].endswith("recovery.key")
    assert (events["batch-committed"]["lane"], events["batch-committed"]["events"]) == ("own", 1)
    assert "business" not in json.dumps(lines)
