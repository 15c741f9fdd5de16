"""Every verb's help ends with an example or has one in its text, and the program can use each example as it stands."""

from __future__ import annotations

import re
import shlex

import pytest

from meshnode.cli.examples import EXAMPLES
from meshnode.cli.main import _VERBS, main, parsed

VERBS = [verb for verb, _, _ in _VERBS]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_shows_an_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(rf"example: `?meshnode {verb}\b", shown, re.IGNORECASE), shown


@pytest.mark.parametrize("verb", EXAMPLES)
def test_the_example_is_a_command_line_of_the_verb(verb: str) -> None:
    program, *arguments = shlex.split(EXAMPLES[verb].partition(" < ")[0])
    module, _ = parsed(arguments)
    assert (program, arguments[0]) == ("meshnode", verb)
    assert callable(module.run)
