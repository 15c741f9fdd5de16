"""`python tests/sim --seed 17 [--seeds 1000] [--trace]`: replays one seed, or runs many."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from sim.run import failure_of, run_seed
from sim.watch import Violation


def main() -> int:
    """Exit code 1 where a seed fails."""
    parser = argparse.ArgumentParser(prog="python tests/sim", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds")
    parser.add_argument("--trace", action="store_true", help="print what happens")
    options = parser.parse_args()
    failed = 0
    started = time.perf_counter()
    for seed in range(options.seed, options.seed + options.seeds):
        if options.trace:
            try:
                world = run_seed(seed, print)
                print(f"seed {seed}: ok, {world.schedule.steps} steps, {world.watch.jobs} jobs")
            except Violation as violation:
                print(f"seed {seed}: {violation}")
                failed += 1
        elif (violation := failure_of(seed)) is not None:
            print(f"seed {seed}: {violation}", flush=True)
            failed += 1
    took = time.perf_counter() - started
    print(f"{options.seeds} seeds, {failed} failed, {options.seeds / took:.1f} a second")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
