"""What a peer sent before it could be read: streams do not keep order among each other (profile §8)."""

from __future__ import annotations

from collections.abc import Sequence

from meshnode.errors import CloseCode, ProtocolError
from meshnode.limits import WINDOW_FRAMES


class EarlyFrames:
    """Frames of one link that wait for our own start, or for the peer's hello; bounded by what an honest peer sends."""

    __slots__ = ("_control", "_events")

    def __init__(self) -> None:
        self._control: list[bytes] = []
        self._events: list[bytes] = []

    @property
    def event_bytes(self) -> int:
        """What is held of the peer's event stream."""
        return sum(map(len, self._events))

    def keep_control_untrusted(self, frames: Sequence[bytes]) -> None:
        """Before our own hello went out a peer can have sent an introduce and a hello, nothing else."""
        self._control.extend(frames)
        if len(self._control) > 2:
            raise ProtocolError("frames before the hellos were exchanged")

    def keep_events_untrusted(self, frames: Sequence[bytes]) -> None:
        """Before its hello was read: an open and a window."""
        self._events.extend(frames)
        if len(self._events) > WINDOW_FRAMES + 1:
            raise ProtocolError("frames before the hello was read", CloseCode.LIMIT)

    def take_control(self) -> list[bytes]:
        """They can be read now."""
        frames, self._control = self._control, []
        return frames

    def take_events(self) -> list[bytes]:
        """Likewise."""
        frames, self._events = self._events, []
        return frames

    def clear(self) -> None:
        """The link ended."""
        self._control.clear()
        self._events.clear()
