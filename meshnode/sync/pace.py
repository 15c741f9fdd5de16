"""How much may be in flight, so that it is a tenth of a second of the peer's work and no more (profile §13). Pure.

A live event waits behind everything that is in flight, at the peer as on the way there. The window is a number of
frames; this makes it one of time too, by the rate at which the peer's acks come in.
"""

from __future__ import annotations

from meshnode.limits import BATCH_EVENTS, COMMIT_EVENTS, WINDOW_FRAMES, WINDOW_MS

FIRST_EVENTS = 128  # in a frame while nothing is known of the peer
LEAST_EVENTS = 64  # in a frame: of fewer, what a frame costs by itself begins to show
FRAMES = 6  # in flight of a full window: while the peer works on some, acks and others are under way
LEAST_FRAMES = 4  # however slow the peer is, for the same reason
SAMPLE_MS = 100  # shorter measurements say more of the order in which acks come than of the peer
_GAIN = 0.5  # how far a sample moves the window to what it says
_GROWTH = 1.25  # of a window that ran empty


class Pace:
    """Measures one link; loads are those of `load_of`. Time may step back, which only costs a sample."""

    __slots__ = ("_begun_at", "_fastest_ms", "_in_flight", "_ran_empty", "_sent", "_settled", "_window")

    def __init__(self) -> None:
        self._sent: dict[int, tuple[int, int]] = {}  # frame in flight to when it was sent, and its load
        self._in_flight = 0  # load of those
        self._begun_at = 0  # when the sample under way began; there is one while anything is in flight
        self._settled = 0  # load that was settled in it
        self._ran_empty = False  # in it, although there was more to send: the peer waited for us
        self._fastest_ms: int | None = None  # of all acks: what one costs without waiting
        self._window: int | None = None  # the load that may be in flight, once something is known of the peer

    @property
    def events(self) -> int:
        """How many events one frame is to hold: so many that whole frames fill a transaction of the peer."""
        if self._window is None:
            return FIRST_EVENTS
        events = min(max(self._window // FRAMES, LEAST_EVENTS), BATCH_EVENTS)
        if events >= COMMIT_EVENTS:
            return events
        together = -(-COMMIT_EVENTS // events)
        if COMMIT_EVENTS // together * WINDOW_FRAMES < self._window:
            together -= 1  # the frames that may be in flight would not hold the window
        return COMMIT_EVENTS // together

    @property
    def room(self) -> int:
        """How many such frames may follow what is in flight."""
        if self._window is None:
            return WINDOW_FRAMES
        return max((self._window - self._in_flight) // self.events, LEAST_FRAMES - len(self._sent))

    def sent(self, no: int, load: int, now_ms: int) -> None:
        """A frame leaves, for the first time on this link or again."""
        if not (self._sent or self._ran_empty):
            self._begin(now_ms)
        self.forget(no)
        self._sent[no] = (now_ms, load)
        self._in_flight += load

    def settled(self, no: int, now_ms: int, *, more: bool) -> None:
        """An ack came; where there is not `more` to send, it says nothing of how fast the peer is."""
        if no not in self._sent:
            return  # another link sent it
        sent_at, load = self._sent[no]
        self.forget(no)
        waited = max(now_ms - sent_at, 1)
        self._fastest_ms = waited if self._fastest_ms is None else min(self._fastest_ms, waited)
        self._settled += load
        elapsed = now_ms - self._begun_at
        if not more or elapsed < 0:
            self._begin(now_ms)
        elif elapsed >= SAMPLE_MS:
            self._take(self._settled / elapsed, self._fastest_ms)
            self._begin(now_ms)
        self._ran_empty = self._ran_empty or (more and not self._sent)

    def forget(self, no: int) -> None:
        """No ack of this frame will tell anything."""
        _, load = self._sent.pop(no, (0, 0))
        self._in_flight -= load

    def forget_all(self) -> None:
        """What was in flight is discarded."""
        self._sent.clear()
        self._in_flight = 0

    def _begin(self, now_ms: int) -> None:
        self._begun_at, self._settled, self._ran_empty = now_ms, 0, False

    def _take(self, rate: float, fastest_ms: int) -> None:
        """Move to what a peer of that rate takes in in time, unless it had to wait: it can do more then."""
        window: float = FIRST_EVENTS * WINDOW_FRAMES if self._window is None else self._window
        if self._ran_empty:
            window *= _GROWTH
        else:
            window += (rate * (WINDOW_MS + fastest_ms) - window) * _GAIN
        self._window = min(int(window), BATCH_EVENTS * WINDOW_FRAMES)
