"""Secrets stay where they belong: no invite in an error or a log line, no key in what is printed but its words."""

from __future__ import annotations

import io
import logging
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command import meshnode

from meshnode.cli.logs import log_to_stderr
from meshnode.cli.main import main
from meshnode.cli.output import printable
from meshnode.errors import IdentityError
from meshnode.node.pairing_views import InviteView
from meshnode.node.words import seed_of_words, words_of

INVITE = "meshnode-invite:u5qxmalenvsxg2cqi5vzihe2vylcw3jedmkf2kefazshg2lumviigvq23m4y7wd7rz7nqmy374x4"


@pytest.mark.parametrize("arguments", [["join", INVITE], [INVITE], ["status", INVITE], ["rows", INVITE]])
async def test_no_error_repeats_an_invite(tmp_path: Path, arguments: list[str]) -> None:
    result = await meshnode(*arguments, home=tmp_path)
    assert result.code != 0
    assert INVITE[20:40] not in result.out + result.err


def test_no_log_line_repeats_an_invite_or_steers_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.StringIO()
    monkeypatch.setattr("sys.stderr", written)
    log_to_stderr(level="debug")
    logging.getLogger("meshnode.x").warning("peer %s says %s", "\x1b[2J\nfake", INVITE.upper())
    (line,) = written.getvalue().splitlines()
    assert INVITE[20:40] not in line.lower()
    assert "\x1b" not in line
    logging.getLogger("other").info("quiet")
    assert len(written.getvalue().splitlines()) == 1


@pytest.mark.parametrize("unseen", [0x1B, 0x0A, 0x9B, 0x061C, 0x200B, 0x200E, 0x202E, 0x2028, 0x2060, 0x2066, 0xFEFF])
def test_a_name_is_not_made_to_look_like_another(unseen: int) -> None:
    shown = printable(f"d{chr(unseen)}esk")
    assert shown != "desk"
    assert shown.isascii()


def test_a_crash_leaves_no_core_with_the_keys_in_it() -> None:
    before = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (before[1], before[1]))
    try:
        assert main(["no-such-verb"]) == 2
        assert resource.getrlimit(resource.RLIMIT_CORE) == (0, before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_CORE, before)


def test_a_view_of_an_invite_does_not_show_it() -> None:
    assert INVITE not in repr(InviteView(invite=INVITE, expires_ms=1))


@given(st.binary(min_size=32, max_size=32))
def test_words_give_back_the_key(seed: bytes) -> None:
    words = words_of(seed)
    assert len(words) == 17
    assert seed_of_words(" ".join(words).upper().replace(" ", "-", 3)) == seed


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda words: words[:-1], "17 words"),
        (lambda words: ["babab", *words[1:]], "do not fit"),
        (lambda words: [words[1], words[0], *words[2:]], "do not fit"),
        (lambda words: ["bab", *words[1:]], "word 1 does not have 5 letters"),
        (lambda words: [words[0], "bxbab", *words[2:]], "word 2 has a letter"),
    ],
)
def test_wrong_words_are_named(change, says: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(IdentityError, match=says):
        seed_of_words(" ".join(change(words_of(bytes(range(32))))))
