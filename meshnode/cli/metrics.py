"""Show what is measured of this node: queues, windows, lag, verdicts, frames, bytes, times, as Prometheus text.

A running node tells all of it; without one, what the store says is told. As a table it
shows name, labels and value a line. A scraper reads the text on the port that `metrics_port` of `config.toml` says.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from meshnode.cli import connect
from meshnode.cli.output import print_many
from meshnode.node.metricviews import MetricView, Sample, exposition


def configure(parser: argparse.ArgumentParser) -> None:
    """No flags of its own."""


def run(options: argparse.Namespace) -> int:
    """Show them."""
    metrics = connect.run(_metrics(options))
    if options.output is None:
        sys.stdout.write(exposition(metrics))
    else:
        print_many(_rows(metrics, for_people=options.output == "table"), options.output, _SHOWN)
    return 0


_SHOWN = ("metric", "labels", "value")


async def _metrics(options: argparse.Namespace) -> list[MetricView]:
    async with connect.reading(options) as operations:
        return await operations.metrics()


def _rows(metrics: Sequence[MetricView], *, for_people: bool) -> list[dict[str, Any]]:
    """A number a line; people are spared the buckets of histograms."""
    return [
        {
            "metric": metric.name + sample.suffix,
            "kind": metric.kind,
            "labels": _text(sample) if for_people else sample.labels,
            "value": sample.value,
        }
        for metric in metrics
        for sample in metric.samples
        if not (for_people and sample.suffix == "_bucket")
    ]


def _text(sample: Sample) -> str:
    return " ".join(f"{name}={value}" for name, value in sample.labels.items())
