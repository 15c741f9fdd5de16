"""The `meshnode` program with other limits, so that a test need not wait for those that people have.

python tests/support/tuned.py '{"SILENCE_S": 3}' --home HOME up
"""

from __future__ import annotations

import json
import sys
from dataclasses import fields

from meshnode import limits
from meshnode.net.pace import Pace

if __name__ == "__main__":
    chosen = json.loads(sys.argv.pop(1))
    pace = {name.removeprefix("Pace."): chosen.pop(name) for name in list(chosen) if name.startswith("Pace.")}
    Pace.__init__.__defaults__ = tuple(pace.pop(each.name, each.default) for each in fields(Pace))
    assert not pace, pace
    for name, value in chosen.items():
        assert hasattr(limits, name), name
        setattr(limits, name, value)  # before anything reads it

    from meshnode.cli.main import main

    sys.exit(main())
