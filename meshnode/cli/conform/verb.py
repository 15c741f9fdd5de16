"""Run the test vectors found in a folder through this program's production code.

For our own tests and for other implementers: the vectors' notation is explained beside them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from meshnode.cli.conform.report import FileResult, Report
from meshnode.cli.output import json_line, print_table, printable
from meshnode.errors import UsageError, unreadable_file

_RUNNERS = {  # file to the module and function that run it; imported when the file is there
    "cbor.json": ("encodings", "run_cbor"),
    "identity.json": ("encodings", "run_identity"),
    "hlc.json": ("encodings", "run_hlc"),
    "signatures.json": ("encodings", "run_signatures"),
    "records.json": ("structures", "run_records"),
    "frames.json": ("structures", "run_frames"),
    "pairing.json": ("structures", "run_pairing"),
    "membership.json": ("structures", "run_membership"),
    "events.json": ("verdicts", "run_events"),
    "merge.json": ("rows", "run_merge"),
}
Runner = Callable[[dict[str, Any], Report], None]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the flags."""
    parser.add_argument("folder", metavar="DIR", help="a folder of vector files")


def run(options: argparse.Namespace) -> int:
    """Run them all."""
    results = run_folder(Path(options.folder))
    if options.output in ("json", "jsonl"):
        print(json_line(results))
    else:
        print_table(
            [{"file": name, "passed": each.passed, "failed": each.failed} for name, each in results.items()],
            ("file", "passed", "failed"),
        )
        for name, each in results.items():
            for failure in each.failures:
                print(f"{printable(name)}: {printable(failure)}")
    return 1 if any(each.failed for each in results.values()) else 0


def run_folder(folder: Path) -> dict[str, FileResult]:
    """The result of every .json file in a folder, by name; UsageError where there is none."""
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix == ".json")
    except OSError as error:
        raise unreadable_file(folder, error) from error
    if not files:
        raise UsageError(f"there are no vector files in {folder}")
    return {file.name: run_file(file) for file in files}


def run_file(file: Path) -> FileResult:
    """The result of one vector file."""
    report = Report()
    if file.name not in _RUNNERS:
        report.fail(f"no runner for this file; known are {', '.join(_RUNNERS)}")
        return report.result()
    module, name = _RUNNERS[file.name]
    runner: Runner = getattr(import_module(f"meshnode.cli.conform.{module}"), name)
    try:
        vectors = json.loads(file.read_bytes())
        runner(vectors, report)
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        report.fail(f"not a vector file of this kind: {type(error).__name__}: {error}")
    return report.result()
