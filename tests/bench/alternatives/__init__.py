"""The same work by other programs that keep data equal, each one optional: `python -m tests.bench.alternatives`."""
