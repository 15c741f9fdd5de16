"""The house rules that no linter knows: sizes, first lines, state, private names, and no word of other places."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = sorted((ROOT / "meshnode").rglob("*.py"))
PRIVATE_MODULE = ROOT / "meshnode" / "net" / "aioquic_private.py"
MODULE_LINES = 500  # exclusive
FUNCTION_LINES = 50  # a screen
ALLOWED = re.compile("__|hiddenimports$")  # the second is what PyInstaller reads in a hook
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ""}
FOREIGN = re.compile(r"/work/|/tmp/venv|/tmp/design")


def trees() -> Iterator[tuple[Path, ast.Module]]:
    for module in MODULES:
        yield module, ast.parse(module.read_text(encoding="utf-8"))


def test_every_module_says_what_it_is_in_its_first_line() -> None:
    silent = [module for module, tree in trees() if not (ast.get_docstring(tree) or "").strip()]
    late = [module for module in MODULES if not module.read_text(encoding="utf-8").startswith('"""')]
    assert (silent, late) == ([], [])


def test_modules_and_functions_fit_a_screen() -> None:
    long = [module for module in MODULES if len(module.read_text(encoding="utf-8").splitlines()) >= MODULE_LINES]
    functions = [
        f"{module.name}:{node.name}"
        for module, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES
    ]
    assert (long, functions) == ([], [])


def test_no_module_keeps_state() -> None:
    """Names bound to something mutable in a module are constants in capitals, and nothing is `global`."""
    kept = []
    for module, tree in trees():
        for node in tree.body:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            value = getattr(node, "value", None)
            if isinstance(value, ast.List | ast.Dict | ast.Set | ast.ListComp | ast.DictComp):
                names = [target.id for target in targets if isinstance(target, ast.Name)]
                kept += [f"{module.name}:{name}" for name in names if not (name.isupper() or ALLOWED.match(name))]
        kept += [f"{module.name}: global" for node in ast.walk(tree) if isinstance(node, ast.Global)]
    assert kept == []


def test_private_names_of_aioquic_stay_in_one_module() -> None:
    found = []
    for module, tree in trees():
        text = module.read_text(encoding="utf-8")
        if module == PRIVATE_MODULE or "aioquic" not in text:
            continue
        ours = set(re.findall(r"(?:self\.|def )(_\w+)", text))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and re.fullmatch(r"_[a-z]\w*", node.attr):
                owner = ast.unparse(node.value)
                if owner not in ("self", "cls") and node.attr not in ours:
                    found.append(f"{module.name}:{node.lineno} {owner}.{node.attr}")
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aioquic"):
                found += [f"{module.name}: {name.name}" for name in node.names if name.name.startswith("_")]
    assert found == []


@pytest.mark.parametrize("folder", ["meshnode", "tests", "certs", "examples", ".ci", "."])
def test_the_project_speaks_of_itself_alone(folder: str) -> None:
    files = (ROOT / folder).iterdir() if folder == "." else (ROOT / folder).rglob("*")
    foreign = [
        str(file)
        for file in files
        if file.is_file()
        and file.suffix in TEXT_SUFFIXES
        and file != Path(__file__)
        and FOREIGN.search(file.read_text(encoding="utf-8", errors="replace"))
    ]
    assert foreign == []


def test_no_sql_numbers_its_placeholders() -> None:
    """Python 3.12 deprecates `?1` with a sequence of values, and Python 3.14 refuses it."""
    numbered = [module for module in MODULES if re.search(r"[ (,=]\?[0-9]", module.read_text(encoding="utf-8"))]
    assert numbered == []
