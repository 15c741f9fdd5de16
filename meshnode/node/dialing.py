"""Whom to dial, at which addresses, and when: the decisions, without I/O (profile §11, §7).

A target is a member site, or a static peer whose site is not known yet. Every target has its own pause between
attempts, drawn at random up to a bound that doubles ("full jitter"), so that a mesh that lost its switch does not
come back as a storm. Fresh news about a target ends its pause.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from meshnode.errors import CloseCode
from meshnode.limits import ADDRESSES_PER_SITE, LIVE_CONNECTIONS
from meshnode.net.addresses import Address
from meshnode.net.neighbours import beside, distances
from meshnode.node.dialreason import Dialing, DialReason
from meshnode.node.dialtarget import LASTING, Attempt, DialPolicy, Target


@dataclass(frozen=True, slots=True)
class _Crowd:
    """Who has a link or is being dialed, and where: what decides for each target whether it may be dialed as well."""

    taken: frozenset[bytes]  # sites with a link, or about to have one
    nearest: frozenset[bytes]  # of those, on either side of this one
    fixed: frozenset[Address]  # being dialed as an address that the operator gave
    others: frozenset[Address]  # being dialed as a member's
    scarce: bool  # there are more members than links to have
    full: bool  # as many are being dialed of whom there is no sign as may be at once

    def doubles(self, target: Target) -> bool:
        """An address of it is being dialed as a static one, or the static one as a member's: two links to one site."""
        return not (self.others if target.fixed else self.fixed).isdisjoint(target.addresses())


