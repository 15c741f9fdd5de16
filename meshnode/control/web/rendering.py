"""Templates to text: escaped always, and a name that a template misspells is an error, never nothing."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from meshnode.control.web import texts
from meshnode.control.web.assets import Assets

_OWN: Final = re.compile(r"meshnode (?!join\b|pair\b|demo\b|--home\b)")


class Renderer:
    """The templates of this package, with the filters that they share.

    `home` is what commands have to name, empty where they find it by themselves.
    """

    def __init__(self, assets: Assets, home: str = "") -> None:
        self._templates = Environment(
            loader=PackageLoader("meshnode.control.web"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
            cache_size=-1,
        )
        for filter_ in (
            texts.shown,
            texts.whole,
            texts.hue,
            texts.size,
            texts.rate,
            texts.span,
            texts.ago,
            texts.left,
            texts.iso,
            texts.absolute,
            texts.count,
        ):
            self._templates.filters[filter_.__name__ if filter_ is not texts.count else "counted"] = filter_
        self._templates.filters["told"] = partial(told, home=home)
        self._templates.globals["static"] = assets.url

    def __call__(self, template: str, context: Mapping[str, Any]) -> str:
        """The text of one template."""
        return self._templates.get_template(template).render(context)


def told(text: object, most: int = texts.SHOWN, *, home: str = "") -> Markup:
    """A sentence of the node on one line, cut; what it has in backquotes is a command or a name, and looks like one.

    A command that is for this node names its home, where it would not find it otherwise.
    """
    parts = texts.shown(text, most).split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    return Markup("").join(
        Markup("<code>{}</code>").format(command(part, home)) if at % 2 else escape(part)
        for at, part in enumerate(parts)
    )


def command(text: str, home: str) -> str:
    """With `--home` where it is one of this node's; those that make another device a member are run there."""
    named = _OWN.match(text)
    return f"meshnode --home {texts.shown(shlex.quote(home), 400)} {text[named.end() :]}" if home and named else text


def named_home(home: str, usual: str) -> str:
    """What commands have to name: nothing where the node lives at the usual place."""
    return "" if home == usual else home
