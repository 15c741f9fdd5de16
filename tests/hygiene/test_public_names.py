"""Whatever a public call takes or gives has a public name, which is there at once and loads no more than it needs."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec

import meshnode
from meshnode.node.storage import Storage
from meshnode.node.writing import Write
from meshnode.store.database import Tx

BETWEEN_CLASSES = {
    "Node": {"change_pages", "collecting", "refuse_in_transaction", "storage", "watch_settings", "write_rows"},
    "BlockingNode": {"write"},
    "Table": {"deleting", "deleting_where", "patching", "row_type", "upserting"},
    "BlockingTable": {"deleting", "deleting_where", "patching", "upserting"},
    "Transaction": {"end", "ended"},
    "Subscription": {"run"},
    "Home": None,  # `Node` takes one; what it does is for those who make it
}
"""What classes of the package call of each other, and no program does."""


def public_members(name: str, value: Any) -> Iterator[Callable[..., Any]]:
    if not inspect.isclass(value):
        yield value
        return
    hidden = BETWEEN_CLASSES.get(name, set())
    for each in dir(value) if hidden is not None else ():
        member = inspect.getattr_static(value, each)
        if each.startswith("_") or each in (hidden or ()):
            continue
        member = getattr(member, "__func__", getattr(member, "fget", member))
        if inspect.isfunction(member) and member.__module__.startswith("meshnode"):
            yield member


def named_in(hint: Any) -> Iterator[type]:
    """The package's own classes in an annotation."""
    hint = getattr(hint, "__value__", hint)
    if isinstance(hint, type) and typing.get_origin(hint) is None:
        if hint.__module__.startswith("meshnode."):
            yield hint
        return
    for part in (typing.get_origin(hint), *typing.get_args(hint)):
        for each in part if isinstance(part, list) else [part]:
            if each is not None and each is not hint:
                yield from named_in(each)


def hints_of(value: Any) -> Iterable[Any]:
    names = {name: getattr(meshnode, name) for name in meshnode.__all__} | {
        "Key": Any,
        "Storage": Storage,
        "Tx": Tx,
        "Write": Write,
    }
    return typing.get_type_hints(value, localns=names).values()


def is_struct(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, msgspec.Struct)


def reached() -> dict[str, str]:
    """Every class that a public call mentions, or a field of one that it does, by name; and where it was seen."""
    found: dict[str, str] = {}
    waiting = [
        (f"{name}: {getattr(member, '__qualname__', member)}", member)
        for name in meshnode.__all__
        for value in [getattr(meshnode, name)]
        for member in public_members(name, value)
    ]
    waiting += [(name, value) for name in meshnode.__all__ if is_struct(value := getattr(meshnode, name))]
    while waiting:
        where, value = waiting.pop()
        for hint in hints_of(value):
            for each in named_in(hint):
                if each.__name__ not in found:
                    found[each.__name__] = where
                    if is_struct(each):
                        waiting.append((f"{where}, {each.__name__}", each))
    return found


def test_every_class_that_a_public_call_mentions_is_public() -> None:
    hidden = {name: where for name, where in reached().items() if name not in meshnode.__all__}
    assert hidden == {}


def test_the_list_is_in_order_and_every_name_is_told_to_type_checkers() -> None:
    assert meshnode.__all__ == sorted(set(meshnode.__all__))
    told = inspect.getsource(meshnode).partition("\n__all__")[0]
    assert [name for name in meshnode.__all__ if f" {name}" not in told] == []


def test_the_package_alone_loads_nothing_of_the_node() -> None:
    code = "import sys; before = set(sys.modules); import meshnode; print(*sorted(set(sys.modules) - before))"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    assert [each for each in shown if each.startswith("meshnode")] == ["meshnode"]
    assert {"asyncio", "sqlite3", "msgspec", "cryptography"} & set(shown) == set()
