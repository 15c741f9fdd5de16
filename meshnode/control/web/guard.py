"""What a request to the dashboard must be before anything of the node is touched, and what every answer bears.

Loopback is shared: by pages of other origins in the same browser, which can send requests anywhere, and by names that
somebody made to point here (DNS rebinding). Cookies do not tell ports apart, so that alone is no proof either.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from meshnode.control.connection import KNOWN
from meshnode.control.web.doors import Doors

ENTER: Final = "/enter"
STATIC: Final = "/static/"
SAFE: Final = ("GET", "HEAD")
UNSAFE: Final = ("POST",)
COOKIE_BYTES: Final = 16 * 1024  # of the Cookie headers that are read: as much as the head of a request may have
COOKIES: Final = 4  # of this port that are tried; another program may have set one of the same name
CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final[Mapping[str, str]] = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
ALIVE: Final = "meshnode.session"  # in a request's scope: asks whether its session is one still, which makes it live on
ENDED: Final = "This session has ended: run <code>meshnode dashboard</code> again."
_NOT_HERE: Final = "This page is for the person at this machine. Open it with <code>meshnode dashboard</code>."


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered."""

    status: int
    reason: str


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a request decides whether it is answered."""

    method: str
    path: str
    host: str
    origin: str | None
    fetch_site: str | None  # Sec-Fetch-Site, which no script can set
    known: bool  # it bears the cookie of a session


def refusal_of(asked: Asked, port: int) -> Refusal | None:
    """None where it is to be answered."""
    hosts = (f"127.0.0.1:{port}", f"localhost:{port}")
    if asked.host not in hosts:
        return Refusal(403, "The request names another host than this machine.")
    if asked.method not in SAFE + UNSAFE:
        return Refusal(405, "There is nothing here for such a request.")
    if asked.method in UNSAFE and asked.origin != f"http://{asked.host}":
        return Refusal(403, "The request comes from another page than this node's.")
    if asked.path == ENTER:  # whoever opened it: the ticket alone counts, and nobody uses it up by asking about it
        return None if asked.method == "GET" else Refusal(405, "A way in is there to be opened.")
    if asked.fetch_site not in (None, "same-origin", "none"):
        return Refusal(403, "The request comes from another page than this node's.")
    if asked.path.startswith(STATIC) and asked.method in SAFE:
        return None
    return None if asked.known else Refusal(403, _NOT_HERE)


def cookie_name(port: int) -> str:
    """One for each port: two nodes of one machine do not take each other's away."""
    return f"meshnode-{port}"


def sessions_in(headers: Headers, port: int) -> list[str]:
    """What the cookies of this port say, at most COOKIES; beside them every program on this machine may leave its own.

    Browsers send what those set as it is, well formed or not, and may send two of one name: one such line must not
    hide ours (RFC 6265 §5.4 splits at semicolons and nothing else).
    """
    text = "; ".join(headers.getlist("cookie"))[:COOKIE_BYTES]
    pairs = (each.strip().partition("=") for each in text.split(";"))
    return [value for name, _, value in pairs if name == cookie_name(port)][:COOKIES]


class Guard:
    """Around everything that is served."""

    def __init__(self, app: ASGIApp, doors: Doors, port: int, style: str) -> None:
        self._style = style  # where the style sheet of refusals is
        self._app = app
        self._doors = doors
        self._port = port

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        headers = Headers(scope=scope)
        session = next((each for each in sessions_in(headers, self._port) if self._doors.knows(each)), None)
        scope[KNOWN] = session is not None
        asked = Asked(
            method=scope["method"],
            path=scope["path"],
            host=headers.get("host", ""),
            origin=headers.get("origin"),
            fetch_site=headers.get("sec-fetch-site"),
            known=session is not None,
        )
        refusal = refusal_of(asked, self._port)
        if refusal is None:
            scope[ALIVE] = partial(self._doors.knows, session or "")
            await self._app(scope, receive, _with_headers(send))
        else:
            by_page = headers.get("hx-request") == "true" and refusal.reason == _NOT_HERE
            page = ended_line() if by_page else plain_page(refusal.reason, refusal.status, self._style)
            await page(scope, receive, _with_headers(send))


def plain_page(
    text: str,
    status: int,
    style: str,
    *,
    head: str = "",
    title: str = "Not here",
    headers: Mapping[str, str] | None = None,
) -> HTMLResponse:
    """A page that shows nothing of the node, styled by the file at `style`; all of its text is ours."""
    page = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>meshnode</title><link rel="icon" href="data:,">'
        f'<link rel="stylesheet" href="{style}">{head}</head>'
        f'<body><main class="alone"><h1>{title}</h1><p class="card">{text}</p></main></body></html>'
    )
    return HTMLResponse(page, status, headers=dict(headers or {}))


def ended_line() -> HTMLResponse:
    """What a page that is still open is told instead, where it shows what came of an action."""
    return HTMLResponse(f'<p class="note note-bad">{ENDED}</p>', 403)


def entered(doors: Doors, ticket: str, port: int, style: str) -> HTMLResponse:
    """The page that a good ticket opens, with the cookie; it goes on by a step of its own.

    A redirect would still count as begun by whoever opened it, and take no Strict cookie along.
    """
    session = doors.redeem(ticket)
    if session is None:
        return plain_page(f"This way in was used, or is too old. {_NOT_HERE}", 403, style)
    on = '<meta http-equiv="refresh" content="0;url=/">'
    page = plain_page('Going on to <a href="/">the dashboard</a>.', 200, style, head=on, title="meshnode")
    page.set_cookie(cookie_name(port), session, httponly=True, samesite="strict", path="/")
    return page


def new_secret() -> str:
    """256 bits as text."""
    return secrets.token_urlsafe(32)


def _with_headers(send: Send) -> Send:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers: Any = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            headers.setdefault("Cache-Control", "no-store")
        await send(message)

    return sending
