"""The notes example as a person uses it: two windows on one screen, paired, written in, and a conflict decided."""

from __future__ import annotations

import gc
import importlib
import time
import tkinter as tk
from collections.abc import Callable, Iterator
from pathlib import Path
from tkinter import ttk
from typing import Any

import pytest
from support.nodes import free_port
from support.screen import screen

PATIENCE_S = 60.0


@pytest.fixture
def windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Opens the window of a device; all are closed at the end, on the thread that they belong to."""
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "examples")
    notes_tk = importlib.import_module("notes_tk")
    opened: list[Any] = []

    def fail(_kind: object, error: BaseException, _trace: object) -> None:
        raise error

    def window(name: str) -> Any:
        found = notes_tk.Window(tmp_path / name, name=name, listen="127.0.0.1", port=free_port(), mdns_enabled=False)
        found.report_callback_exception = fail
        found.geometry(f"+{40 + 900 * len(opened)}+40")
        opened.append(found)
        return found

    with screen() as display:
        monkeypatch.setenv("DISPLAY", display)
        yield window
        for each in opened:
            if hasattr(each, "node"):
                each.node.close()
            each.destroy()
        gc.collect()  # Tcl ends the process where another thread frees its interpreter


def until(window: tk.Tk, holds: Callable[[], object]) -> None:
    """Let every window of this thread work off its events until it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline
        window.tk.dooneevent()  # waits for the next, of which each window's timer makes fifty a second


def press(window: tk.Misc, text: str) -> None:
    """The button that begins so."""
    buttons = [each for each in _below(window) if isinstance(each, ttk.Button) and each["text"].startswith(text)]
    assert len(buttons) == 1, (text, [each["text"] for each in _below(window) if isinstance(each, ttk.Button)])
    buttons[0].invoke()


def write(field: tk.Widget, text: str) -> None:
    """Key for key."""
    field.focus_force()
    field.update()
    for letter in text:
        field.event_generate("<KeyPress>", keysym=letter)
        field.event_generate("<KeyRelease>", keysym=letter)


def titles(window: Any) -> list[str]:
    return [window.list.item(each, "text") for each in window.list.get_children()]


def text(window: Any) -> str:
    return str(window.text.get("1.0", "end-1c"))


def shown(window: Any, kind: str) -> Any:
    """The sheet of this class that covers it, if one does."""
    return next((each for each in window.winfo_children() if type(each).__name__ == kind), None)


def _below(widget: tk.Misc) -> Iterator[tk.Misc]:
    for child in widget.winfo_children():
        yield child
        yield from _below(child)


def test_two_windows_are_paired_and_show_the_same(windows: Callable[[str], Any]) -> None:
    desk = windows("desk")
    press(desk, "Begin")
    until(desk, lambda: hasattr(desk, "node"))
    press(desk, "New")
    desk.show([])  # a result from before may be under way
    write(desk.heading, "Milk")
    until(desk, lambda: titles(desk) == ["Milk"])

    press(desk, "Pair")
    lap = windows("lap")
    write(shown(lap, "Welcome").invite, "nonsense")
    press(lap, "Begin")
    until(lap, lambda: "invite" in shown(lap, "Welcome").said["text"] and not hasattr(lap, "node"))
    shown(lap, "Welcome").invite.delete(0, "end")
    shown(lap, "Welcome").invite.insert(0, shown(desk, "Pairing").invite.get())
    press(lap, "Begin")
    until(lap, lambda: desk.said["text"] == "linked with lap" and hasattr(lap, "node") and titles(lap) == ["Milk"])
    press(desk, "Close")
    assert (shown(desk, "Pairing"), shown(lap, "Welcome")) == (None, None)

    lap.list.selection_set(lap.list.get_children()[0])
    until(lap, lambda: lap.heading.get() == "Milk")
    write(lap.text, "two")
    until(desk, lambda: text(desk) == "two")

    for window, letter in ((desk, "a"), (lap, "b")):  # neither knows of the other's
        window.node.set_online(False)
        write(window.text, letter)
    for window in (desk, lap):
        window.node.set_online(True)
    until(desk, lambda: desk.twice["text"] == lap.twice["text"] == "Written twice: 1")
    press(desk, "Written twice")
    press(shown(desk, "Conflict"), "desk: ")
    until(desk, lambda: desk.twice["text"] == lap.twice["text"] == "Written twice: 0" and text(desk) == text(lap))
    assert "a" in text(lap)

    press(lap, "Delete")
    until(desk, lambda: titles(desk) == titles(lap) == [])
    assert (desk.heading.get(), text(desk), desk.shown) == ("", "", None)
