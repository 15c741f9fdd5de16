"""`BlockingNode`: from any thread, with iterators and callbacks, to whatever end the program comes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from support.embedded import in_a_fork
from support.nodes import free_port

from meshnode import BlockingNode, CallQueue
from meshnode.errors import ClosedError, NotFoundError, RowError, UsageError
from meshnode.node.blocking_table import BlockingTable
from meshnode.node.opening import Settings

PATIENCE_S = 30.0


@dataclass
class Note:
    id: str
    n: int = 0


def alone() -> Settings:
    """Settings that hear and say nothing beyond loopback."""
    return {"listen": "127.0.0.1", "port": free_port(), "mdns_enabled": False}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[BlockingNode]:
    with BlockingNode.open(tmp_path / "n", name="desk", **alone()) as node:
        yield node


@pytest.fixture
def notes(node: BlockingNode) -> BlockingTable[Note]:
    return node.table("notes", Note).create(key="id")


def test_calls_from_many_threads_wait_for_their_own_results_and_errors(
    node: BlockingNode, notes: BlockingTable[Note]
) -> None:
    def work(number: int) -> int:
        notes.upsert(Note(f"n{number}", number))
        with pytest.raises(NotFoundError):
            notes.patch("none", n=1)
        with pytest.raises(RowError, match="column 'n' of table 'notes'"):
            notes.upsert(Note("x", 2**64))
        found = notes.get(f"n{number}")
        assert found is not None
        return found.n

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(work, range(40))) == list(range(40))
    assert len(list(notes.rows())) == 40
    assert [row.n for row in notes.rows({"n": 7})] == [7]
    assert (node.status().name, node.peers(), node.run(lambda each: each.digest())[0].rows) == ("desk", [], 40)
    with node.transaction() as rows:
        rows.upsert(notes, Note("a"))
        rows.delete(notes, "n1")
        for wrong in (lambda: notes.delete("n2"), lambda: node.put("notes", {"id": "b"}, {})):
            with pytest.raises(UsageError, match="in the middle of a transaction"):
                wrong()
    assert (notes.get("a"), notes.get("n1")) == (Note("a"), None)
    with pytest.raises(ZeroDivisionError):
        _fail_in_a_transaction(node, notes)
    assert notes.get("a") == Note("a")


def _fail_in_a_transaction(node: BlockingNode, notes: BlockingTable[Note]) -> None:
    with node.transaction() as rows:
        rows.delete(notes, "a")
        raise ZeroDivisionError


def test_iterators_wait_for_what_comes_and_end_when_they_are_cancelled_or_the_node_is(
    node: BlockingNode, notes: BlockingTable[Note]
) -> None:
    seen: SimpleQueue[Any] = SimpleQueue()

    def follow(items: Any) -> None:
        for item in items:
            seen.put(item)
        seen.put("over")

    changes, live, plain = notes.changes(since=0), node.live("SELECT count(*) AS n FROM notes"), node.changes(since=0)
    threads = [threading.Thread(target=follow, args=(each,)) for each in (changes, live)]
    for thread in threads:
        thread.start()
    assert seen.get(timeout=PATIENCE_S) == [{"n": 0}]
    notes.upsert(Note("a", 1))
    found = [seen.get(timeout=PATIENCE_S) for _ in range(2)]
    assert [{"n": 1}] in found
    change = next(each for each in found if each != [{"n": 1}])
    assert (change.row, change.new) == (Note("a", 1), {"n": 1})
    changes.cancel()
    assert seen.get(timeout=PATIENCE_S) == "over"
    assert list(changes) == []
    assert next(plain).key == {"id": "a"}
    node.close()
    assert seen.get(timeout=PATIENCE_S) == "over"
    assert list(plain) == []
    for thread in threads:
        thread.join()
    with pytest.raises(NotFoundError), BlockingNode.open(node._node.home.path, **alone()) as again:
        next(again.changes(table="nothing"))


def test_callbacks_run_where_they_belong_and_may_call_the_node(tmp_path: Path) -> None:
    calls, seen = CallQueue(), []
    here = threading.get_ident()

    def run_until(count: int) -> None:
        end = time.monotonic() + PATIENCE_S
        while len(seen) < count and time.monotonic() < end:
            if not calls.run():
                time.sleep(0.001)
        assert len(seen) == count

    with BlockingNode.open(tmp_path / "n", deliver=calls.put, **alone()) as node:
        notes = node.table("notes", Note).create(key="id")

        def changed(change: Any) -> None:
            assert threading.get_ident() == here
            seen.append(notes.get(change.key["id"]))

        subscription = notes.on_changes(changed, since=0)
        live = node.on_live(lambda rows: seen.append(rows), "SELECT id, n FROM notes WHERE n > 1", row=Note)
        run_until(1)
        assert seen.pop() == []
        notes.upsert(Note("a", 1), Note("b", 2))
        run_until(3)
        assert sorted(map(str, seen)) == sorted(map(str, [Note("a", 1), Note("b", 2), [Note("b", 2)]]))
        live.cancel()
        subscription.cancel()
        subscription.cancel()
        notes.upsert(Note("c", 3))
        failed = node.on_changes(print, table="nothing", failed=seen.append)
        run_until(4)
        assert (isinstance(seen[-1], NotFoundError), failed.error) == (True, seen[-1])

        def wrong(_change: Any) -> None:
            raise ZeroDivisionError

        again = notes.on_changes(wrong, since=0)
        with pytest.raises(ZeroDivisionError):  # it comes up in the program, as whatever its toolkit makes of it
            run_until(9)
        again.cancel()


def test_callbacks_have_a_thread_of_their_own_and_one_that_fails_ends_nothing(
    notes: BlockingTable[Note], node: BlockingNode, caplog: pytest.LogCaptureFixture
) -> None:
    seen: SimpleQueue[Any] = SimpleQueue()

    def changed(change: Any) -> None:
        if change.key == {"id": "a"}:
            raise ZeroDivisionError
        node.close() if change.key == {"id": "z"} else notes.upsert(Note("z"))
        seen.put(change.key["id"])

    notes.on_changes(changed)
    notes.on_changes(changed, since=0)
    notes.upsert(Note("a"), Note("b"))
    assert {seen.get(timeout=PATIENCE_S) for _ in range(2)} <= {"b", "z"}
    node.close()
    assert "a callback of the program" in caplog.text


def test_what_is_written_right_after_a_subscription_is_told_to_it(
    node: BlockingNode, notes: BlockingTable[Note]
) -> None:
    """Following begins on the node's thread, later than the call: a write must not come in between."""
    seen: SimpleQueue[Any] = SimpleQueue()
    following = node.changes(table="notes"), notes.changes()
    for _ in range(20):
        notes.on_changes(seen.put)
        node.on_changes(seen.put, table="notes")
    notes.upsert(Note("a", 1))
    notes.upsert(Note("a", 2))
    assert [next(changes).seq for changes in following] == [node.seq() - 1] * 2
    assert {seen.get(timeout=PATIENCE_S).seq for _ in range(80)} == {node.seq() - 1, node.seq()}


