"""Watermarks of one batch: which groups it touched and how far each may be claimed (SSP/1 §14.2, profile §6)."""

from __future__ import annotations

from meshnode.engine.batch import Signer, Target
from meshnode.engine.context import Context
from meshnode.limits import UNKNOWN_GROUPS_PER_SITE
from meshnode.model.hlc import Hlc
from meshnode.store import held, watermarks
from meshnode.store.database import Tx
from meshnode.store.watermarks import Group


class Progress:
    """Collects what settled and what was rejected, per group, and writes each group once."""

    def __init__(self, context: Context, tx: Tx) -> None:
        self._context = context
        self._tx = tx
        self._groups: list[Group] = []

    def settle(self, signer: Signer, target: Target, hlc: Hlc, *, advances: bool) -> None:
        """An event got a verdict that offering it again would not change."""
        reaches = advances and signer.streams
        group = self.open(signer, target) if reaches else self._find(signer, target)
        if group is None:
            return
        if group.rejected_low is not None or group.rejected_high is not None:
            group.settle(hlc)
        if reaches:
            group.reach(hlc)

    def reject(self, signer: Signer, target: Target, hlc: Hlc) -> None:
        """An event will be offered again: the watermark stays below it."""
        group = self.open(signer, target)
        if group is None:
            return
        if group.reached < hlc:  # what came before it in order may still be claimed
            group.advance(held=target.destination is None)
        group.reject(hlc)

    def open(self, signer: Signer, target: Target) -> Group | None:
        """The group, remembered from now on; None where the bound on groups of unknown tables forbids it.

        A group that is not remembered claims nothing, which is always safe.
        """
        group = self._find(signer, target)
        if group is None and self.may_open(signer, target):
            number = self._context.tables.number(self._tx, target.entry)
            group = target.groups[signer.no] = Group(signer.no, number, changed=True)
            self._groups.append(group)
            if not target.entry.registered:
                signer.unknown_groups += 1
        return group

    def may_open(self, signer: Signer, target: Target) -> bool:
        """Whether a group may be remembered: those of unknown tables are bounded per site (profile §6)."""
        if target.entry.registered or self._find(signer, target) is not None:
            return True
        if signer.unknown_groups < 0:
            signer.unknown_groups = watermarks.unknown_groups(self._tx, signer.no)
        return signer.unknown_groups < UNKNOWN_GROUPS_PER_SITE

    def write(self) -> None:
        """Advance what may advance and store what differs; a group with held events stands still (fail closed)."""
        changed = []
        for group in self._groups:
            if group.reached > group.applied:
                group.advance(held=held.has_held(self._tx, group.site_no, group.table_no))
            if group.changed:
                changed.append(group)
        if changed:
            watermarks.save(self._tx, changed)

    def _find(self, signer: Signer, target: Target) -> Group | None:
        if signer.no in target.groups:
            return target.groups[signer.no]
        number = target.entry.no
        group = None if number is None else watermarks.load(self._tx, signer.no, number)
        target.groups[signer.no] = group
        if group is not None:
            self._groups.append(group)
        return group
