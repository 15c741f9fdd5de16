"""One vouched-for site: its role over time, its end, and where its events are acceptable (profile §9)."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TypeAlias

from meshnode.model.hlc import ZERO, Hlc
from meshnode.model.record import MEMBER, READER

Step: TypeAlias = tuple[Hlc, bytes]
"""One promotion on the way from the founder: the role's `issued` and record id."""
Path: TypeAlias = tuple[Step, ...]
"""Seniority: compared element by element, a prefix is smaller, the smallest is settled first."""
Span: TypeAlias = tuple[Hlc | None, Hlc | None]
"""HLCs above the first and up to the second; None is open."""


@dataclass(frozen=True, slots=True)
class Member:
    """One vouched-for site and what the counting records say of it."""

    site: bytes
    public_key: bytes
    name: str
    admitted: bytes  # record id of the vouch that let it in, by a senior
    vouched_by: bytes  # signer of its last vouch, which also names it
    vouched_at: Hlc
    path: Path | None = None  # of an authority that was settled
    role_starts: tuple[Hlc, ...] = ()  # ascending; each role holds above its start until the next one's
    roles: tuple[str, ...] = ()
    role_ids: tuple[bytes, ...] = ()
    cutoff: Hlc | None = None  # of a retired site; what it dated above it does not stand
    honours: frozenset[bytes] = frozenset()
    latest: Hlc = ZERO  # highest `issued` of the counting records about this site

    def role_at(self, hlc: Hlc) -> str:
        """The role that holds at `hlc`: that of the last role record issued below it, `member` by default."""
        index = bisect_left(self.role_starts, hlc)
        return self.roles[index - 1] if index else MEMBER

    @property
    def role(self) -> str:
        """The role that holds from the last role record on."""
        return self.roles[-1] if self.roles else MEMBER

    def spans(self) -> list[Span]:
        """Where events of this site are acceptable, as disjoint ascending spans."""
        starts: list[Hlc | None] = [None, *self.role_starts]
        ends: list[Hlc | None] = [*self.role_starts, None]
        spans: list[Span] = []
        for start, end, role in zip(starts, ends, (MEMBER, *self.roles), strict=True):
            if self.cutoff is not None and (end is None or end > self.cutoff):
                end = self.cutoff
            if role == READER or (start is not None and end is not None and end <= start):
                continue
            if spans and spans[-1][1] == start and start is not None:
                spans[-1] = (spans[-1][0], end)
            else:
                spans.append((start, end))
        return spans


def acceptable_beyond(new: Member | None, old: Member | None) -> bool:
    """Whether `new` accepts an event somewhere that `old` does not."""
    if new is None or new is old:
        return False
    held = old.spans() if old is not None else []
    return any(not any(_within(span, other) for other in held) for span in new.spans())


def _within(inner: Span, outer: Span) -> bool:
    (low, high), (floor, ceiling) = inner, outer
    above = floor is None or (low is not None and low >= floor)
    return above and (ceiling is None or (high is not None and high <= ceiling))
