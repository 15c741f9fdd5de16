"""What a path carries, found and given up again without losing the link, and whether a peer is there (profile §7)."""

from __future__ import annotations

import random

import pytest
from aioquic.quic.events import ConnectionTerminated
from hypothesis import given
from hypothesis import strategies as st
from support.quic_wire import Wire

from meshnode.limits import DATAGRAM_BYTES, DATAGRAM_SIZES
from meshnode.net.path_size import AGAIN_S, LOSSES, RAISE_S, TRIES, PathSize

PATIENCE_S = 0.5
PATHS = st.integers(DATAGRAM_BYTES, 10_000)


def fitting(carried: int) -> int:
    """The largest size that passes."""
    return max((size for size in DATAGRAM_SIZES if size <= carried), default=DATAGRAM_BYTES)


def search(path: PathSize, carried: int, now: float, refused: bool = False) -> tuple[float, list[int]]:
    """Probe until nothing is due: when that is, and which sizes were sent."""
    sent: list[int] = []
    while (probe := path.probe(now, PATIENCE_S)) is not None:
        sent.append(probe.size)
        if probe.size <= carried:
            path.probe_arrived(probe)
        elif refused:
            path.refused(probe.size, now)
        else:
            now += PATIENCE_S
    return now, sent


# --- the search alone


@given(PATHS, st.booleans())
def test_a_search_ends_at_the_largest_size_that_passes(carried: int, refused: bool) -> None:
    path = PathSize(DATAGRAM_SIZES)
    assert path.size == DATAGRAM_BYTES
    now, sent = search(path, carried, 0.0, refused)
    assert path.size == fitting(carried)
    assert len(sent) <= len(DATAGRAM_SIZES) + TRIES
    assert path.next_at() == now + RAISE_S
    search(path, 10_000, now + RAISE_S)
    assert path.size == DATAGRAM_SIZES[-1], "a path that grew is found out later"


@given(
    PATHS,
    st.lists(
        st.tuples(
            st.sampled_from(["probe", "arrive", "lose", "time", "data", "loss", "refuse", "move"]), st.integers(0, 9000)
        ),
        max_size=80,
    ),
)
def test_whatever_happens_nothing_larger_than_what_passed_is_used(carried: int, steps: list[tuple[str, int]]) -> None:
    path, now, under_way = PathSize(DATAGRAM_SIZES), 0.0, None
    for step, number in steps:
        before = path.size
        match step:
            case "probe":
                under_way = path.probe(now, PATIENCE_S) or under_way
            case "arrive" if under_way is not None and under_way.size <= carried:
                path.probe_arrived(under_way)
            case "lose" if under_way is not None:
                path.probe_lost(under_way)
            case "time":
                now += number / 10
            case "data":
                path.arrived(min(number, path.size))
            case "loss":
                path.lost(number)
            case "refuse":
                path.refused(number, now)
            case "move":
                path.moved(now)
        assert path.size in (DATAGRAM_BYTES, *DATAGRAM_SIZES)
        assert path.size <= fitting(carried)
        assert path.size <= before or step == "arrive"
    path.moved(now)
    search(path, carried, now)
    assert path.size == fitting(carried), "and a new path is measured anew"


def test_a_probe_of_the_path_before_says_nothing_about_this_one() -> None:
    path = PathSize(DATAGRAM_SIZES)
    old = path.probe(0.0, PATIENCE_S)
    assert old is not None
    path.moved(0.1)
    new = path.probe(0.1, PATIENCE_S)
    assert new is not None
    assert new.size == old.size
    path.probe_arrived(old)
    assert path.size == DATAGRAM_BYTES
    path.probe_arrived(new)
    assert path.size == new.size


def test_losses_in_a_row_of_large_datagrams_alone_make_a_black_hole() -> None:
    path = PathSize(DATAGRAM_SIZES)
    search(path, 1500, 0.0)
    for _ in range(LOSSES):  # one of them is small, or a large one arrives in between: the path is merely lossy
        path.lost(1452)
        path.lost(DATAGRAM_BYTES)
        path.arrived(1452)
    assert path.probe(1.0, PATIENCE_S) is None
    assert path.size == 1452
    for _ in range(LOSSES):
        path.lost(1452)
        path.arrived(1300)
    assert path.probe(1.0, PATIENCE_S) is None
    assert path.size == DATAGRAM_BYTES
    assert path.next_at() == 1.0 + AGAIN_S
    search(path, 1500, 1.0 + AGAIN_S)
    assert path.size == 1452


def test_a_limit_that_was_lowered_is_searched_for_at_once() -> None:
    path = PathSize(DATAGRAM_SIZES)
    search(path, 1500, 0.0)
    path.refused(1452, 5.0)
    assert (path.size, path.next_at()) == (DATAGRAM_BYTES, 5.0)
    search(path, 1300, 5.0, refused=True)
    assert path.size == 1232
    path.refused(DATAGRAM_BYTES, 6.0)  # nothing smaller is left to fall to
    assert path.size == 1232


