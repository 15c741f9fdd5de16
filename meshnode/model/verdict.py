"""What the apply path did with one event, and why (profile §6)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Verdict(StrEnum):
    """The verdicts; which of them is retained, advances a watermark or is surfaced is the table of profile §6."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    BELOW_HORIZON = "below-horizon"
    HELD = "held"
    REJECTED = "rejected"
    DROPPED = "dropped"


# Reasons of `rejected`: offered again until they pass.
SKEW: Final = "skew"
QUOTA: Final = "quota"

# Reasons of `dropped`, in the order in which they are decided.
MALFORMED: Final = "malformed"
UNKNOWN_SIGNER: Final = "unknown-signer"
BAD_SIGNATURE: Final = "bad-signature"
RETIRED_SIGNER: Final = "retired-signer"
ROLE: Final = "role"
SCOPE: Final = "scope"
RESERVED_NAME: Final = "reserved-name"
EMPTY_KEY: Final = "empty-key"
FORGOTTEN: Final = "forgotten"
UNRESOLVED_KEY: Final = "unresolved-key"

# Dropped, and yet attributed to the group whose watermark it lets advance.
ADVANCING_DROPS: Final = frozenset({SCOPE, RESERVED_NAME, EMPTY_KEY, FORGOTTEN, UNRESOLVED_KEY})


def key_differs(table: str) -> str:
    """What `unresolved-key` means to a person, and what to do."""
    return (
        "the key of this table has other columns or types there than here; compare `meshnode table list` on both, make "
        f"them the same, and then `meshnode rehydrate {table}` asks for it again"
    )


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict with its reason, which only `rejected` and `dropped` have."""

    verdict: Verdict
    reason: str | None = None

    def text(self) -> str:
        """`dropped:scope`, `applied`: how notices and the conformance vectors spell it."""
        return self.verdict.value if self.reason is None else f"{self.verdict.value}:{self.reason}"
