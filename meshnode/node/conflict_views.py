"""The conflict ledger as people and programs see it."""

from __future__ import annotations

from meshnode.node.views import Value, Values, View


class SideView(View, frozen=True, kw_only=True):
    """One of the two writes. Where `column` is null, `value` is what was written of the row, null for a delete."""

    site: str
    name: str = ""
    value: Value = None
    hlc: tuple[int, int]
    event: str  # its id
    kept: bool = True  # False where the value is not in the log any more, and was too large for the ledger
    left_out: bool = False  # its value is too large for a list with so many others: `meshnode events` has it


class ConflictView(View, frozen=True, kw_only=True):
    """Two writes of one cell by two sites, of which neither, as far as is known, had seen the other."""

    id: str  # the same at both authors
    table: str
    key: Values  # empty where it is too large for a list with so many others
    column: str | None  # null: whether the row exists
    ours: SideView
    theirs: SideView
    shown: str  # whose value a reader sees: "ours", "theirs", or "neither", where something else was written since
    other: Value = None  # what a reader sees where that is neither; null where it is too large for a list, too
    certainty: str  # "certain", or "possible" where no ack tells
    status: str  # open, acknowledged, resolved, withdrawn
    reason: str = ""  # why it is not open any more
    recorded_ms: int
    change: int  # where a subscriber goes on from

    @property
    def value(self) -> Value:
        """What a reader sees, as far as the two sides and `other` have it."""
        if self.shown == "neither":
            return self.other
        return self.ours.value if self.shown == "ours" else self.theirs.value


class ConflictReceipt(View, frozen=True, kw_only=True):
    """What became of a conflict that somebody decided."""

    id: str
    status: str
    preferred: str | None = None  # the site whose value is to show
    event: str | None = None  # the event that was written for it, null where the value showed already
    shown: str
