"""How many bytes a full mesh of eight sends over what sending each event once to each node needs. A measurement:

    python tests/bench/mesh_bytes.py [--quic] [--writes 60] [--json]

Stream bytes of all nodes in both directions, acks and watermarks included, greetings excluded; over memory links in
virtual time, where the figures are always the same, or between whole nodes over QUIC on loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from support.mesh_bytes import NODES, SINGLE_WRITES, Measured, batches, singles
from support.quic_mesh import measure_over_quic

from meshnode.model.frames import FEATURE_OFFER, FEATURES


def _figures(measured: Measured) -> dict[str, object]:
    """Ratios from the strictest to the loosest, and what they are made of."""
    return {
        "over the events, until at rest": measured.over_events(),
        "over the events, while writing": measured.over_events(measured.carried),
        "over plain batch frames, until at rest": measured.over_batches(),
        "frames": dict(measured.afterwards.frames),
        "bytes": dict(measured.afterwards.bytes),
    }


def _in_memory(writes: int) -> dict[str, dict[str, object]]:
    results = {}
    for name, features in (("all features", FEATURES), ("no deflate", (FEATURE_OFFER,)), ("plain", ())):
        for kind, measure, options in (("batches", batches, {}), ("singles", singles, {"writes": writes})):
            with tempfile.TemporaryDirectory() as folder:
                results[f"{kind}, {name}"] = _figures(measure(Path(folder), features=features, **options))
    return results


def _over_quic(writes: int) -> dict[str, dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        measured = asyncio.run(measure_over_quic(Path(folder), NODES, writes))
    return {f"{kind}, over QUIC": _figures(each) for kind, each in measured.items()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quic", action="store_true", help="whole nodes, in real time")
    parser.add_argument("--writes", type=int, default=SINGLE_WRITES)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = (_over_quic if options.quic else _in_memory)(options.writes)
    if options.json:
        print(json.dumps(results))
        return
    for name, figures in results.items():
        print(name)
        for what, value in figures.items():
            print(f"    {what:40} {value:.3f}" if isinstance(value, float) else f"    {what:40} {value}")


if __name__ == "__main__":
    main()
