"""Watermarks of one batch: which groups it touched and how far each may be claimed (SSP/1 §14.2, profile §6)."""

from __future__ import annotations

from meshnode.engine.batch import Signer, Target
from meshnode.engine.context import Context
from meshnode.engine.whole import Whole
from meshnode.limits import UNKNOWN_GROUPS_PER_SITE
from meshnode.model.hlc import ZERO, Hlc
from meshnode.store import watermarks
from meshnode.store.database import Tx
from meshnode.store.watermarks import UNKEPT, Group


class Progress:
    """Collects what settled and what was rejected, per group, and writes each group once."""

    def __init__(self, context: Context, tx: Tx, whole: Whole) -> None:
        self._context = context
        self._tx = tx
        self._whole = whole
        self._groups: list[Group] = []
        self._unkept: dict[int, Group] = {}  # by site number: those that changed

    def settle(self, signer: Signer, target: Target, hlc: Hlc, *, advances: bool) -> None:
        """An event got a verdict that offering it again would not change."""
        reaches = advances and signer.streams and self._shows_whole(signer, target)
        if signer.unkept is not None and signer.unkept.is_open:
            signer.unkept.settle(hlc)
            self._unkept[signer.no] = signer.unkept
        group = self.open(signer, target) if reaches else self._find(signer, target)
        if group is None:
            return
        if group.is_open:
            group.settle(hlc)
        if reaches:
            group.reach(hlc)

    def _shows_whole(self, signer: Signer, target: Target) -> bool:
        """Whether nothing of the group is missing: our policy takes all of it, the stream shows it whole."""
        whole = target.whole.get(signer.no)
        if whole is None:
            entry = target.entry
            takes = signer.own or self._context.policy.takes_whole(entry.schema, entry.name, entry.table_class)
            whole = target.whole[signer.no] = takes and self._whole.shows(signer.site, entry.schema, entry.name)
        return whole

    def reject(self, signer: Signer, target: Target, hlc: Hlc) -> None:
        """An event will be offered again: the watermark stays below it."""
        group = self.open(signer, target)
        if group is None:
            signer.unkept = self._unkept[signer.no] = signer.unkept or Group(signer.no, UNKEPT)
            signer.unkept.reject(hlc)
            return
        if group.reached < hlc:  # what came before it in order may still be claimed
            group.advance(held=target.destination is None or self._is_barred(signer, group))
        group.reject(hlc)

    def open(self, signer: Signer, target: Target) -> Group | None:
        """The group, remembered from now on; None where the bound on groups of unknown tables forbids it.

        A group that is not remembered claims nothing; what was rejected of it is remembered for all such groups of the
        site together, so that it claims nothing of that once it is opened after all.
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
        unkept = [group for group in self._unkept.values() if group.changed]
        if unkept:
            watermarks.save(self._tx, unkept)
        changed = []
        for group in self._groups:
            if group.reached > group.applied:
                group.advance(held=watermarks.stands(self._tx, group))
            if group.changed:
                changed.append(group)
        if changed:
            watermarks.save(self._tx, changed)
        for group in unkept:
            if not group.is_open:
                watermarks.advance_site(self._tx, group.site_no)

    @staticmethod
    def _is_barred(signer: Signer, group: Group) -> bool:
        """Whether rejected events that no row remembers may be of this group."""
        return group.applied == ZERO and signer.unkept is not None and signer.unkept.is_open

    def _find(self, signer: Signer, target: Target) -> Group | None:
        if signer.no in target.groups:
            return target.groups[signer.no]
        number = target.entry.no
        group = None if number is None else watermarks.load(self._tx, signer.no, number)
        target.groups[signer.no] = group
        if group is not None:
            self._groups.append(group)
        return group
