"""The kinds of surfaced conditions (profile §6): what `notices` can be asked for, and nothing else is ever one."""

from __future__ import annotations

from typing import Final

from meshnode.errors import CloseCode
from meshnode.model import verdict

_EVENTS: Final = {
    verdict.SKEW,
    verdict.QUOTA,
    verdict.MALFORMED,
    verdict.UNKNOWN_SIGNER,
    verdict.BAD_SIGNATURE,
    verdict.RETIRED_SIGNER,
    verdict.ROLE,
    *verdict.ADVANCING_DROPS,
    "clock-behind",
    "hlc-reuse",
    "late-below-cutoff",
    "own-retirement",
    "taken-back",
    "taking-back",
}
_ROWS: Final = {
    "conflicts-dropped",
    "erasure-due",
    "mended",
    "partial",
    "resurrected",
    "schema-drift",
    "table-unusable",
    "unreadable-state",
    "unsigned",
    "unsyncable",
    "unwatched",
    "withheld",
}
_LINKS: Final = {
    *(code.name.lower().replace("_", "-") for code in CloseCode),
    "announcement-ignored",
    "clock-offset",
    "discovery",
    "frontier-full",
    "handshake-failed",
    "handshakes",
    "port-taken",
    "request-limit",
    "retired-claim",
    "rolled-back",
    "too-many-peers",
    "twin",
}
_NODE: Final = {"config-refused", "incarnation", "joined", "pairing-refused"}

NOTICE_KINDS: Final = frozenset(_EVENTS | _ROWS | _LINKS | _NODE)
