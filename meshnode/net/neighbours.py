"""Which links a node keeps where it may not have one to everybody: pure decisions (profile §7, limits of §12).

Sites stand on a ring in the order of their ids. A node always wants the nearest on either side that it can reach, and
gives a link to somebody farther up for one of them. Each node decides by itself; together the links to neighbours close
the ring, so whatever some members write reaches all, as long as they can reach each other and may have two links.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable


def beside(own: bytes, sites: Iterable[bytes]) -> frozenset[bytes]:
    """The nearest of these sites on either side of `own`: two, one where there is one, none where there is none."""
    others = sorted(site for site in set(sites) if site != own)
    if not others:
        return frozenset()
    after = next((site for site in others if site > own), others[0])
    before = next((site for site in reversed(others) if site < own), others[-1])
    return frozenset((before, after))


def surplus(own: bytes, linked: Collection[bytes], new: bytes, most: int) -> bytes | None:
    """Whose link has to go for one to `new` to come up: nobody's, that of the farthest other, or the new one itself."""
    if len(linked) < most:
        return None
    kept = beside(own, (*linked, new))
    others = [site for site in linked if site not in kept]
    if new not in kept or not others:
        return new
    ring = sorted({own, *linked, new})
    return max(others, key=lambda site: (distance(ring, own, site), site))


def too_many(own: bytes, linked: Collection[bytes], most: int) -> list[bytes]:
    """Whose links have to go where only so many may stay: the farthest ones, the nearest on either side last."""
    near, ring = beside(own, linked), sorted({own, *linked})
    return sorted(linked, key=lambda site: (site not in near, distance(ring, own, site), site))[most:]


def distance(ring: list[bytes], one: bytes, other: bytes) -> int:
    """How many steps apart two sites stand on a ring."""
    steps = abs(ring.index(one) - ring.index(other))
    return min(steps, len(ring) - steps)


def distances(own: bytes, sites: Iterable[bytes]) -> dict[bytes, int]:
    """The same from `own` to each of many sites, on the ring of them all."""
    ring = sorted({own, *sites})
    at = ring.index(own)
    return {site: min(abs(at - place), len(ring) - abs(at - place)) for place, site in enumerate(ring)}
