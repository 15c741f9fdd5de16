"""Makes tests/support importable as `support`, every run of Hypothesis repeatable, and lets Ctrl-C reach what the tests
start."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))

# A shell starts background jobs with SIGINT ignored, and every process below would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repeatable", derandomize=True, print_blob=True)
settings.load_profile("repeatable")
