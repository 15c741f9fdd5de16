"""Notes in a window, the same on every device of a person: `python notes_tk.py [FOLDER]`.

At its first start it asks for an invite, which "Pair…" shows on a device that is in already. The node has a thread of
its own, and calls back by way of a `CallQueue`, which the window's timer empties.
"""

import sys
import tkinter as tk
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from tkinter import messagebox, ttk
from typing import Unpack

from meshnode import BlockingNode, BlockingTable, CallQueue, Home, MeshError, Settings


@dataclass
class Note:
    """A row of the table `notes`. A field is None where a device deleted the note while another one wrote on."""

    id: str
    title: str | None = ""
    text: str | None = ""


class Window(tk.Tk):
    """A list, an editor, and a line that says how things are."""

    node: BlockingNode
    notes: BlockingTable[Note]

    def __init__(self, home: Path, **settings: Unpack[Settings]) -> None:
        super().__init__()
        self.title("Notes")
        ttk.Style(self).theme_use("clam")
        self.calls = CallQueue()
        self.open = partial(BlockingNode.open, home, deliver=self.calls.put, **settings)
        self.shown: Note | None = None  # what the editor was filled with
        self.lay_out()
        self.look()
        if Home(home).founded:
            self.begin(self.open())
        else:
            Welcome(self)

    def lay_out(self) -> None:
        foot = ttk.Frame(self, padding=6)
        foot.pack(side="bottom", fill="x")
        self.said = ttk.Label(foot)
        self.said.pack(side="left")
        self.twice = ttk.Button(foot, command=lambda: Conflict(self))
        self.twice.pack(side="right")
        side, editor = ttk.Frame(self, padding=6), ttk.Frame(self, padding=6)
        side.pack(side="left", fill="y")
        editor.pack(side="left", fill="both", expand=True)
        self.list = ttk.Treeview(side, show="tree", selectmode="browse")
        self.list.pack(fill="both", expand=True)
        self.list.bind("<<TreeviewSelect>>", lambda _: self.fill())
        for text, command in (("New", self.add), ("Delete", self.delete), ("Pair…", lambda: Pairing(self))):
            ttk.Button(side, text=text, width=8, command=command).pack(side="left", pady=(6, 0))
        self.heading = ttk.Entry(editor, font="TkHeadingFont")
        self.heading.pack(fill="x", pady=(0, 6))
        self.text = tk.Text(editor, wrap="word", font="TkTextFont", relief="flat", padx=6, pady=6, width=60, height=20)
        self.text.pack(fill="both", expand=True)
        self.bind("<KeyRelease>", lambda _: self.save())

    def begin(self, node: BlockingNode) -> None:
        self.node, self.notes = node, node.table("notes", Note).create(key="id")
        node.on_live(self.show, "SELECT id, title, text FROM notes ORDER BY title, id", row=Note)
        self.show_state()

    def look(self) -> None:
        """Fifty times a second: what the node has to tell."""
        self.after(20, self.look)
        self.calls.run()

    def show_state(self) -> None:
        self.after(500, self.show_state)
        linked = ", ".join(peer.name for peer in self.node.peers() if peer.linked)
        self.said.config(text=f"linked with {linked}" if linked else "no other device is near")
        count = len(self.node.conflicts())
        self.twice.config(text=f"Written twice: {count}", state="normal" if count else "disabled")

    def report_callback_exception(self, kind: type[BaseException], error: BaseException, trace: object) -> None:
        """What a button or a key led to: an error of the node is a sentence for the person."""
        messagebox.showerror("Notes", str(error))

    def show(self, notes: list[Note]) -> None:
        """The notes are these now, whoever wrote them; the one that is chosen may be newer."""
        chosen = [note for each in self.list.selection() if (note := self.notes.get(each))]
        self.list.delete(*self.list.get_children())
        for note in {note.id: note for note in [*notes, *chosen]}.values():
            self.list.insert("", "end", note.id, text=note.title or "(untitled)")
        self.list.selection_set([note.id for note in chosen])
        self.fill()

    def fill(self) -> None:
        """Touch only the fields that others wrote: in the rest the cursor stays where it is."""
        chosen = self.list.selection()
        self.shown = self.notes.get(chosen[0]) if chosen else None
        note = self.shown or Note("")
        if self.heading.get() != (note.title or ""):
            self.heading.delete(0, "end")
            self.heading.insert(0, note.title or "")
        if self.text.get("1.0", "end-1c") != (note.text or ""):
            self.text.replace("1.0", "end-1c", note.text or "")

    def save(self) -> None:
        """After every key; only the fields that were edited, so that what others write into the rest stays."""
        fields = {"title": self.heading.get(), "text": self.text.get("1.0", "end-1c")}
        if self.shown:
            edited = {name: text for name, text in fields.items() if text != (getattr(self.shown, name) or "")}
            if edited:
                self.notes.patch(self.shown.id, **edited)
                self.shown = self.notes.get(self.shown.id)

    def add(self) -> None:
        note = Note(uuid.uuid4().hex)
        self.notes.upsert(note)
        self.list.insert("", "end", note.id)
        self.list.selection_set(note.id)
        self.heading.focus_set()

    def delete(self) -> None:
        for chosen in self.list.selection():
            self.notes.delete(chosen)


