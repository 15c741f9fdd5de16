"""Notices about strangers and peers, one in a while however often it happens (profile §6, §7)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from meshnode.limits import NOTICE_SUBJECTS
from meshnode.model.logevent import LogEvent, log_event
from meshnode.net.endpoint_config import OnNotice

_OTHERS = "others"

logger = logging.getLogger("meshnode.net")


@dataclass(slots=True)
class _Seen:
    last: float
    suppressed: int = 0


class NoticeBoard:
    """Passes the first notice of a kind and subject on, counts the rest, and says so with the next."""

    def __init__(self, on_notice: OnNotice, now: Callable[[], float], interval_s: float) -> None:
        self._on_notice = on_notice
        self._now = now
        self._interval_s = interval_s
        self._seen: dict[tuple[str, bytes | str], _Seen] = {}

    def post(self, kind: str, subject: bytes | str, text: str) -> None:
        """`subject` is the site where one is proven, else the host that the datagrams came from."""
        now = self._now()
        key: tuple[str, bytes | str] = (kind, subject)
        seen = self._seen.get(key)
        if seen is None and len(self._seen) >= NOTICE_SUBJECTS:
            self._forget(now)
            if len(self._seen) >= NOTICE_SUBJECTS:
                key = (kind, _OTHERS)
                seen = self._seen.get(key)
        if seen is not None and now - seen.last < self._interval_s:
            seen.suppressed += 1
            return
        repeats = f" (and {seen.suppressed} more like it)" if seen is not None and seen.suppressed else ""
        self._seen[key] = _Seen(now)
        try:
            self._on_notice(kind, subject if isinstance(subject, bytes) else None, text + repeats)
        except Exception:
            log_event(logger, logging.ERROR, LogEvent.FAULT, trace=True, work=f"handing on the notice {kind}")

    def _forget(self, now: float) -> None:
        for key in [key for key, seen in self._seen.items() if now - seen.last >= self._interval_s]:
            del self._seen[key]
