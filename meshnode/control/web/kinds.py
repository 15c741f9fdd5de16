"""What each kind of notice means in words, and what its owner can do (profile §6). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """`todo` is empty where nothing is to be done, or where the sample says it."""

    title: str
    todo: str = ""

    @property
    def see(self) -> tuple[str, str, str, str]:
        """`todo` around the page that it sends its reader to: before, the page's title and address, behind."""
        named = _SEE.search(self.todo)
        if named is None:
            return self.todo, "", "", ""
        return self.todo[: named.start()], named[1], f"/{named[1].lower()}", self.todo[named.end() :]


_SEE: Final = re.compile(r"\b(Members|Tables|Conflicts|Doctor)\b")
_UPDATE: Final = "If this goes on, bring that device to the release that runs here."
_REMAINS: Final = "Nothing is to be done: it is written down so that you know."

KINDS: Final[Mapping[str, Kind]] = {
    "skew": Kind(
        "A clock is far ahead", "Set the clock of that device; what it wrote comes again once time has passed."
    ),
    "clock-offset": Kind("Two clocks differ", "Set the clocks of both devices: the later clock decides what shows."),
    "clock-behind": Kind("This device's clock is behind what it wrote", "Set the clock of this device."),
    "quota": Kind("One device brings more than is kept for it", "Add the tables that its events wait for: see Tables."),
    "hlc-reuse": Kind(
        "One device wrote two events with one clock",
        "Its home was copied, or restored from a backup: keep one of the two, and join the other anew.",
    ),
    "malformed": Kind("Something that is no event was sent", _UPDATE),
    "unknown-signer": Kind("Events of a device that is no member", "If it should be one, let it in: see Members."),
    "bad-signature": Kind(
        "Events whose signature is wrong", "Look at that device: what was sent is not what it wrote."
    ),
    "retired-signer": Kind("A retired device wrote on", "Nothing it wrote was taken in. See Members."),
    "late-below-cutoff": Kind("Events of a retired device, from before", _REMAINS),
    "retired-claim": Kind("A device says that it is retired", "Retire it here as well if that is so: see Members."),
    "own-retirement": Kind("This device is retired", "Its rows stay; to take part again it joins as a new device."),
    "role": Kind("A reader wrote", "Give it the role of a member if it is to write: see Members."),
    "scope": Kind("Rows that this device does not take in", "`meshnode policy` shows and changes what crosses."),
    "reserved-name": Kind("A table whose name cannot take part", "Rename it where it is written."),
    "empty-key": Kind("A row without a key", "Write it with a key."),
    "unresolved-key": Kind(
        "A row whose key cannot be read here", "Compare the table's key here and there: see Tables."
    ),
    "forgotten": Kind("Writes of a row that was forgotten", _REMAINS),
    "schema-drift": Kind("Others write columns that are not here", "Add the columns here: see Tables."),
    "table-unusable": Kind("A table cannot take part as it stands", "See Tables for why, and change it in SQLite."),
    "withheld": Kind(
        "Rows that the table here does not take", "Loosen what refuses them: a CHECK, a NOT NULL, a trigger."
    ),
    "partial": Kind("Rows of which earlier writes are not here", "`meshnode rehydrate` asks the others for the past."),
    "resurrected": Kind("A deleted row exists again", "Delete it again if it is to stay away."),
    "joined": Kind("A device joined", "If you do not know it, retire it: see Members."),
    "pairing-refused": Kind("Somebody tried to join and was refused", "Make another invite if it was you."),
    "twin": Kind("Another device runs with this device's key", "Stop one of the two, and join it anew."),
    "incarnation": Kind("This home was copied or restored", "`meshnode identity --help` says how to go on."),
    "rolled-back": Kind("A database went back in time", "Nothing is to be done: what is missing was asked for."),
    "port-taken": Kind("The UDP port is taken", "Stop what has it, or set `port` in config.toml."),
    "config-refused": Kind("The settings cannot be used", "`meshnode config check` names the line."),
    "discovery": Kind("Discovery is degraded", "See the check mdns on the page Doctor."),
    "announcement-ignored": Kind("An announcement was ignored", _UPDATE),
    "unreadable-state": Kind("Stored state cannot be read", "`meshnode check --repair` mends it."),
    "request-limit": Kind("A device asks for more than is answered at once", _UPDATE),
    "frontier-full": Kind("More devices than a mesh may have", "Retire those that are gone: see Members."),
    "conflicts-dropped": Kind(
        "Conflicts were dropped, since there were too many", "Decide those that are open: see Conflicts."
    ),
    "unsigned": Kind("Rows that stay on this device for now", "They are signed once it may write: see Members."),
    "unsyncable": Kind("Rows that cannot be events", "Change what the line names in the application's database."),
    "unwatched": Kind("An adopted table was not watched for a time", _REMAINS),
    "mended": Kind("Rows or clocks were mended", _REMAINS),
    "too-many-peers": Kind("More links than this device keeps", "Raise `max_links` where it has the memory for more."),
    "handshakes": Kind("Many handshakes failed", "Look which device tries: see the check links on the page Doctor."),
    "handshake-failed": Kind("A handshake failed", "See the check links on the page Doctor."),
    "taking-back": Kind("Rows are being taken back", "Until it ends, rows may show what is not acceptable any more."),
    "taken-back": Kind("Rows were taken back", _REMAINS),
    "retired": Kind(
        "A retired device was refused", "It stays out. To have it back, let it in as a new device: see Members."
    ),
    "not-a-member": Kind("A device that is no member was refused", "If it should be one, let it in: see Members."),
    "not-authenticated": Kind("Somebody could not prove who they are", _UPDATE),
    "protocol-error": Kind("A device says what cannot be understood", _UPDATE),
    "version": Kind("A device speaks another version of the protocol", "Bring both to the same release."),
    "limit": Kind("A device was turned away: there are too many", _REMAINS),
    "internal": Kind("Something failed in a way that the node does not know", "The node's log says more."),
    "erasure-due": Kind(
        "A forgotten row may still be in a file", "It goes by itself; other programs that read may delay it."
    ),
}


def kind_of(name: str) -> Kind:
    """What it means; a kind that has no words of its own is called what it is called."""
    found = KINDS.get(name)
    return found if found is not None else Kind(name.replace("-", " ").capitalize())
