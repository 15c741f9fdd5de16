"""The keys, and which copy of the device this is (profile §3, §8, §9)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshnode.node.doctor.findings import failed, or_passed, passed, warned
from meshnode.node.doctor.home import SEE_HOME
from meshnode.node.doctorviews import FindingView
from meshnode.node.views import HOW_TO_CHOOSE

FROM_BACKUP = "restore it from a backup, or join again in a new home and retire this device there"


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """The site key, and the site whose database this is."""

    path: str
    site: str = ""  # of the key, empty where it does not open
    error: str = ""
    modes: bool = False  # who may read it is what is wrong
    locked: bool = False  # under a passphrase that nobody said
    protected: bool = False
    stored_site: str = ""  # of the database, empty where that does not open


def judge_key(facts: KeyFacts) -> list[FindingView]:
    """Whether it opens, and is the one that the database is of."""
    if facts.locked:
        todo = "run this at a terminal, or name a descriptor that the passphrase is read from: `--passphrase-fd N`"
        return [warned("key", f"{facts.path} is under a passphrase, and was not opened", todo)]
    if facts.error:
        return [failed("key", facts.error, SEE_HOME if facts.modes else FROM_BACKUP)]
    if facts.stored_site and facts.stored_site != facts.site:
        found = f"{facts.path} is the key of site {facts.site[:8]}, and the database of site {facts.stored_site[:8]}"
        return [failed("key", found, "put the key and the database of one device together, from one backup")]
    kept = "under a passphrase" if facts.protected else "under no passphrase"
    whose = ", and the database is its own" if facts.stored_site else ""
    return passed("key", f"site {facts.site[:8]}, {kept}{whose}")


@dataclass(frozen=True, slots=True)
class RecoveryFacts:
    """The recovery key beside the node."""

    path: str
    beside: bool
    protected: bool = False


def judge_recovery(facts: RecoveryFacts) -> list[FindingView]:
    """It stands above every device, so it belongs on none."""
    if not facts.beside:
        found = (
            "no recovery key lies beside the node: the file, or the words that `init` showed, should be in a safe place"
        )
        return passed("recovery", found)
    kept = "under a passphrase" if facts.protected else "under no passphrase"
    todo = f"move {facts.path} off this device, to a safe place: it is needed to retire an "
    return [warned("recovery", f"{facts.path} still lies beside the node, {kept}", f"{todo}authority that was stolen")]


@dataclass(frozen=True, slots=True)
class IdentityFacts:
    """What says which copy of the database this is."""

    beside: str | None  # the incarnation in the home, None where it is missing
    beside_error: str = ""
    closed: bool = False  # this user may not read that file
    stored: str | None = None  # the incarnation in the database, None where that does not open
    twin: bool = False  # a peer saw this device live twice
    moved: str = ""
    renewing: bool = False  # a renewal was cut short


def judge_identity(facts: IdentityFacts) -> list[FindingView]:
    """Whether this is the one copy that goes on as this device."""
    return or_passed("identity", _copies(facts), "one copy, as far as anybody has seen")


def _copies(facts: IdentityFacts) -> Iterator[FindingView]:
    if facts.moved:
        yield failed("identity", "this device was moved elsewhere: nothing is written or sent here", facts.moved)
    if facts.beside_error:
        todo = SEE_HOME if facts.closed else f"restore it from a backup; or {HOW_TO_CHOOSE}"
        yield failed("identity", facts.beside_error, todo)
    elif facts.stored is not None and facts.stored != facts.beside:
        why = "is missing beside the key" if facts.beside is None else "is another one than beside the key"
        found = f"the database may be a copy, and nothing is published: its incarnation {why}"
        yield failed("identity", found, HOW_TO_CHOOSE)
    if facts.twin:
        found = "a peer saw this device live twice, under two starts at one time: nothing is published"
        yield failed("identity", found, HOW_TO_CHOOSE)
    if facts.renewing:
        todo = "`meshnode identity renew INVITE` goes on with it, any other verb that writes undoes or finishes it"
        yield warned("identity", "a renewal of this device was begun and not finished", todo)
