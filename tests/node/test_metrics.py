"""Metrics: the text that a scraper reads, what two nodes measure of each other, and that a peer cannot bloat it."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from support.memory_node import MemoryNode
from support.nodes import PATIENCE_S, TABLE, free_port, linked, loopback, note, pair_of_homes, until

from meshnode import Node
from meshnode.codec.framing import frame
from meshnode.control.metrics_port import metrics_port
from meshnode.errors import CloseCode, MeshError, TransportError
from meshnode.model.frames import Bye, Links, Open, encode_frame
from meshnode.model.metering import OTHER, Counts, Histogram
from meshnode.net.addresses import parse_address
from meshnode.node.local import open_local
from meshnode.node.meter import Meter
from meshnode.node.metricviews import MetricView, Sample, exposition, histogram, labelled
from meshnode.sync.framecounts import KINDS, FrameCounts

CLOSED = {
    "direction": {"received", "sent", "incoming", "outgoing"},
    "lane": {"own", "peers"},
    "by": {"here", "peer"},
    "file": {"main", "wal"},
    "kind": KINDS | {"joined", "clock-offset"},
}


def parsed(metrics: list[MetricView]) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Every number by name and labels, as another implementation reads the text."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(exposition(metrics))
        for sample in family.samples
    }


@given(
    st.dictionaries(st.tuples(st.text(st.characters(exclude_categories=["Cs"]), max_size=8)), st.floats(), max_size=4)
)
def test_any_label_and_number_is_read_back(values: dict[tuple[str, ...], float]) -> None:
    read = parsed([labelled("m", "gauge", "With \\ and \n in it.", ["x"], values)])
    assert {labels[0][1]: repr(float(value) + 0.0) for (_, labels), value in read.items()} == {
        key[0]: repr(value + 0.0) for key, value in values.items()
    }


def test_a_histogram_adds_up() -> None:
    measured = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 7.0):
        measured.observe(value)
    read = parsed([histogram("h", "Seconds.", measured)])
    assert [read["h_bucket", (("le", le),)] for le in ("0.1", "1", "+Inf")] == [2, 3, 4]
    assert (read["h_sum", ()], read["h_count", ()]) == (pytest.approx(7.65), 4)


def test_what_a_peer_may_choose_ends_in_one_series() -> None:
    counts = Counts(most=3)
    for number in range(10):
        counts.add("received", f"kind-{number}")
    assert counts.read() == {("received", f"kind-{number}"): 1 for number in range(3)} | {(OTHER, OTHER): 7}


def test_frames_are_counted_by_kind_without_decoding_them() -> None:
    counts = FrameCounts()
    for message in (Bye(code=0, reason=""), Links(sites=[bytes(16)]), Open(epoch=bytes(8), next=1)):
        counts.sent(frame(encode_frame(message)))
        counts.received(encode_frame(message))
    for broken in (b"", b"\xa1", b"\xa1at", b"\xa1atx", b"\xa1at\x7f" + b"z" * 40, b"\xa1at\x64\xff\xff\xff\xff"):
        counts.received(broken)
    seen = counts.frames.read()
    assert seen == {(way, kind): 1 for way in ("sent", "received") for kind in ("bye", "links", "open")} | {
        ("received", OTHER): 6
    }
    assert counts.bytes.read()["sent", "open"] == counts.bytes.read()["received", "open"]


async def test_a_dial_is_counted_by_how_it_ended() -> None:
    meter = Meter(lambda: 0.0)
    ends: list[MeshError | bytes] = [
        b"site",
        TransportError("no answer within 10 s"),
        TransportError("retired", CloseCode.RETIRED),
    ]

    async def dial(_address: object, _expected: object, _answers: object) -> bytes:
        end = ends.pop(0)
        if isinstance(end, MeshError):
            raise end
        return end

    counted = meter.counted(dial)
    for _ in range(3):
        await asyncio.gather(counted(parse_address("127.0.0.1:1"), None, lambda: None), return_exceptions=True)
    assert meter.dials.read() == {("linked",): 1, ("no-answer",): 1, ("retired",): 1}


async def test_two_nodes_measure_what_passes_between_them(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    homes = await pair_of_homes(tmp_path, ports)
    async with (
        Node(homes[0], config=loopback(port=ports[0])) as a,
        Node(homes[1], config=loopback(ports[0], port=ports[1])) as b,
    ):
        await linked(b, a)
        await a.import_rows(TABLE, [note(number, "secret title") for number in range(40)])
        assert (await a.wait(timeout_s=PATIENCE_S)).complete

        async def settled() -> bool:
            return parsed(await b.metrics()).get(("meshnode_link_in_flight_frames", (("peer", short),))) == 0

        short = (await a.status()).short
        await until(b, settled)
        here, there = await a.metrics(), await b.metrics()
        at_a, at_b = parsed(here), parsed(there)
        assert at_b["meshnode_events_total", (("reason", ""), ("verdict", "applied"))] == 40
        assert at_b["meshnode_log_events", ()] == at_a["meshnode_log_events", ()] == 40
        assert at_b["meshnode_rows", ()] == 40
        assert at_b["meshnode_links", ()] == 1
        sent = at_a["meshnode_link_bytes", (("direction", "sent"), ("peer", (await b.status()).short))]
        assert sent > 40 * 100
        assert sent >= at_b["meshnode_link_bytes", (("direction", "received"), ("peer", short))] > 40 * 100
        assert at_b["meshnode_batch_events_sum", ()] == 40
        assert at_a["meshnode_frames_total", (("direction", "sent"), ("kind", "hello"))] >= 1  # both may have dialed
        assert at_b["meshnode_frames_total", (("direction", "received"), ("kind", "hello"))] >= 1
        sent = [value for (name, labels), value in at_a.items() if _is_of(name, labels, "sent", ("batch", "live"))]
        got = [value for (name, labels), value in at_b.items() if _is_of(name, labels, "received", ("batch", "live"))]
        assert 0 < sum(got) <= sum(sent)
        assert at_b["meshnode_peer_behind_events", (("peer", short),)] == 0
        assert at_b["meshnode_peer_linked", (("peer", short),)] == 1
        for name in ("meshnode_commit_seconds_count", "meshnode_quic_bytes_total", "process_cpu_seconds_total"):
            assert max(value for (found, _), value in at_b.items() if found == name) > 0
        members = {(await node.status()).short for node in (a, b)}
        for metric in (*here, *there):
            _check_labels(metric, members)
        assert "secret title" not in exposition(here)
        assert TABLE not in exposition(here)


def _is_of(name: str, labels: tuple[tuple[str, str], ...], direction: str, kinds: tuple[str, ...]) -> bool:
    found = dict(labels)
    return name == "meshnode_frame_bytes_total" and found["direction"] == direction and found["kind"] in kinds


def _check_labels(metric: MetricView, members: set[str]) -> None:
    assert re.fullmatch(r"(meshnode|process)_[a-z_]+", metric.name)
    assert metric.kind != "counter" or metric.name.endswith("_total")
    for sample in metric.samples:
        for label, value in sample.labels.items():
            if label == "peer":
                assert value in members
            else:
                assert value in CLOSED.get(label, {value})
                assert re.fullmatch(r"[a-zA-Z0-9.+-]*", value)


async def test_without_a_running_node_the_store_is_told(tmp_path: Path) -> None:
    async with Node(tmp_path / "n", config=loopback()) as node:
        home = node.home
    async with open_local(home, writing=False) as alone:
        read = parsed(await alone.metrics())
    assert read["meshnode_up", ()] == 0
    assert not any(name.startswith("process_") for name, _ in read)


@asynccontextmanager
async def scraping(port: int) -> AsyncIterator[None]:
    async with metrics_port(MemoryNode(), port):
        yield


async def fetch(port: int, host: str, path: str = "/metrics", method: str = "GET") -> tuple[int, str, str]:
    """Status, head and body of one request."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(f"{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    await writer.wait_closed()
    head, _, body = answer.partition("\r\n\r\n")
    return int(head.split()[1]), head.lower(), body


def tcp_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_a_port_that_is_taken_is_logged_and_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taking:
        async with scraping(taking.getsockname()[1]):
            assert "meshnode config set metrics_port N" in caplog.text


async def test_the_port_answers_this_machine_and_no_web_page() -> None:
    port = tcp_port()
    async with scraping(port):
        status, head, body = await fetch(port, f"localhost:{port}")
        assert (status, body) == (200, exposition(await MemoryNode().metrics()))
        assert "text/plain; version=0.0.4" in head
        assert (await fetch(port, f"127.0.0.1:{port}"))[0] == 200
        assert (await fetch(port, "evil.example"))[0] == 400
        assert (await fetch(port, f"127.0.0.1.evil.example:{port}"))[0] == 400
        assert (await fetch(port, "localhost", "/v1/status"))[0] == 404
        assert (await fetch(port, "localhost", method="POST"))[0] == 405
        with socket.socket() as other, pytest.raises(OSError, match="refused"):
            other.connect(("127.0.0.2", port))
    with pytest.raises(OSError, match="Connect"):
        await fetch(port, "localhost")


def test_a_sample_without_labels_has_no_braces() -> None:
    view = MetricView(name="m", kind="gauge", help="One.", samples=[Sample(value=1.5)])
    assert exposition([view]) == "# HELP m One.\n# TYPE m gauge\nm 1.5\n"
