"""What the members page does: invites, answers, nearby pairing, roles, and retiring (profile §9, §10)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from meshnode.control.web.qr import qr_of
from meshnode.control.web.site import Web, by_htmx, form_of, said
from meshnode.control.web.texts import shown
from meshnode.errors import MembershipError, UsageError
from meshnode.limits import INVITE_TTL_MS
from meshnode.model.issuing import COMPANY_ENDS
from meshnode.node.memberviews import RecordView

TTLS: Final = (("15", "15 minutes"), ("60", "1 hour"), ("1440", "1 day"))  # minutes; the first is the default
_MINUTE_MS: Final = 60_000
_HOME: Final = "/members"
Form = dict[str, str]
Action = Callable[[Web, Request, Form], Awaitable[Response]]

assert int(TTLS[0][0]) * _MINUTE_MS == INVITE_TTL_MS


async def _invite(web: Web, request: Request, form: Form) -> Response:
    """The one answer that has the invite in it: to who asked, not kept, and with no address that leads to it again."""
    minutes = form.get("minutes", TTLS[0][0])
    if minutes not in dict(TTLS):
        raise UsageError("an invite lives for one of the times that the page offers")
    view = await web.operations.invite(int(minutes) * _MINUTE_MS, confirm="confirm" in form)
    web.invites.add(view)
    context = {"invite": view, "qr": qr_of(view.invite), "now_ms": web.now_ms(), "scripted": by_htmx(request)}
    if by_htmx(request):
        return HTMLResponse(web.render("fragments/invite.html", context))
    return HTMLResponse(web.render("invite.html", {**context, "kind": "good", "back": _HOME}))


async def _withdraw(web: Web, request: Request, form: Form) -> Response:
    view = await web.operations.withdraw_invite(form.get("id", ""))
    who = "" if view.who is None else f" {shown(view.who.name, 40)} ({view.who.short}), who asked, was not let in."
    return said(web, request, f"The invite {view.id[:8]} is withdrawn: nobody comes in by it.{who}", back=_HOME)


async def _decide(web: Web, request: Request, form: Form) -> Response:
    yes = form.get("answer") == "yes"
    who = await web.operations.decide(form.get("site", ""), approve=yes)
    name = f"{shown(who.name, 40)} ({who.short})"
    text = f"{name} is a member now." if yes else f"{name} was not let in, and its invite is of no use any more."
    return said(web, request, text, back=_HOME)


async def _nearby_open(web: Web, request: Request, _form: Form) -> Response:
    await web.operations.nearby_open()
    return said(web, request, "This device is open to one nearby device for a short time.", back=_HOME)


async def _nearby_answer(web: Web, request: Request, form: Form) -> Response:
    yes = form.get("answer") == "yes"
    view = await web.operations.nearby_answer(form.get("code", ""), yes=yes)
    if not yes:
        return said(web, request, "Nobody was let in: the digits were not the same.", back=_HOME)
    text = "is a member now." if view.state == "joined" else "becomes a member once the same is said there."
    name = "The other device" if view.who is None else shown(view.who.name, 40)
    return said(web, request, f"{name} {text}", back=_HOME)


async def _nearby_close(web: Web, request: Request, _form: Form) -> Response:
    await web.operations.nearby_close()
    return said(web, request, "This device is not open to nearby ones any more.", back=_HOME)


async def _role(web: Web, request: Request, form: Form) -> Response:
    record = await web.operations.set_role(form.get("site", ""), form.get("role", ""))
    article = "an" if record.role == "authority" else "a"
    return said(web, request, f"{_named(record)} is {article} {record.role} from now on.", back=_back(form))


async def _vouch(web: Web, request: Request, form: Form) -> Response:
    record = await web.operations.vouch(form.get("subject", "").strip(), name=form.get("name", "").strip())
    return said(web, request, f"{_named(record)} is in by the word of this device.", back=_back(form))


async def _retire(web: Web, request: Request, form: Form) -> Response:
    """Where others would be out too, that is said, and doing so all the same is a step of its own."""
    site, company = form.get("site", ""), form.get("company") == "yes"
    try:
        record = await web.operations.retire(site, alone=not company)
    except MembershipError as error:
        if company or not str(error).endswith(COMPANY_ENDS):
            raise
        template = "fragments/company.html" if by_htmx(request) else "company.html"
        context = {"text": str(error), "kind": "bad", "site": site, "back": _back(form)}
        return HTMLResponse(web.render(template, context))
    lost = f" With it went {', '.join(shown(each, 40) for each in record.lost)}." if record.lost else ""
    return said(web, request, f"{_named(record)} is retired.{lost}", back=_back(form))


def _named(record: RecordView) -> str:
    return f"{shown(record.name, 40)} ({record.short})"


def _back(form: Form) -> str:
    """To the member that it was about; what a form says goes into an address only if it looks like an id."""
    site = form.get("site", "")
    return f"{_HOME}?device={site}" if site.isalnum() and site.isascii() else _HOME


_ACTIONS: Final[dict[str, Action]] = {
    "invite": _invite,
    "invite-withdraw": _withdraw,
    "decide": _decide,
    "nearby-open": _nearby_open,
    "nearby-answer": _nearby_answer,
    "nearby-close": _nearby_close,
    "role": _role,
    "vouch": _vouch,
    "retire": _retire,
}


def routes(web: Web) -> Sequence[BaseRoute]:
    """One POST each."""
    return [Route(f"{_HOME}/{name}", _route(web, action), methods=["POST"]) for name, action in _ACTIONS.items()]


def _route(web: Web, action: Action) -> Callable[[Request], Awaitable[Response]]:
    async def act(request: Request) -> Response:
        return await action(web, request, await form_of(request))

    return act
