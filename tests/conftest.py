"""Makes tests/support importable as `support`, and lets Ctrl-C reach what the tests start."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# A shell starts background jobs with SIGINT ignored, and every process below would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
