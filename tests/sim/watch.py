"""Shows a run to the checkers: every job before and after, every start, every other disk, and the rest at the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from support.store_jobs import Job

from meshnode.model.frames import FEATURE_COVERING
from meshnode.sync.effects import Commit
from sim.books import Books
from sim.network import Side

if TYPE_CHECKING:
    from sim.node import Node
    from sim.world import World


_ASIDE: Final = ("open link", "introduction", "outstanding", "ask own history", "notices")
"""Jobs that leave the log alone."""


class Violation(AssertionError):
    """A checker saw what must never be."""

    def __init__(self, checker: str, text: str) -> None:
        super().__init__(f"{checker}: {text}")
        self.checker = checker


class Checker:
    """Looks at a run; each says in its docstring what holds. Nothing that it does changes the run."""

    def __init__(self, world: World) -> None:
        self.world = world

    def before(self, node: Node, name: str, side: Side | None, job: Job | None) -> None:
        """A job is about to run."""

    def after(self, node: Node, name: str, side: Side | None, job: Job | None, outcome: Any) -> None:
        """A job is done and on the disk."""

    def booted(self, node: Node) -> None:
        """A process started."""

    def restored(self, node: Node) -> None:
        """A node has another copy of its database."""

    def open_ends(self) -> list[str]:
        """What is still to happen, once nothing fails any more: empty at rest."""
        return []

    def at_rest(self) -> None:
        """Everything came to rest."""

    def fail(self, text: str) -> None:
        """This must never be."""
        raise Violation(type(self).__name__, text)


class Watch:
    """All checkers, and the books that they share."""

    def __init__(self, world: World, kinds: Sequence[type[Checker]]) -> None:
        self.books = Books()
        self.jobs = 0
        self._checkers = [kind(world) for kind in kinds]
        self._before = [each.before for each in self._checkers if type(each).before is not Checker.before]
        self._after = [each.after for each in self._checkers if type(each).after is not Checker.after]

    def before(self, node: Node, name: str, side: Side | None, job: Job | None) -> None:
        """A job is about to run."""
        for look in self._before:
            look(node, name, side, job)

    def after(self, node: Node, name: str, side: Side | None, job: Job | None, outcome: Any) -> None:
        """A job is done and on the disk."""
        self.jobs += 1
        if (job is None and name not in _ASIDE) or isinstance(job, Commit):
            self.books.update(node)
        for look in self._after:
            look(node, name, side, job, outcome)

    def booted(self, node: Node) -> None:
        """A process started."""
        self.books.reread(node)
        if FEATURE_COVERING in node.world.features:
            self.books.thinned |= node.dropped
        for checker in self._checkers:
            checker.booted(node)

    def restored(self, node: Node) -> None:
        """A node has another copy of its database."""
        self.books.replaced(node)
        for checker in self._checkers:
            checker.restored(node)

    def open_ends(self) -> list[str]:
        """What every checker still waits for."""
        return [f"{type(checker).__name__}: {text}" for checker in self._checkers for text in checker.open_ends()]

    def at_rest(self) -> None:
        """Everything came to rest."""
        for checker in self._checkers:
            checker.at_rest()
