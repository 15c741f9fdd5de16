"""What a running node writes to standard error: one line a message, with nothing in it that could steer a terminal."""

from __future__ import annotations

import logging
import re
import sys

from meshnode.cli.output import printable

_INVITE = re.compile(r"meshnode-invite:[a-z2-7\s]+", re.IGNORECASE)


def without_invites(text: str) -> str:
    """The text with the content of every invite in it left out: it holds a secret."""
    return _INVITE.sub("meshnode-invite:… ", text).rstrip()


def log_to_stderr(*, verbose: bool) -> None:
    """Send the node's messages to standard error; libraries speak up for warnings alone."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_OneLine("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.getLogger("meshnode").setLevel(logging.DEBUG if verbose else logging.INFO)
    # It warns with a traceback of every network that went away; discovery says in its state what that means.
    logging.getLogger("zeroconf").setLevel(logging.ERROR)


class _OneLine(logging.Formatter):
    """Peers choose names and reasons: their control characters are written as escapes, tracebacks stay as they are."""

    def format(self, record: logging.LogRecord) -> str:
        message, *traceback = super().format(record).split("\n") if record.exc_info else [super().format(record)]
        return "\n".join([without_invites(printable(message)), *traceback])
