"""Find out what is wrong with this node, and what to do about it: named checks, each of which passes, warns or fails.

It changes nothing, and works with a node that runs, with none, with a home that is damaged and with none at all. Exit
codes: 0 all pass; 3 something warns, and goes on; 1 something fails. A database is read for 5 s at most.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import msgspec

from meshnode.cli import connect
from meshnode.cli.output import print_summed, printable
from meshnode.cli.passphrase import passphrase_of
from meshnode.control.client import ControlClient
from meshnode.errors import BusyError, MeshError
from meshnode.model.wording import counted_text
from meshnode.node.config import Config
from meshnode.node.doctor.checks import CHECKS, Tell, chosen
from meshnode.node.doctor.examine import examine
from meshnode.node.doctor.software import judge_program
from meshnode.node.doctorviews import FAIL, PASS, WARN, DoctorView, FindingView, worst
from meshnode.node.home import Home
from meshnode.node.overview import SOFTWARE

CODES = {PASS: 0, WARN: 3, FAIL: 1}
ANSWER_S = 30.0  # seconds that a running node has to say all that it knows


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    names = ", ".join(check.name for check in CHECKS)
    parser.add_argument("checks", nargs="*", metavar="CHECK", help=f"these checks alone: {names} (default: all)")


def run(options: argparse.Namespace) -> int:
    """Look, and say what was found."""
    chosen(options.checks)
    with _progress() as tell:
        found = connect.run(_doctor(options, tell))
    if options.output in ("json", "jsonl"):
        print_summed(found, "findings", options.output)
    else:
        _print(found)
    return CODES[found.verdict]


async def _doctor(options: argparse.Namespace, tell: Tell) -> DoctorView:
    path, unanswered = connect.home_path(options), ""
    try:
        tell("a node that runs")
        running = await ControlClient.connect(Home(path, Config()))  # its settings may be what is wrong
        if running is not None:
            async with asyncio.timeout(ANSWER_S):
                return _beside(await running.doctor(options.checks), options.checks)
    except TimeoutError:
        unanswered = f"the node runs, and did not answer within {ANSWER_S:.0f} s"
    except BusyError as error:
        unanswered = str(error)
    except (MeshError, OSError) as error:
        unanswered = f"the node runs, and does not answer as it should: {error}"
    tell("")  # a passphrase may be asked for now
    return await examine(path, options.checks, passphrase=passphrase_of(options), unanswered=unanswered, tell=tell)


def _beside(found: DoctorView, checks: Sequence[str]) -> DoctorView:
    """With what only this program knows."""
    if checks and "versions" not in checks:
        return found
    findings = (*found.findings, *judge_program(found.software, SOFTWARE))
    return msgspec.structs.replace(found, findings=findings, verdict=worst(findings))


@contextmanager
def _progress() -> Iterator[Tell]:
    """Says at a terminal what is being looked at, and takes it away in the end."""
    if not sys.stderr.isatty():
        yield lambda _name: None
        return
    try:
        yield lambda name: print("\r\x1b[K" + (name and f"looking at {name} …"), end="", file=sys.stderr, flush=True)
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


def _print(found: DoctorView) -> None:
    width = max((len(finding.check) for finding in found.findings), default=0)
    for finding in found.findings:
        print(f"{finding.verdict:4}  {finding.check:{width}}  {printable(finding.found)}")
        if finding.todo:
            print(f"{'':{width + 8}}{printable(finding.todo)}")
    print(_summary(found.findings))


def _summary(findings: Sequence[FindingView]) -> str:
    verdicts: dict[str, list[FindingView]] = {}
    for finding in findings:
        verdicts.setdefault(finding.check, []).append(finding)
    counts = dict.fromkeys(CODES, 0)
    for each in verdicts.values():
        counts[worst(each)] += 1
    return f"{counted_text(len(verdicts), 'check')}: {counts[PASS]} pass, {counts[WARN]} warn, {counts[FAIL]} fail"
