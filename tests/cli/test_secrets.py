"""Secrets stay where they belong: no invite in an error or a log line, no key in what is printed but its words."""

from __future__ import annotations

import io
import logging
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.command import meshnode

from meshnode.cli.logs import log_to_stderr
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
    log_to_stderr(verbose=True)
    logging.getLogger("meshnode.x").warning("peer %s says %s", "\x1b[2J\nfake", INVITE.upper())
    (line,) = written.getvalue().splitlines()
    assert INVITE[20:40] not in line.lower()
    assert "\x1b" not in line
    logging.getLogger("other").info("quiet")
    assert len(written.getvalue().splitlines()) == 1


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
