"""What programs use is documented, and they are type-checked under --strict: examples, right and wrong uses."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from mypy import api

import meshnode

ROOT = Path(__file__).parents[2]
USES = ROOT / "tests" / "typing" / "uses.py"


def test_programs_are_checked_as_they_should_be() -> None:
    """Over the cache of the checks before the tests, so that only these files are new."""
    told, errors, _ = api.run(
        [
            "--config-file",
            str(ROOT / "pyproject.toml"),
            "--cache-dir",
            str(ROOT / ".mypy_cache"),
            "--hide-error-context",
            "--no-error-summary",
            str(ROOT / "examples"),
            str(USES),
        ]
    )
    assert errors == ""
    found = re.findall(r"^(.*?):(\d+): error: .*\[([a-z-]+)\]$", told, re.MULTILINE)
    assert len(found) == told.count(" error: "), told
    lines = USES.read_text(encoding="utf-8").splitlines()
    wanted = [(number, line.rpartition("# error: ")[2]) for number, line in enumerate(lines, 1) if "# error: " in line]
    assert [(int(number), code) for _, number, code in found] == wanted, told
    assert {Path(path).name for path, _, _ in found} == {"uses.py"}
    assert len(wanted) > 10


def test_every_public_name_says_what_it_is() -> None:
    silent = []
    for name in meshnode.__all__:
        value = getattr(meshnode, name)
        silent += [] if inspect.getdoc(value) else [name]
        if inspect.isclass(value) and not issubclass(value, dict):
            members = {each: inspect.getattr_static(value, each) for each in dir(value) if not each.startswith("_")}
            silent += [
                f"{name}.{each}"
                for each, member in members.items()
                if (callable(member) or isinstance(member, property | classmethod))
                and str(getattr(getattr(value, each), "__module__", "meshnode")).startswith("meshnode")
                and not inspect.getdoc(member)
            ]
    assert silent == []