class Sheet(ttk.Frame):
    """Covers list and editor until it is done with."""

    def __init__(self, window: Window, text: str) -> None:
        super().__init__(window, padding=40)
        self.place(relwidth=1, relheight=1, height=-40)
        self.window, self.said = window, ttk.Label(self, text=text, wraplength=600)
        self.said.pack(anchor="w", pady=12)

    def add_button(self, text: str, command: Callable[[], object]) -> None:
        ttk.Button(self, text=text, command=command).pack(anchor="w", pady=4)

    def tell(self, text: str) -> None:
        self.said.config(text=text)


class Welcome(Sheet):
    """The first start."""

    def __init__(self, window: Window) -> None:
        super().__init__(window, "Paste the invite of another device, or leave this empty to begin with the first one.")
        self.invite = ttk.Entry(self)
        self.invite.pack(fill="x", pady=4)
        self.add_button("Begin", lambda: Thread(target=self.open, args=[self.invite.get()], daemon=True).start())

    def open(self, invite: str) -> None:
        """On a thread: the window does not stand still while the other device is looked for."""
        try:
            node = self.window.open(invite=invite.strip())
        except MeshError as error:
            self.window.calls.put(partial(self.tell, str(error)))
        else:
            self.window.calls.put(self.destroy)
            self.window.calls.put(partial(self.window.begin, node))


class Pairing(Sheet):
    """An invite for one other device; the line below says when it is there."""

    def __init__(self, window: Window) -> None:
        super().__init__(window, "Paste this at the other device. It is a secret: whoever has it is let in.")
        self.invite = ttk.Entry(self)
        self.invite.insert(0, window.node.invite().invite)
        self.invite.pack(fill="x", pady=4)
        self.add_button("Close", self.destroy)


class Conflict(Sheet):
    """What two devices wrote without knowing of each other: a person chooses."""

    def __init__(self, window: Window) -> None:
        conflict = window.node.conflicts()[0]
        super().__init__(window, f"Two devices wrote the {conflict.column or 'note'}. Which shall stay?")
        for side in (conflict.ours, conflict.theirs):
            value = str(side.value or "nothing")[:60]
            self.add_button(f"{side.name}: {value}", partial(self.choose, conflict.id, side.site))
        self.add_button("Later", self.destroy)

    def choose(self, conflict: str, site: str) -> None:
        self.window.node.resolve_conflict(conflict, prefer=site)
        self.destroy()


if __name__ == "__main__":
    Window(Path(sys.argv[1] if len(sys.argv) > 1 else "notes")).mainloop()  # its end closes the node
