"""What `meshnode bench` makes of its figures: ratios, medians, windows, fsyncs; table, line and picture."""

from __future__ import annotations

import json
import sqlite3
import xml.etree.ElementTree as ElementTree
from contextlib import closing
from dataclasses import fields
from pathlib import Path

import pytest

from meshnode.bench.durability import fsyncs, wal_sequence
from meshnode.bench.figures import (
    Apply,
    Author,
    CatchUp,
    Ceilings,
    FanOut,
    Figures,
    Goodput,
    Idle,
    Live,
    Machine,
    Start,
    Window,
    middle,
    percentile,
    ratios,
)
from meshnode.bench.pair import windows
from meshnode.bench.plan import FULL, QUICK
from meshnode.bench.plot import svg
from meshnode.bench.report import as_object, head, lines, number

MACHINE = Machine(cores=2, platform="Linux x86_64", python="3.11.7", sqlite="3.40.1", meshnode="0.1.0", load=0.25)
CATCH_UP = CatchUp(
    events=20_000, seconds=2.0, per_s=10_000.0, mb_per_s=3.5, sender_cpu_s=1.5, receiver_cpu_s=2.5,
    sender_peak_mb=90.0, receiver_peak_mb=95.0, receiver_fsyncs_per_1000=4.0, database_bytes_per_event=600.0,
    event_bytes=350.0,
)  # fmt: skip
WHOLE = Figures(
    machine=MACHINE,
    seconds=44.4,
    ceilings=Ceilings(
        verify_per_s=20_000.0, verify_all_cores_per_s=38_000.0, sign_per_s=50_000.0, sign_all_cores_per_s=97_000.0,
        blake3_per_s=900_000.0, upserts_per_s=280_000.0, upsert_fsyncs_per_1000=2.1, fsync_ms=0.2, event_bytes=350.0,
    ),
    goodput=Goodput(bare_mb_per_s=16.0, own_mb_per_s=40.0),
    author=Author(per_s=12_500.0, fsyncs_per_1000=2.1, single_per_s=400.0, event_bytes=350.0),
    apply=Apply(per_s=15_000.0, verify_per_s=19_000.0, fsyncs_per_1000=2.0, cpu_us_per_event=101.0),
    start=Start(to_up_s=0.5, to_first_row_s=0.6),
    catch_up=CATCH_UP,
    live=Live(writes=100, median_ms=2.5, p99_ms=9.0, max_ms=12.0),
    fan_out=FanOut(events=1_000, peers=8, one_cpu_s=0.2, all_cpu_s=0.4),
    idle=Idle(peers=20, one_cpu_percent=0.1, all_cpu_percent=0.2, one_memory_mb=70.0, all_memory_mb=77.6),
    growth=(Window(events=1_000, per_s=10_000.0), Window(events=20_000, per_s=9_000.0)),
)  # fmt: skip


def test_ratios_are_of_figures_of_one_run() -> None:
    found = ratios(WHOLE)
    assert found.pop("apply_to_verify") == pytest.approx(15 / 19)  # of the verify that was measured in turn with it
    assert found.pop("catchup_to_verify") == pytest.approx(0.5)
    assert found.pop("memory_mb_per_peer") == pytest.approx(0.4)
    assert found == pytest.approx(
        {
            "author_to_sign": 0.25,
            "apply_to_upserts": 15 / 280,
            "goodput_to_aioquic": 2.5,
            "fan_out_to_one": 2.0,
            "growth_last_to_first": 0.9,
        }
    )


def test_what_was_not_measured_has_no_ratio() -> None:
    assert ratios(Figures(machine=MACHINE)) == {}
    assert ratios(Figures(machine=MACHINE, catch_up=CATCH_UP)) == {}
    both = Figures(machine=MACHINE, catch_up=CATCH_UP, apply=WHOLE.apply)
    assert set(ratios(both)) == {"apply_to_verify", "catchup_to_verify"}
    nothing = Figures(machine=MACHINE, goodput=Goodput(bare_mb_per_s=0.0, own_mb_per_s=1.0))
    assert ratios(nothing) == {"goodput_to_aioquic": 0.0}


