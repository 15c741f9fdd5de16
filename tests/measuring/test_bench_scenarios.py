"""Each scenario of `meshnode bench`, with next to nothing to do: it runs to its end and finds figures."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from meshnode.bench.figures import Figure, Figures, ratios
from meshnode.bench.homes import founded
from meshnode.bench.nodes import NodeProcess, free_port
from meshnode.bench.plan import Plan
from meshnode.bench.running import SCENARIOS, measure
from meshnode.errors import UsageError

TINY = Plan(
    rounds=1,
    ceiling_s=0.002,
    stream_s=0.05,
    author_s=0.002,
    apply_s=0.01,
    apply_events=600,
    load_s=60.0,
    catch_up_events=1_000,
    live_writes=2,
    fan_out_events=50,
    fan_out_peers=2,
    idle_s=0.05,
    idle_peers=2,
    starts=1,
    growth_events=0,
)


async def found_by(folder: Path, *names: str) -> Figures:
    said: list[str] = []
    figures = await measure(TINY, names, folder, said.append)
    assert said
    assert left_in(folder) == []
    return figures


def left_in(folder: Path) -> list[Path]:
    """What a run forgot to take away."""
    return list(folder.iterdir())


def positive(figure: Figure | None) -> bool:
    """Whether every number of it is; CPU alone may be less than what is counted of it."""
    assert figure is not None
    numbers = {name: value for name, value in msgspec.structs.asdict(figure).items() if "cpu" not in name}
    return all(value > 0 for value in numbers.values())


async def test_what_needs_no_second_node(tmp_path: Path) -> None:
    found = await found_by(tmp_path, "ceilings", "author", "apply")
    assert positive(found.ceilings)
    assert positive(found.author)
    assert positive(found.apply)
    assert found.ceilings is not None
    assert 330 < found.ceilings.event_bytes < 370
    assert set(ratios(found)) == {"apply_to_verify", "author_to_sign", "apply_to_upserts"}


async def test_two_nodes(tmp_path: Path) -> None:
    found = await found_by(tmp_path, "start", "catch-up", "live", "growth")
    assert positive(found.start)
    assert positive(found.catch_up)
    assert positive(found.live)
    assert found.catch_up is not None
    assert found.catch_up.events == TINY.catch_up_events
    assert found.live is not None
    assert found.live.median_ms <= found.live.p99_ms <= found.live.max_ms
    assert (found.ceilings, found.goodput) == (None, None)


async def test_a_node_and_its_peers(tmp_path: Path) -> None:
    found = await found_by(tmp_path, "fan-out", "idle")
    assert positive(found.fan_out)
    assert positive(found.idle)


async def test_a_bulk_stream(tmp_path: Path) -> None:
    found = await found_by(tmp_path, "goodput")
    assert positive(found.goodput)


async def test_a_node_that_is_given_up_while_it_starts_is_ended(tmp_path: Path) -> None:
    node = NodeProcess(await founded(tmp_path / "a"), free_port())
    starting = asyncio.create_task(node.__aenter__())
    while not node.begun:  # noqa: ASYNC110  # nothing tells of it
        await asyncio.sleep(0.01)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not node.runs


async def test_a_scenario_that_is_none_is_said_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no scenario 'fast': name ceilings, "):
        await found_by(tmp_path, "fast")
    assert "catch-up" in SCENARIOS
