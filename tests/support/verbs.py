"""The program's verbs called in this process: no start-up to wait for, and no loop may run meanwhile."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from meshnode.cli.main import main
from support.command import Result


def call(home: Path, *arguments: str) -> Result:
    """Run one verb in a home to its end."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["--home", str(home), *arguments])
    return Result(code, out.getvalue(), err.getvalue())


def done(home: Path, *arguments: str) -> Result:
    """The same for a verb that is to succeed."""
    result = call(home, *arguments)
    assert result.code == 0, (arguments, result)
    return result
