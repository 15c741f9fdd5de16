"""Hypothesis for laws: how many examples there are, and strategies for the protocol's values."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st

from meshnode.model.hlc import Hlc
from meshnode.model.site import SiteKey

T = TypeVar("T")

law = settings(deadline=None, max_examples=150)

CASES = int(os.environ.get("MESHNODE_CASES", "1"))
SEED = os.environ.get("MESHNODE_SEED")


def cases(number: int) -> Callable[[Any], Any]:
    """That many cases, times MESHNODE_CASES: the same ones at every run, others with each MESHNODE_SEED."""
    many = settings(
        deadline=None,
        max_examples=number * CASES,
        phases=(Phase.explicit, Phase.generate, Phase.shrink),  # explaining takes longer than all the rest
        suppress_health_check=(HealthCheck.too_slow, HealthCheck.data_too_large),
    )
    return many if SEED is None else lambda test: seed(int(SEED))(many(test))


_FIRST = 0x4E00
_NUMBERS = 4096


def numbers(*, min_size: int, max_size: int) -> st.SearchStrategy[list[int]]:
    """Many small numbers for the price of one choice: Hypothesis draws and shrinks them as one text.

    It pays per choice, and of a case with several it makes five more in which one choice repeats another: so a case
    that is one choice costs a tenth, and none of its like is spent on near repeats.
    """
    alphabet = st.characters(min_codepoint=_FIRST, max_codepoint=_FIRST + _NUMBERS - 1)
    return st.text(alphabet, min_size=min_size, max_size=max_size).map(
        lambda text: [ord(each) - _FIRST for each in text]
    )


def pick(pool: Sequence[T], number: int, turn: int) -> T:
    """The place of a number in a pool: the first for 0; most numbers are below 256, and `turn` says from where on."""
    return pool[0] if number == 0 else pool[(number + 29 * turn) % len(pool)]


U64 = st.integers(0, 2**64 - 1)
I64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=40)
FLOAT = st.floats(allow_nan=False, allow_infinity=False)

scalars = st.none() | st.booleans() | I64 | FLOAT | TEXT | st.binary(max_size=40)
names = TEXT.filter(lambda name: 0 < len(name.encode()) <= 128)
columns = st.dictionaries(names, scalars, max_size=8)
row_keys = st.dictionaries(names, I64 | TEXT | st.binary(max_size=20), max_size=4)
hlcs = st.builds(Hlc, U64, U64)
site_keys = st.binary(min_size=32, max_size=32).map(SiteKey.from_seed)
mesh_ids = st.binary(min_size=16, max_size=16)

cbor_atoms = st.none() | st.booleans() | st.integers(-(2**64), 2**64 - 1) | FLOAT | TEXT | st.binary(max_size=40)
cbor_values = st.recursive(
    cbor_atoms,
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(TEXT, inner, max_size=5)
        | st.dictionaries(st.binary(max_size=8), inner, max_size=5)
        | st.dictionaries(U64, inner, max_size=5)
    ),
    max_leaves=12,
)
