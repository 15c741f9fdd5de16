"""A passphrase that is typed at a terminal: asked for, not shown, and as slow as it is for everybody."""

from __future__ import annotations

from pathlib import Path

from support.terminal import at_terminal

from meshnode.node.home import Home as NodeHome
from meshnode.node.words import seed_of_words

SAID = "correct horse battery"


def test_at_a_terminal_it_is_asked_for_and_not_shown(tmp_path: Path) -> None:
    home, word = tmp_path / "n", SAID.encode() + b"\n"
    twice = [("New passphrase:", word), ("The same again:", word)]
    code, shown = at_terminal("init", "--passphrase", home=home, typed=twice)
    assert (code, SAID in shown) == (0, False), shown
    words = shown.split("with them as well.")[1].split("Next:")[0]
    assert seed_of_words(words) == NodeHome(home, passphrase=SAID).recovery_key().seed
    question = f"Passphrase of {home}/site.key:"
    code, shown = at_terminal("invite", "--no-qr", home=home, typed=[(question, word)])
    assert (code, SAID in shown, "meshnode-invite:" in shown) == (0, False, True), shown
    code, shown = at_terminal("invite", home=home, typed=[(question, b"wrong\n")])
    assert (code, "under another passphrase" in shown) == (1, True), shown
    code, shown = at_terminal("up", home=home, typed=[(question, b"\x03")])
    assert (code, "Traceback" in shown) == (130, False), shown
    unlike = [("New passphrase:", word), ("The same again:", b"typo\n")]
    code, shown = at_terminal("init", "--passphrase", home=tmp_path / "m", typed=unlike)
    assert (code, "not the same" in shown) == (2, True), shown


def test_at_a_terminal_a_doctor_says_what_it_looks_at_and_takes_that_away(tmp_path: Path) -> None:
    code, shown = at_terminal("doctor", "disk", home=tmp_path / "n", typed=[])
    assert code == 1
    assert "looking at home …" in shown
    assert shown.index("\x1b[K", shown.index("looking at home")) < shown.index("there is no node")