# --- with connections, in virtual time


def sizes(wire: Wire) -> tuple[int, int]:
    return wire.client.quic.datagram_bytes, wire.server.quic.datagram_bytes


def ended(wire: Wire) -> bool:
    return any(isinstance(event, ConnectionTerminated) for side in (wire.client, wire.server) for event in side.events)


@pytest.mark.parametrize("carried", [1200, 1232, 1300, 1472, 9000])
def test_both_ends_find_the_size_without_a_word_of_congestion(carried: int) -> None:
    wire = Wire(lambda size, now: size <= carried)
    windows = [side.quic._loss.congestion_window for side in (wire.client, wire.server)]
    wire.run(10.0)
    assert sizes(wire) == (fitting(carried), fitting(carried))
    assert max(wire.handshake) == DATAGRAM_BYTES
    assert len(wire.sent) < 50, "a silent link stays silent"
    for side, window in zip((wire.client, wire.server), windows, strict=True):
        assert side.quic._loss.congestion_window >= window
        assert side.quic._loss.bytes_in_flight == side.quic._loss._pto_count == 0
        assert side.quic.kept_packets < 10, "those that were lost last, until something else is acknowledged"
    wire.send(wire.client, 100_000)
    wire.until(lambda: wire.server.received == 100_000)


def test_lost_probes_do_not_shrink_what_a_bulk_may_send() -> None:
    wire = Wire(lambda size, now: size <= DATAGRAM_BYTES)
    wire.send(wire.client, 1_000_000)
    wire.until(lambda: wire.server.received == 1_000_000)
    assert wire.client.quic._loss._cc._congestion_recovery_start_time == 0.0
    assert wire.sent.count(1232) >= TRIES


@pytest.mark.parametrize("told", [True, False], ids=["by-the-interface", "by-losses"])
@pytest.mark.parametrize("limit", [1200, 1250])
def test_an_mtu_that_falls_under_a_bulk_costs_a_moment(told: bool, limit: int) -> None:
    wire = Wire()
    wire.run(5.0)
    assert sizes(wire) == (8952, 8952)
    wire.send(wire.client, 2_000_000)
    wire.until(lambda: wire.server.received > 500_000)
    if told:
        wire.takes = lambda size: size <= limit
    else:
        wire.carries = lambda size, now: size <= limit
    assert wire.until(lambda: wire.client.quic.datagram_bytes == DATAGRAM_BYTES) < 1.0
    wire.until(lambda: wire.server.received == 2_000_000, within_s=5.0)
    assert not ended(wire)
    assert sizes(wire)[0] == (fitting(limit) if told else DATAGRAM_BYTES)


def test_random_losses_are_no_black_hole() -> None:
    """5 % each way: neither end falls back for longer than the probes of one search."""
    source = random.Random(7)
    wire = Wire(lambda size, now: size <= 1472 and source.random() >= 0.05, delay_s=0.05)
    wire.send(wire.client, 1_000_000)
    fell = 0
    while wire.server.received < 1_000_000:
        before = wire.client.quic.datagram_bytes
        wire.run(0.05)
        fell += wire.client.quic.datagram_bytes < before
    assert wire.client.quic.datagram_bytes == 1452
    assert fell == 0
    assert not ended(wire)


def test_a_client_that_moves_is_followed_and_the_new_path_is_measured() -> None:
    wire = Wire()
    wire.run(5.0)
    wire.carries = lambda size, now: size <= 1300
    wire.client.address = ("192.0.2.77", 7)
    wire.client.quic.rerouted(wire.now)
    wire.send(wire.client, 50_000)
    wire.until(lambda: wire.server.received == 50_000, within_s=2.0)
    assert wire.server.quic.get_peer_address() == ("192.0.2.77", 7)
    wire.run(5.0)
    assert sizes(wire) == (1232, 1232)
    wire.send(wire.server, 50_000)
    wire.until(lambda: wire.client.received == 50_000, within_s=2.0)


def test_a_peer_that_owes_an_acknowledgement_is_known_since_when() -> None:
    wire = Wire()
    wire.run(5.0)
    assert wire.client.quic.unanswered_since is None, "probes of sizes are no question"
    wire.carries = lambda size, now: False
    wire.run(1.0)
    asked = wire.now
    wire.send(wire.client, 10_000)
    wire.run(3.0)
    assert wire.client.quic.unanswered_since == asked
    wire.carries = lambda size, now: True
    wire.until(lambda: wire.server.received == 10_000)
    wire.run(5.0)
    assert wire.client.quic.unanswered_since is None
