"""Sites as a page names them: the members that this node knows of, itself included. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from meshnode.node.views import Status


@dataclass(frozen=True, slots=True)
class Person:
    """What a chip of a site shows."""

    site: str
    short: str
    name: str
    own: bool = False


class People:
    """By site id."""

    def __init__(self, status: Status) -> None:
        own = Person(status.site, status.short, status.name, own=True)
        self.all = [own, *(Person(peer.site, peer.short, peer.name) for peer in status.peers)]
        self._by_site = {each.site: each for each in self.all}

    def of(self, site: str) -> Person:
        """Whoever that is; a site that was never a member has no name."""
        return self._by_site.get(site) or Person(site, site[:8], "")
