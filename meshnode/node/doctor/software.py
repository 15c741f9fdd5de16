"""Versions: what this node is made of, and what of it is known to do harm."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshnode.node.doctor.findings import failed, or_passed, warned
from meshnode.node.doctorviews import FindingView

TESTED = ((3, 11), (3, 13))  # Python, first and last
# The WAL-reset bug (sqlite.org/wal.html): two connections that write and checkpoint at one moment can damage the file.
WAL_RESET_FIXED = ((3, 44, 6), (3, 50, 7))  # and what follows in the same series
WAL_RESET_FIXED_FROM = (3, 51, 3)


@dataclass(frozen=True, slots=True)
class VersionFacts:
    """What runs this check; in a running node, what runs that."""

    python: tuple[int, int, int]
    sqlite: tuple[int, int, int]
    meshnode: str
    packages: tuple[tuple[str, str], ...] = ()  # name and version, empty where it is missing
    shared: bool = False  # an application keeps its own tables in the database, and may write there


def judge_versions(facts: VersionFacts) -> list[FindingView]:
    """Whether they belong together."""
    of_packages = ", ".join(f"{name} {version}" for name, version in facts.packages if version)
    known = "" if _reset_safely(facts.sqlite) else " (with its WAL-reset bug, harmless while one program writes)"
    well = f"Python {_text(facts.python)}, SQLite {_text(facts.sqlite)}{known}, {of_packages}"
    return or_passed("versions", _versions(facts), f"meshnode {facts.meshnode}, {well}")


def _versions(facts: VersionFacts) -> Iterator[FindingView]:
    for name, version in facts.packages:
        if not version:
            yield failed("versions", f"the package {name} is missing", "install meshnode anew: `pip install meshnode`")
    if not TESTED[0] <= facts.python[:2] <= TESTED[1]:
        first, last = _text(TESTED[0]), _text(TESTED[1])
        found = f"meshnode is not tested on Python {_text(facts.python)}"
        yield warned("versions", found, f"use one from {first} to {last}")
    if facts.shared and not _reset_safely(facts.sqlite):
        found = (
            f"SQLite {_text(facts.sqlite)} can damage a database that two programs write at one moment (its WAL-reset "
            "bug), and an application keeps its own tables in this one"
        )
        todo = f"use a Python with SQLite {_text(WAL_RESET_FIXED_FROM)} or later, in the application too"
        yield warned("versions", found, todo)


def judge_program(node: str, program: str) -> list[FindingView]:
    """Whether the program that asks is of the version of the node that answers."""
    if node in ("", program):
        return []
    return [warned("versions", f"the node runs {node}, and this program is {program}", "start the node anew")]


def _reset_safely(version: tuple[int, int, int]) -> bool:
    in_series = any(version[:2] == fixed[:2] and version >= fixed for fixed in WAL_RESET_FIXED)
    return in_series or version >= WAL_RESET_FIXED_FROM


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
