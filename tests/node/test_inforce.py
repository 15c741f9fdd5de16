"""What of the settings is in force, decided without a node; and when a saved file is read."""

from __future__ import annotations

from itertools import pairwise

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from meshnode.node.config import Config
from meshnode.node.configtext import said_in
from meshnode.node.inforce import InForce, digest_of
from meshnode.node.watching import Settling

FILE = said_in("name = 'desk'\nport = 1\nscope = ['main.a']\n")


def test_what_is_live_follows_the_file_and_the_rest_waits() -> None:
    force, changed = InForce.begin(FILE).taking(said_in("port = 2\nscope = ['main.b']\npeers = ['a:1']\n"))
    assert changed == ["peers", "scope"]
    assert force.config == Config(name="desk", port=1, scope=["main.b"], peers=["a:1"])
    assert force.pending == ("name", "port")
    assert (force.view("port").value, force.view("port").pending) == (1, 2)
    assert force.view("scope").pending is msgspec.UNSET
    back, changed = force.taking(FILE)
    assert (back, changed) == (InForce.begin(FILE), ["peers", "scope"])


def test_what_a_run_was_started_with_stands_until_its_line_changes_or_somebody_names_it() -> None:
    given = msgspec.structs.replace(FILE.config, port=9, scope=[], mdns_enabled=False)
    force = InForce.begin(FILE, given)
    assert force.overridden == ("port", "mdns_enabled", "scope")
    assert [force.source(name) for name in ("name", "port", "listen")] == ["file", "command line", "default"]
    same, changed = force.taking(said_in("name = 'desk'\nport = 1\nscope = ['main.a']\nlisten = '::1'\n"))
    assert (same.config, changed, same.pending) == (given, [], ("listen",))
    named, changed = same.taking(same.said, ["scope", "port"])
    assert (named.config.scope, named.config.port, changed) == (["main.a"], 9, ["scope"])
    moved, changed = same.taking(said_in("scope = ['main.c']\nmdns_enabled = true\n"))
    assert (moved.config.scope, moved.config.mdns_enabled, changed) == (["main.c"], False, ["scope"])


def test_the_digest_is_of_what_is_said_and_not_of_how() -> None:
    assert digest_of(said_in("port = 0 # default\n").config) == digest_of(Config())
    assert digest_of(FILE.config) != digest_of(Config())
    assert len(digest_of(Config())) == 64


def test_a_file_is_read_once_it_stands_still() -> None:
    settling = Settling()
    looks = ["a", "a", "a", "b", "c", "c", "c", "a", "a"]
    assert [settling.look(each) for each in looks] == [False, True, False, False, False, True, False, False, True]
    settling.again()
    assert (settling.look("a"), settling.look("a")) == (True, False)


@given(st.lists(st.sampled_from("abc"), max_size=30))
def test_every_state_that_lasts_is_read_in_the_end(looks: list[str]) -> None:
    settling = Settling()
    told = [each for each in looks if settling.look(each)]
    assert all(one != other for one, other in pairwise(told))
    if looks[-2:-1] == looks[-1:]:
        assert told[-1:] == looks[-1:]
