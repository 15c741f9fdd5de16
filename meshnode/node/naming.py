"""Which site a person means: by its id, long or short, or by the name that people call it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from meshnode.errors import NotFoundError, UsageError
from meshnode.model.member import Member
from meshnode.model.site import parse_site, short_text, site_text
from meshnode.model.wording import nearest, quoted
from meshnode.node.memberviews import MemberView
from meshnode.store import peers
from meshnode.store.database import Tx

_LISTED: Final = ": `meshnode members` lists them"


@dataclass(frozen=True, slots=True)
class Known:
    """A site that may be meant."""

    site: bytes
    name: str
    current: bool = True  # False for a retired one: of several with one name it is not the one that is meant


def site_called(named: str, known: Iterable[Known], whose: str = "member") -> bytes:
    """The one site of that id or name; NotFoundError where there is none, UsageError where several are called so."""
    sites = list(known)
    found = [each for each in sites if named.lower() in (site_text(each.site), short_text(each.site))]
    found = found or [each for each in sites if each.name == named]
    found = [each for each in found if each.current] or found
    if not found:
        hint = nearest(named, [each.name for each in sites if each.name])
        raise NotFoundError(f"no {whose} is called {quoted(named)}, nor is it a site id{hint or _LISTED}")
    if len(found) > 1:
        ids = ", ".join(site_text(each.site) for each in found)
        raise UsageError(f"several members are called {quoted(named)}: name one by its site id, {ids}")
    return found[0].site


def view_called(named: str, views: Sequence[MemberView]) -> MemberView:
    """The same among members as people are shown them."""
    sites = {parse_site(each.site): each for each in views}
    return sites[site_called(named, [Known(site, each.name, not each.retired) for site, each in sites.items()])]


def known_of(tx: Tx, members: Iterable[Member]) -> list[Known]:
    """Members under what they last called themselves, or else what they were vouched for as."""
    heard = peers.all_heard(tx)
    return [
        Known(each.site, heard[each.site].name if each.site in heard else each.name, current=each.cutoff is None)
        for each in members
    ]
