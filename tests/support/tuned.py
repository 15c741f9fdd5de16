"""The `meshnode` program with other limits, so that a test need not wait for those that people have.

python tests/support/tuned.py '{"SILENCE_S": 3}' --home HOME up
"""

from __future__ import annotations

import json
import sys

from meshnode import limits

if __name__ == "__main__":
    for name, value in json.loads(sys.argv.pop(1)).items():
        assert hasattr(limits, name), name
        setattr(limits, name, value)  # before anything reads it

    from meshnode.cli.main import main

    sys.exit(main())
