"""What the verbs `adopt` and `release` say they did."""

from __future__ import annotations

from meshnode.node.views import View


class AdoptedView(View, frozen=True, kw_only=True):
    """What `adopt` made sync."""

    database: str
    tables: list[str]
    signed: int  # events made of the rows that were there
    readable_by_others: bool = False  # other users of this device can read the file, and with it what the node keeps


class ReleasedView(View, frozen=True, kw_only=True):
    """What `release` gave back."""

    database: str
    tables: list[str]  # that take part no longer
