"""Metrics as values, and as the Prometheus text format 0.0.4 that every scraper reads."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from meshnode.model.metering import Histogram
from meshnode.node.views import View

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"
_ESCAPES: Final = str.maketrans({"\\": "\\\\", "\n": "\\n", '"': '\\"'})


class Sample(View, frozen=True, kw_only=True):
    """One number of a metric; `suffix` is what a histogram puts behind its name."""

    value: float
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    suffix: str = ""


class MetricView(View, frozen=True, kw_only=True):
    """One metric with all its numbers."""

    name: str
    kind: str  # counter, gauge or histogram
    help: str
    samples: list[Sample] = msgspec.field(default_factory=list)


def single(name: str, kind: str, help_text: str, value: float) -> MetricView:
    """A metric of one number."""
    return MetricView(name=name, kind=kind, help=help_text, samples=[Sample(value=float(value))])


def labelled(
    name: str, kind: str, help_text: str, labels: Sequence[str], values: Mapping[tuple[str, ...], float]
) -> MetricView:
    """A metric with a number for each combination of label values."""
    samples = [
        Sample(value=float(value), labels=dict(zip(labels, key, strict=True))) for key, value in sorted(values.items())
    ]
    return MetricView(name=name, kind=kind, help=help_text, samples=samples)


def histogram(name: str, help_text: str, measured: Histogram) -> MetricView:
    """A metric with its buckets."""
    upto, total = measured.read()
    bounds = [*map(_number, measured.bounds), "+Inf"]
    samples = [
        Sample(value=float(count), labels={"le": le}, suffix="_bucket") for le, count in zip(bounds, upto, strict=True)
    ]
    samples += [Sample(value=total, suffix="_sum"), Sample(value=float(upto[-1]), suffix="_count")]
    return MetricView(name=name, kind=HISTOGRAM, help=help_text, samples=samples)


def exposition(metrics: Iterable[MetricView]) -> str:
    """The text that a scraper reads."""
    lines = []
    for metric in metrics:
        lines.append(f"# HELP {metric.name} {metric.help}".replace("\\", "\\\\").replace("\n", "\\n"))
        lines.append(f"# TYPE {metric.name} {metric.kind}")
        lines.extend(f"{metric.name}{each.suffix}{_labels(each)} {_number(each.value)}" for each in metric.samples)
    return "\n".join(lines) + "\n"


def _labels(sample: Sample) -> str:
    inside = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in sample.labels.items())
    return f"{{{inside}}}" if inside else ""


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
