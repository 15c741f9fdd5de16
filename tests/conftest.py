"""Makes tests/support importable as `support`, every run of Hypothesis repeatable, lets Ctrl-C reach what the tests
start, and says which fresh seeds of the simulator run: where several processes share the tests, these are not shown.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from meshnode.codec import pkcs8
from meshnode.model.noticekinds import NOTICE_KINDS
from meshnode.node import dialing
from meshnode.store.notices import NoticeBook

sys.path.insert(0, str(Path(__file__).parent))

# A shell starts background jobs with SIGINT ignored, and every process below would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("repeatable", derandomize=True, print_blob=True)
settings.load_profile("repeatable")

FIRST_SEED = "MESHNODE_SIM_SEED"


def pytest_configure() -> None:
    """Workers inherit it."""
    os.environ.setdefault(FIRST_SEED, str(secrets.randbelow(2**32)))


def pytest_report_header() -> str:
    """Printed first."""
    return f"fresh seeds of the simulator: from {os.environ[FIRST_SEED]} on"


@pytest.fixture(autouse=True, scope="session")
def known_kinds_of_notices() -> Iterator[None]:
    """Nothing is surfaced under a name that `notices --kind` would refuse."""
    add = NoticeBook.add

    def checked(book: NoticeBook, kind: str, *rest: Any, **named: Any) -> None:
        assert kind in NOTICE_KINDS, f"model/noticekinds.py does not have {kind}"
        add(book, kind, *rest, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoticeBook, "add", checked)
        yield


@pytest.fixture
def cheap_passphrases(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is under a passphrase costs a thousandth of a second to open, here and in the commands that are forked."""
    from support.fork_server import SCRYPT_COST

    cost = 1 << 4
    monkeypatch.setattr(pkcs8, "_COST", cost)
    monkeypatch.setenv(SCRYPT_COST, str(cost))


@pytest.fixture
def soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who was refused for a reason that lasts dials again after a second, not after half a minute."""
    monkeypatch.setattr(dialing, "DialPolicy", partial(dialing.DialPolicy, lasting_s=1.0))
