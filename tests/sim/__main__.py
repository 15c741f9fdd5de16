"""`python tests/sim --seed 17 [--seeds 1000] [--trace]`: replays one seed, or runs many on every core."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from sim.growth import HEAD, SIZES, grow
from sim.run import run_seed, run_seeds

SHOWN = 5  # failures shown in full


def main() -> int:
    """Exit code 1 where a seed fails."""
    parser = argparse.ArgumentParser(prog="python tests/sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    parser.add_argument("--growth", type=int, nargs="*", metavar="NODES", help="measure meshes of 8, 16, 32, 64 nodes")
    options = parser.parse_args()
    if options.growth is not None:
        print(HEAD)
        for growth in grow(tuple(options.growth) or SIZES, seed=options.seed):
            print(growth.text(), flush=True)
        return 0
    seeds = range(options.seed, options.seed + options.seeds)
    started, failed = time.perf_counter(), 0
    alone = options.trace or len(seeds) == 1
    for outcome in (run_seed(seed, print if options.trace else None) for seed in seeds) if alone else run_seeds(seeds):
        if outcome.failure:
            failed += 1
            print(outcome.text if failed <= SHOWN else f"seed {outcome.seed}: {outcome.failure[:100]}", flush=True)
        elif alone:
            print(f"seed {outcome.seed}: {outcome.steps} steps, {outcome.events} events")
    took = time.perf_counter() - started
    print(f"{len(seeds)} seeds, {failed} failed, {len(seeds) / took:.1f} a second", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