class DialPlan:
    """State of every target. Time and randomness are arguments; nothing here waits or sends."""

    def __init__(
        self,
        own_site: bytes,
        random: Callable[[], float],
        policy: DialPolicy | None = None,
        *,
        max_links: int = LIVE_CONNECTIONS,
    ) -> None:
        self._own_site = own_site
        self._max_links = max_links
        self._random = random
        self._policy = DialPolicy() if policy is None else policy
        self._targets: dict[bytes | Address, Target] = {}
        self._linked: dict[bytes, float] = {}  # since when
        self._doubted: set[bytes] = set()  # of these, whose link does not answer
        self._site_of: dict[Address, bytes] = {}  # static peers that told who they are
        self._wanted: set[bytes] = set()  # sites to dial again whatever becomes of the attempt under way

    # --- what there is to dial

    def members(self, sites: Iterable[bytes], now: float) -> None:
        """The sites that may be dialed from now on: members that are not retired. Others are forgotten."""
        wanted = {site for site in sites if site != self._own_site}
        for target in list(self._targets):
            if isinstance(target, bytes) and target not in wanted:
                del self._targets[target]
        self._wanted &= wanted
        for site in sorted(wanted - self._targets.keys()):  # in the same order in every process
            self._targets[site] = Target(due=self._first_due(site, now), yields=self._yields(site))
        for address, site in list(self._site_of.items()):
            if site not in wanted:
                del self._site_of[address]

    def static(self, addresses: Iterable[Address], now: float) -> None:
        """Addresses given by the operator: dialed whoever is there, until they turn out to be a linked member.

        Those that were given before, and are not now, are forgotten; links that they led to stay.
        """
        given = tuple(addresses)
        for name in [name for name in self._targets if isinstance(name, Address) and name not in given]:
            del self._targets[name]
            self._site_of.pop(name, None)
        for address in given:
            self._targets.setdefault(address, Target(fixed=(address,), due=now)).own = False

    def allow(self, max_links: int) -> None:
        """So many links at a time from now on."""
        self._max_links = max_links

    def remembered(self, site: bytes, addresses: Iterable[Address], now: float) -> None:
        """Stored addresses that worked once, the latest first; dialed without mDNS (profile §11)."""
        target = self._targets.get(site)
        if target is not None:
            target.worked = tuple(dict.fromkeys(addresses))[:ADDRESSES_PER_SITE]
            target.due = min(target.due, self._first_due(site, now))

    def seen(self, site: bytes, boot: bytes, addresses: Iterable[Address], now: float) -> None:
        """A verified sighting. A new boot or an address not heard of before is news: the pause ends."""
        target = self._targets.get(site)
        if target is None:
            return
        announced = tuple(dict.fromkeys(addresses))[:ADDRESSES_PER_SITE]
        fresh = boot != target.boot or not set(announced) <= {*target.seen, *target.worked, *target.fixed}
        target.seen, target.boot = announced, boot
        if target.attempt is not None and not set(announced) <= set(target.attempt.addresses):
            target.overtake()
        if fresh:
            self._news(target, self._first_due(site, now), yields=self._yields(site))

    def gone(self, site: bytes) -> None:
        """Its announcement went away: what was announced is no longer tried, what worked is."""
        target = self._targets.get(site)
        if target is not None:
            target.seen = ()

    def network_changed(self, now: float) -> None:
        """Another network, or awake from sleep: what failed before may work now."""
        for target in self._targets.values():
            target.overtake()
            target.own = False  # the address may be another device's in this network
            self._news(target, now + self._random() * self._policy.base_s)

    def again(self, site: bytes, now: float) -> None:
        """A link to this site was ended on purpose: its end says nothing about the next one.

        The attempt that led to that link may not have been told of yet: what is said of it then is no reason to wait.
        """
        if any(target.dialing and self._site_at(name) in (site, None) for name, target in self._targets.items()):
            self._wanted.add(site)
        self._renew(site, now)

    def _renew(self, site: bytes, now: float) -> None:
        for target in self._targets_of(site):
            self._news(target, self._first_due(site, now), yields=self._yields(site))

    def _news(self, target: Target, due: float, *, yields: bool = False) -> None:
        target.failures, target.yields = 0, yields
        target.due = max(due, target.last + self._policy.news_s)

    def _first_due(self, site: bytes, now: float) -> float:
        wait = self._policy.yield_s if self._yields(site) else 0.0
        return now + wait * (0.5 + self._random() / 2)

    def _yields(self, site: bytes) -> bool:
        return self._own_site > site

    # --- what became of it

    def linked(self, site: bytes, now: float) -> None:
        """A link to this site is up, whoever dialed it; to be told of every site with a live link."""
        self._linked.setdefault(site, now)
        self._doubted.discard(site)

    def doubted(self, site: bytes, now: float) -> None:
        """Its link does not answer: dial it while that stands, since it may be dead for long before that is certain."""
        if site in self._linked and site not in self._doubted:
            self._doubted.add(site)
            for target in self._targets_of(site):  # at once: the other side may not know
                target.overtake()
                self._news(target, now)

    def trusted(self, site: bytes) -> None:
        """Its link answers after all."""
        self._doubted.discard(site)

    def came_from(self, site: bytes, address: Address) -> None:
        """It dialed us from there. A node has one socket for both directions, so there it can be dialed too."""
        target = self._targets.get(site)
        if target is not None and address not in target.addresses():
            target.worked = (*target.worked, address)[:ADDRESSES_PER_SITE]

    def unlinked(
        self, site: bytes, now: float, code: CloseCode | None = None, why: str = "", *, ours: bool = False
    ) -> None:
        """A link to this site ended and no other is live: dial again, soon after a loss and later after a refusal."""
        since = self._linked.pop(site, now)
        self._doubted.discard(site)
        for target in self._targets_of(site):
            if now - since >= self._policy.settled_s:
                target.failures = 0
            self._pause(target, now, code, why, ours)

    def succeeded(self, attempt: Attempt, address: Address, site: bytes, now: float) -> None:
        """An attempt ended in a link: the address goes to the front of those to try next time."""
        if address in self._targets:  # a static one, whichever target it was dialed for
            self._site_of[address] = site
        if isinstance(attempt.target, Address) and attempt.target in self._targets:
            self._site_of[attempt.target] = site
        known = self._targets.get(site)
        if known is not None:
            known.worked = tuple(dict.fromkeys((address, *known.worked)))[:ADDRESSES_PER_SITE]
            known.elsewhere.pop(address, None)
        done = self._targets.get(attempt.target)
        if done is not None:
            done.over(attempt)
        for target in self._targets_of(site):
            # From here on `linked` keeps it from being dialed, and `unlinked` says when to try again; one that came
            # before this call stands, one that never comes is made up for.
            target.due, target.yields = max(target.due, now + self._policy.settled_s), False
        self._if_wanted(site, now)

    def passed_over(self, attempt: Attempt, address: Address, site: bytes) -> None:
        """Another site than the one that was dialed answered there: the attempt goes on with its next address."""
        target = self._targets.get(attempt.target)
        if target is not None:
            target.was_elsewhere(address, site)

    def failed(
        self,
        attempt: Attempt,
        now: float,
        code: CloseCode | None = None,
        site: bytes | None = None,
        why: str = "",
        *,
        ours: bool = False,
    ) -> None:
        """No address of the attempt led to the site; `site` is who answered there all the same.

        `ours` says that this side refused.
        """
        target = self._targets.get(attempt.target)
        if target is not None and isinstance(attempt.target, Address) and site is not None:
            self._site_of[attempt.target] = site
            # One list of addresses is copied to all devices; another process with our key is a twin, and no such case.
            target.own = site == self._own_site and code is CloseCode.DUPLICATE
        if target is not None and target.over(attempt):
            self._pause(target, now, code, why, ours)
        self._if_wanted(self._site_at(attempt.target), now)

    def _if_wanted(self, site: bytes | None, now: float) -> None:
        if site is not None and site in self._wanted:
            self._wanted.discard(site)
            self._renew(site, now)

    def _targets_of(self, site: bytes) -> list[Target]:
        """The site's own target and the static addresses at which it turned out to be."""
        names: list[bytes | Address] = [site, *(at for at, owner in self._site_of.items() if owner == site)]
        return [self._targets[name] for name in names if name in self._targets]

    def _pause(self, target: Target, now: float, code: CloseCode | None, why: str, ours: bool) -> None:
        if ours and code is CloseCode.LIMIT:  # our own max_links: nothing failed, and a place that gets free is news
            target.error, target.yields = "", False
            target.due = now + self._policy.settled_s * (0.5 + self._random() / 2)
            return
        target.error, target.yields = why, False
        # A duplicate is no failure: the other link is, or was, alive (profile §7).
        target.failures += code is not CloseCode.DUPLICATE
        lasting = code in LASTING
        base, cap = self._bounds(lasting)
        bound = min(cap, base * 2.0 ** min(max(target.failures - 1, 0), 16))
        target.due = now + bound * (0.5 + self._random() / 2 if lasting else self._random())

    def _bounds(self, lasting: bool) -> tuple[float, float]:
        policy = self._policy
        return (policy.lasting_s, policy.lasting_cap_s) if lasting else (policy.base_s, policy.cap_s)

    # --- what to do

    def due(self, now: float) -> list[Attempt]:
        """The attempts to begin now; each is under way until `succeeded` or `failed`."""
        room = self._policy.at_once - self._under_way()
        attempts: list[Attempt] = []
        crowd = self._crowd()
        for name in self._in_order(now, crowd):
            if len(attempts) >= room:
                break
            target = self._targets[name]
            if self._may_begin(name, target, crowd):
                site = name if isinstance(name, bytes) else None
                target.attempt, target.last = Attempt(name, site, target.addresses()), now
                attempts.append(target.attempt)
                crowd = self._crowd()
        return attempts

    def next_due(self) -> float | None:
        """When `due` has something next, unless news comes first; None while there is nothing to wait for."""
        if self._under_way() >= self._policy.at_once:
            return None
        crowd = self._crowd()
        ready = (target.due for name, target in self._targets.items() if self._may_begin(name, target, crowd))
        return min(ready, default=None)

    def _under_way(self) -> int:
        return sum(target.under_way for target in self._targets.values())

    def _heard_of(self, name: bytes | Address, target: Target) -> bool:
        """Whether there is more to it than an address that worked once: it is announced, named, or was just linked."""
        return bool(target.seen or target.fixed) or name in self._doubted

    def _crowd(self) -> _Crowd:
        """What every target is judged against; a mesh has 256 members, and this is asked at all news."""
        taken = set(self._linked)
        fixed, others = set[Address](), set[Address]()
        unheard = 0
        for name, target in self._targets.items():
            if target.under_way and not self._heard_of(name, target):
                unheard += target.under_way
            if target.dialing:
                site = self._site_at(name)
                taken |= set() if site is None else {site}
                (fixed if target.fixed else others).update(target.addresses())
        scarce = self._max_links < sum(isinstance(name, bytes) for name in self._targets)
        nearest = beside(self._own_site, taken)
        full = unheard >= self._policy.unheard_at_once
        return _Crowd(frozenset(taken), nearest, frozenset(fixed), frozenset(others), scarce, full)

    def _in_order(self, now: float, crowd: _Crowd) -> list[bytes | Address]:
        """The targets that are due: the longest waiting first, or where links are scarce the nearest neighbours."""
        due = [name for name, target in self._targets.items() if target.due <= now]
        if not crowd.scarce:
            return sorted(due, key=lambda name: self._targets[name].due)
        steps = distances(self._own_site, (name for name in self._targets if isinstance(name, bytes)))
        return sorted(due, key=lambda name: steps.get(self._site_at(name) or b"", 0))

    def _may_begin(self, name: bytes | Address, target: Target, crowd: _Crowd) -> bool:
        return self._idle(name, target, crowd) and (not crowd.full or self._heard_of(name, target))

    def _idle(self, name: bytes | Address, target: Target, crowd: _Crowd) -> bool:
        site = self._site_at(name)
        if target.own or target.dialing or (site in self._linked and site not in self._doubted):
            return False
        if not target.addresses() or crowd.doubles(target):
            return False
        return not crowd.scarce or self._has_place(site, crowd)

    def _site_at(self, name: bytes | Address) -> bytes | None:
        return name if isinstance(name, bytes) else self._site_of.get(name)

    def _has_place(self, site: bytes | None, crowd: _Crowd) -> bool:
        """Whether a link to a site would stay beside those that there are, or are about to be (as `surplus` decides).

        Whoever is at an address may be a nearer one, unless there is one link only, which gives way to nobody.
        """
        taken = len(crowd.taken) - (site in crowd.taken)
        if taken < self._max_links:
            return True
        if site is None:
            return self._max_links > 1
        kept = beside(self._own_site, (*crowd.nearest, site))
        return site in kept and taken > sum(other in crowd.taken for other in kept - {site})

    # --- what is told of it

    @property
    def owners(self) -> dict[Address, bytes]:
        """The sites that answered at addresses given by the operator."""
        return dict(self._site_of)

    def reasons(self, now: float) -> dict[bytes | Address, DialReason]:
        """Of every target, why it is dialed at the moment, or is not."""
        crowd = self._crowd()
        return {name: self._explain(name, now, crowd) for name in self._targets}

    def explain(self, name: bytes | Address, now: float) -> DialReason:
        """Why a site, or an address given by the operator, is dialed at the moment, or is not."""
        return self._explain(name, now, self._crowd())

    def _explain(self, name: bytes | Address, now: float, crowd: _Crowd) -> DialReason:
        target = self._targets.get(name)
        if target is None:
            return DialReason(Dialing.LINKED if name in self._linked else Dialing.NO_TARGET)
        return DialReason(
            self._state(name, target, now, crowd),
            max(0.0, target.due - now),
            target.failures,
            target.error,
            target.addresses(),
            target.passed_over(),
        )

    def _state(self, name: bytes | Address, target: Target, now: float, crowd: _Crowd) -> Dialing:
        site = self._site_at(name)
        if site in self._linked:
            return Dialing.LINKED
        if target.dialing:
            return Dialing.DIALING
        if target.own:
            return Dialing.OWN
        if not target.addresses():
            return Dialing.NO_ADDRESS
        if crowd.doubles(target):
            return Dialing.DOUBLED
        if not self._idle(name, target, crowd):
            return Dialing.NO_PLACE
        if target.due <= now:
            return Dialing.QUEUED
        return Dialing.YIELDING if target.yields else Dialing.WAITING
