"""What a node logs: every line is an event with a stable name and named values, escaped and bounded (pure).

The names are the list below, and machines may rely on them; a line is `name key=value …`, or JSON (`cli/logs.py`).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

VALUE_CHARACTERS: Final = 400  # of one value in a line: peers choose names and reasons
_BARE: Final = re.compile(r"[A-Za-z0-9_.:/+@\[\]%,-]+")
_INVITE: Final = re.compile(r"meshnode-invite:[a-z2-7\s]+", re.IGNORECASE)


logging.getLogger("meshnode").addHandler(logging.NullHandler())
"""A program that embeds a node and configured no logging hears nothing: Python would put warnings on its stderr."""


class LogEvent(StrEnum):
    """The names. INFO unless another level is said."""

    NODE_UP = "node-up"  # site, port
    FOUNDED = "founded"  # a mesh was founded here: site, recovery_key is the path of its file
    LINK_UP = "link-up"  # peer, address
    LINK_DOWN = "link-down"  # peer, code, by (here or peer), reason
    LINK_FAULT = "link-fault"  # ERROR: work for a link failed here, and the link ends: peer, reason
    DIALING = "dialing"  # DEBUG: peer, where it is known whose the address is, and address
    DIAL_FAILED = "dial-failed"  # peer, address, reason
    MEMBER_JOINED = "member-joined"  # by an invite of this device: peer
    NOTICE = "notice"  # WARNING, news INFO: a surfaced condition (profile §6): kind, peer, table, count, text
    BATCH_COMMITTED = "batch-committed"  # DEBUG: events were taken in, or written: lane, events, seconds
    ASKED = "asked"  # DEBUG: a verb, a program or the dashboard asked something of the node: operation
    CONFIG_RELOADED = "config-reloaded"  # changed, and restart_required: what changes at the next start
    CONFIG_REFUSED = "config-refused"  # ERROR: it stays as it was: reason
    PORT_REFUSED = "port-refused"  # WARNING: nothing is served on a port that the settings name: port, reason
    RETIRED = "retired"  # WARNING: this device is not in the mesh any more: reason
    WORK_WAITS = "work-waits"  # WARNING: what the node does by itself could not go on: work, reason
    DATAGRAM_UNREADABLE = "datagram-unreadable"  # DEBUG: from anybody
    TRANSPORT_FAULT = "transport-fault"  # WARNING: QUIC failed here, and the connection ends: work
    FAULT = "fault"  # ERROR: a fault of this program, which ended what is named and nothing else: work
    LIBRARY = "library"  # what a library said: source, text


class Line:
    """One event as a line of text, for any handler; another format takes `event` and `values`."""

    __slots__ = ("event", "values")

    def __init__(self, event: LogEvent, values: Mapping[str, object]) -> None:
        self.event = event
        self.values = values

    def __str__(self) -> str:
        return " ".join((self.event, *(f"{name}={_text(value)}" for name, value in self.values.items())))


def log_event(
    logger: logging.Logger,
    level: int,
    event: LogEvent,
    *,
    trace: bool | BaseException = False,
    **values: str | float | None,
) -> None:
    """Say it; values that are None or empty are left out, `trace` adds an exception, or the one being handled."""
    if logger.isEnabledFor(level):
        said = {name: value for name, value in values.items() if value is not None and value != ""}
        logger.log(level, "%s", Line(event, said), exc_info=trace)


def clean(text: str) -> str:
    """A peer's words: bounded, with no control or direction character in them, and no invite's secret."""
    if len(text) > VALUE_CHARACTERS:
        text = text[:VALUE_CHARACTERS] + "…"
    text = without_invites(text)
    return text if text.isprintable() else "".join(each if each.isprintable() else _escape(each) for each in text)


def without_invites(text: str) -> str:
    """The text with the content of every invite in it left out: it holds a secret."""
    return _INVITE.sub("meshnode-invite:… ", text).rstrip()


def _text(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = clean(str(value))
    return text if _BARE.fullmatch(text) else json.dumps(text, ensure_ascii=False)


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
