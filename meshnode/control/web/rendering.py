"""Templates to text: escaped always, and a name that a template misspells is an error, never nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from meshnode.control.web import texts
from meshnode.control.web.assets import Assets


class Renderer:
    """The templates of this package, with the filters that they share."""

    def __init__(self, assets: Assets) -> None:
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
        self._templates.filters["told"] = told
        self._templates.globals["static"] = assets.url

    def __call__(self, template: str, context: Mapping[str, Any]) -> str:
        """The text of one template."""
        return self._templates.get_template(template).render(context)


def told(text: object, most: int = texts.SHOWN) -> Markup:
    """A sentence of the node on one line, cut; what it has in backquotes is a command or a name, and looks like one."""
    parts = texts.shown(text, most).split("`")
    if len(parts) % 2 == 0:
        return escape("`".join(parts))
    return Markup("").join(
        Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts)
    )