def test_a_callback_that_is_none_is_told_at_once(node: BlockingNode) -> None:
    """In the order of `live`, the query would be the callback: nobody would ever hear that it is none."""
    swapped: Any = node.on_live
    with pytest.raises(UsageError, match="not 'SELECT 1'"):
        swapped("SELECT 1", print)


def test_a_call_that_would_wait_for_itself_is_told(tmp_path: Path) -> None:
    told: SimpleQueue[Any] = SimpleQueue()
    with BlockingNode.open(tmp_path / "n", deliver=lambda call: call(), **alone()) as node:
        notes = node.table("notes", Note).create(key="id")

        def changed(_change: Any) -> None:
            try:
                notes.get("a")
            except UsageError as error:
                told.put(str(error))

        notes.on_changes(changed, since=0)
        notes.upsert(Note("a"))
        assert "would wait for itself" in told.get(timeout=PATIENCE_S)


def test_after_closing_from_any_thread_every_call_says_so(tmp_path: Path) -> None:
    node = BlockingNode.open(tmp_path / "n", **alone())
    outcome: SimpleQueue[Any] = SimpleQueue()

    def wait() -> None:
        try:
            outcome.put(node.run(lambda each: each.wait_closed()))
            node.invited("none", timeout_s=PATIENCE_S)
        except ClosedError as error:
            outcome.put(str(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    closing = [threading.Thread(target=node.close) for _ in range(3)]
    for thread in closing:
        thread.start()
    for thread in (*closing, waiting):
        thread.join(PATIENCE_S)
    assert outcome.get(timeout=PATIENCE_S) in (None, "this node was closed while it was being asked")
    for misused in (node.status, lambda: node.on_changes(print), lambda: node.table("t").upsert({"id": "a"})):
        with pytest.raises(ClosedError, match="was closed: open its home again"):
            misused()
    with BlockingNode.open(tmp_path / "n", patience_s=0.0, **alone()):
        pass  # lock and port are free


def test_a_fork_is_told_that_the_node_is_not_its_own(node: BlockingNode) -> None:
    assert in_a_fork(node.status).startswith("this node belongs to process")
    assert in_a_fork(node.close) == ""  # and ends nothing
    assert node.status().running


def test_interrupting_a_wait_leaves_the_node_as_it_was(node: BlockingNode, notes: BlockingTable[Note]) -> None:
    def wait() -> None:
        threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
        next(notes.changes())

    with pytest.raises(KeyboardInterrupt):
        wait()
    notes.upsert(Note("a"))
    assert notes.get("a") == Note("a")


PROGRAM = """
import sys
from meshnode import BlockingNode
node = BlockingNode.open(sys.argv[1], listen="127.0.0.1", port=int(sys.argv[2]), mdns_enabled=False)
table = node.table("t")
node.add_table("t", {"id": "TEXT"}, {})
node.on_changes(lambda change: None)
node.put("t", {"id": "a"}, {})
print("runs", flush=True)
"""


@pytest.mark.parametrize(
    ("end", "code"), [("raise SystemExit(3)", 3), ("next(table.changes())", -signal.SIGINT)], ids=["ends", "Ctrl-C"]
)
def test_a_program_that_never_closes_ends_all_the_same(tmp_path: Path, end: str, code: int) -> None:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM + end, str(tmp_path / "n"), str(free_port())],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "runs\n"
    if code < 0:
        program.send_signal(signal.SIGINT)
    _, errors = program.communicate(timeout=PATIENCE_S)
    assert (program.returncode, errors.count("Traceback")) == (code, int(code < 0)), errors
    assert (tmp_path / "n" / "lock").read_bytes() == b""  # released, not only dropped