def test_the_median_of_rounds_is_taken_number_by_number() -> None:
    rounds = [
        Live(writes=10, median_ms=one, p99_ms=two, max_ms=9.0) for one, two in ((1.0, 8.0), (3.0, 4.0), (2.0, 6.0))
    ]
    assert middle(rounds) == Live(writes=10, median_ms=2.0, p99_ms=6.0, max_ms=9.0)
    assert middle(rounds[:1]) == rounds[0]
    assert percentile([float(each) for each in range(1, 101)], 0.99) == 99.0
    assert percentile([5.0], 0.99) == 5.0


def test_windows_tell_how_fast_the_last_events_before_each_size_came() -> None:
    samples = [(0.0, 0), (0.5, 500), (1.0, 1_000), (3.0, 2_000), (4.0, 2_500)]
    found = {each.events: each.per_s for each in windows(samples)}
    assert found == pytest.approx({1_000: 1_000.0, 2_000: 500.0, 2_500: 500.0})
    assert windows([(0.0, 0), (0.0, 10)]) == ()  # too fast for this clock: no rate, and no error


def test_fsyncs_are_those_of_commits_and_of_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        assert wal_sequence(path) is None
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("CREATE TABLE t (a)")
        before = wal_sequence(path)
        database.execute("PRAGMA wal_checkpoint(RESTART)")
        database.execute("INSERT INTO t VALUES (1)")
        assert fsyncs(1, before, wal_sequence(path)) == 4
        assert fsyncs(1, before, before) == 1
    assert fsyncs(5, None, None) == 5


def test_the_object_has_what_programs_look_for() -> None:
    found = json.loads(json.dumps(as_object(WHOLE)))
    assert next(iter(found)) == "ratios"
    assert {"apply_to_verify", "catchup_to_verify"} <= set(found["ratios"])
    assert found["ceilings"]["verify_per_s"] == 20_000
    assert found["growth"][1] == {"events": 20_000, "per_s": 9_000}
    assert set(as_object(Figures(machine=MACHINE))) == {"ratios", "machine", "seconds", "rounds"}


def test_the_table_names_every_figure_once() -> None:
    shown = lines(WHOLE)
    assert {
        "ceiling",
        "goodput",
        "author",
        "apply",
        "start",
        "catch-up",
        "live",
        "fan-out",
        "idle",
        "growth",
        "ratio",
    } == {each.group for each in shown}
    assert len({(each.group, each.figure) for each in shown}) == len(shown)
    (ratio,) = [each for each in shown if each.figure == "apply to raw verify of one core"]
    assert (ratio.value, ratio.note) == ("0.789", "≥ 0.75")
    assert lines(Figures(machine=MACHINE)) == []
    assert head(WHOLE).endswith("load 0.2 before it began; 44 s")


@pytest.mark.parametrize(
    ("value", "shown"), [(12_345.6, "12,346"), (12.34, "12.3"), (1.234, "1.23"), (0.1234, "0.123"), (0.0, "0.000")]
)
def test_numbers_have_the_digits_that_count(value: float, shown: str) -> None:
    assert number(value) == shown


def test_the_picture_has_a_point_for_each_size_and_the_ceiling() -> None:
    root = ElementTree.fromstring(svg(WHOLE))
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert len(list(root.iter("{http://www.w3.org/2000/svg}circle"))) == 2
    assert {"1,000", "100,000", "raw verify of one core: 20,000"} <= set(texts)
    empty = ElementTree.fromstring(svg(Figures(machine=MACHINE)))
    assert any("nothing was measured" in (each.text or "") for each in empty.iter())
    one = Figures(machine=MACHINE, growth=(Window(events=1_000, per_s=10.0),))
    assert len(list(ElementTree.fromstring(svg(one)).iter("{http://www.w3.org/2000/svg}circle"))) == 1


def test_the_full_plan_does_more_of_everything() -> None:
    less = [each.name for each in fields(QUICK) if getattr(QUICK, each.name) > getattr(FULL, each.name)]
    assert less == []
