"""What the dialing plan keeps of each target, the pauses it makes, and the attempts it asks for (profile §11)."""

from __future__ import annotations

from dataclasses import dataclass, field

from meshnode.errors import CloseCode
from meshnode.limits import ADDRESSES_PER_SITE
from meshnode.net.addresses import Address

# Answers that another attempt in a second will not change: who we are, or who they are, has to change first.
LASTING = frozenset(
    {
        CloseCode.NOT_AUTHENTICATED,
        CloseCode.NOT_A_MEMBER,
        CloseCode.RETIRED,
        CloseCode.VERSION,
        CloseCode.LIMIT,
        CloseCode.TWIN,
    }
)


@dataclass(frozen=True, slots=True)
class DialPolicy:
    """Every pause of the dialer, in seconds."""

    base_s: float = 1.0  # bound of the first pause after a failure; doubles
    cap_s: float = 60.0
    lasting_s: float = 30.0  # the same for answers that will not change soon
    lasting_cap_s: float = 600.0
    yield_s: float = 0.5  # the larger site lets the smaller one dial first, which saves most crossed links
    settled_s: float = 10.0  # a link that lived this long was a success; one that ends sooner counts as a failure
    news_s: float = 1.0  # at least between two attempts, however much news there is; against announced nonsense
    at_once: int = 16  # attempts under way; keeps our own handshakes below what peers allow
    unheard_at_once: int = 8  # of them at members of whom there is no sign: others need not wait for those who are away


@dataclass(frozen=True, slots=True)
class Attempt:
    """Dial these addresses, best first, until one answers as `expect_site` (None: whoever it is)."""

    target: bytes | Address
    expect_site: bytes | None
    addresses: tuple[Address, ...]


@dataclass(slots=True)
class Target:
    """A member, or an address that the operator gave."""

    worked: tuple[Address, ...] = ()  # remembered ones, the latest to work first
    seen: tuple[Address, ...] = ()  # announced now
    fixed: tuple[Address, ...] = ()  # given by the operator
    boot: bytes = b""
    failures: int = 0
    due: float = 0.0
    yields: bool = False  # what it waits for is that the smaller site dials first
    last: float = field(default=float("-inf"))  # when the last attempt began
    attempt: Attempt | None = None  # under way
    overtaken: Attempt | None = None  # under way too, from before there was other news
    own: bool = False  # this very node answered there: nothing to dial while the network and the settings stay
    error: str = ""  # why the last attempt led to no link, or the last link ended
    elsewhere: dict[Address, bytes] = field(default_factory=dict)  # who answered there instead

    @property
    def dialing(self) -> bool:
        return self.attempt is not None

    @property
    def under_way(self) -> int:
        """How many attempts."""
        return (self.attempt is not None) + (self.overtaken is not None)

    def overtake(self) -> None:
        """Another attempt need not wait for the one under way, which may take 10 s where nobody is; two at most."""
        if self.overtaken is None:
            self.overtaken, self.attempt = self.attempt, None

    def over(self, attempt: Attempt) -> bool:
        """An attempt ended; says whether it was the latest."""
        if self.overtaken is attempt:
            self.overtaken = None
        elif self.attempt is attempt:
            self.attempt = None
            return True
        return False

    def addresses(self) -> tuple[Address, ...]:
        """Every one of them is tried; those that worked come first, and never push all announced ones out."""
        half = ADDRESSES_PER_SITE // 2
        ordered = (*self.worked[:half], *self.fixed[:half], *self.seen, *self.worked[half:], *self.fixed[half:])
        return tuple(dict.fromkeys(ordered))[:ADDRESSES_PER_SITE]

    def passed_over(self) -> tuple[tuple[Address, bytes], ...]:
        """The addresses that are tried, and at which another site answered the last time."""
        return tuple((address, self.elsewhere[address]) for address in self.addresses() if address in self.elsewhere)

    def was_elsewhere(self, address: Address, site: bytes) -> None:
        """Another site answered at one of its addresses; of those that are tried no more nothing is kept."""
        self.elsewhere = {**dict(self.passed_over()), address: site}
