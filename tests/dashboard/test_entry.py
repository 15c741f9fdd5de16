"""Who gets in: one way in used once, the cookie, Host and Origin, by a plain HTTP client that sends what it likes."""

from __future__ import annotations

import http.client
import logging
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from starlette.requests import Request
from support.dashboard import MeshInMemory, Served, peer

from meshnode.control import connection as connections
from meshnode.control.connection import Connection
from meshnode.control.web import site
from meshnode.control.web.doors import SESSION_IDLE_S, SESSIONS, TICKET_S, TICKETS, Doors
from meshnode.control.web.guard import CSP, HEADERS, Asked, refusal_of
from meshnode.control.web.pages import mesh

PORT = 4711
ACTION = "/mesh/request-sync"


class Desk:
    """The dashboard, and requests to it that say whatever a test wants."""

    def __init__(self, served: Served, node: MeshInMemory) -> None:
        self.served = served
        self.node = node
        self.host = served.origin.removeprefix("http://")

    def ask(
        self, path: str, method: str = "GET", body: str = "", **headers: str | None
    ) -> tuple[int, str, dict[str, str]]:
        """Status, body, headers; a header that is None is not sent."""
        said: dict[str, str | None] = {"Host": self.host}
        said |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection(self.host, timeout=60)
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in said.items():
            if value is not None:
                connection.putheader(name, value)
        if body:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body.encode() or None)
        answer = connection.getresponse()
        found = answer.status, answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()}
        connection.close()
        return found

    def enter(self, way_in: str | None = None) -> str:
        """The cookie that a way in gives."""
        url = way_in or self.served.way_in()
        status, _, headers = self.ask(url.removeprefix(f"http://{self.host}"))
        assert status == 200
        return headers["set-cookie"].partition(";")[0]


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    node = MeshInMemory([peer(0)])
    with Served(node) as served:
        yield Desk(served, node)


def test_a_way_in_gives_a_cookie_that_no_script_and_no_other_site_has(desk: Desk) -> None:
    status, body, headers = desk.ask(desk.served.way_in().removeprefix(f"http://{desk.host}"))
    name, *attributes = headers["set-cookie"].split("; ")
    assert status == 200
    assert name.startswith(f"meshnode-{desk.host.partition(':')[2]}=")
    assert {each.lower() for each in attributes} == {"httponly", "path=/", "samesite=strict"}
    assert 'http-equiv="refresh" content="0;url=/"' in body
    assert desk.ask("/", Cookie=name)[0] == 200


def test_nothing_is_served_without_the_cookie_but_files(desk: Desk) -> None:
    page = desk.ask("/", Cookie=desk.enter())[1]
    file = page.partition('href="/static/')[2].partition('"')[0]
    status, _, headers = desk.ask(f"/static/{file}")
    assert (status, headers["cache-control"]) == (200, "public, max-age=31536000, immutable")
    for path in ("/", "/members", "/live/mesh", "/live/x", "/nothing", "/enter", "/enter?token="):
        status, body, _ = desk.ask(path)
        assert status == 403
        assert "desk" not in body
    for path in ("/static/x/../../__init__.py", "/static/0/app.css", "/static/%2e%2e/%2e%2e/guard.py"):
        assert desk.ask(path)[0] == 404
    assert desk.ask(ACTION, "POST", Origin=f"http://{desk.host}")[0] == 403


def test_a_way_in_is_one_once_and_for_a_short_time() -> None:
    clock = [0.0]
    with Served(MeshInMemory(), clock=lambda: clock[0]) as served:
        desk = Desk(served, MeshInMemory())
        used, old = served.way_in(), served.way_in()
        cookie = desk.enter(used)
        assert desk.ask(used.removeprefix(f"http://{desk.host}"))[0] == 403
        clock[0] += TICKET_S
        assert desk.ask(old.removeprefix(f"http://{desk.host}"))[0] == 403
        assert desk.ask("/", Cookie=cookie)[0] == 200
        clock[0] += SESSION_IDLE_S - 1
        assert desk.ask("/", Cookie=cookie)[0] == 200
        clock[0] += SESSION_IDLE_S
        assert desk.ask("/", Cookie=cookie)[0] == 403


def test_guesses_open_nothing_and_close_nothing(desk: Desk) -> None:
    way_in = desk.served.way_in()
    token = way_in.partition("token=")[2]
    for guess in [f"{number:043}" for number in range(50)] + [token[:-1], token + "x", token.swapcase(), "é", "%00"]:
        assert desk.ask(f"/enter?token={guess}" if guess.isascii() else "/enter?token=%C3%A9")[0] == 403
    assert desk.ask(f"/enter?token={token}", "HEAD")[0] == 405
    desk.enter(way_in)


@pytest.mark.parametrize(
    "others",
    ['{"a": 1}; {ours}', '{ours}; {x}', "a[b]=c; {ours}", "path=/x; {ours}", 'a="b;c; {ours}', "{ours}; {name}=forged",
     "{name}=forged; {ours}", "a=" + "x" * 10_000 + "; {ours}"],
    ids=["json", "json-after", "brackets", "attribute", "quote", "same-name-after", "same-name-before", "large"],
)  # fmt: skip
def test_cookies_that_other_programs_of_this_machine_set_do_not_lock_out(desk: Desk, others: str) -> None:
    """Cookies do not tell ports apart: whatever was set by another server on 127.0.0.1 is sent here too."""
    cookie = desk.enter()
    line = others.replace("{ours}", cookie).replace("{name}", cookie.partition("=")[0])
    assert desk.ask("/", Cookie=line)[0] == 200
    assert desk.ask("/", Cookie=line.replace(cookie, "c=d"))[0] == 403


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost:1", "[::1]:{port}", "", None,
     "127.0.0.1:{port}.evil.example", "LOCALHOST:{port}"],
    ids=["rebound", "rebound-port", "no-port", "other-port", "localhost-other-port", "v6", "empty", "none", "suffix",
         "capitals"],
)  # fmt: skip
def test_another_host_is_not_answered(desk: Desk, host: str | None) -> None:
    """DNS rebinding: a page's own name that was made to point here, with a cookie and even with a way in."""
    port = desk.host.partition(":")[2]
    named = None if host is None else host.format(port=port)
    cookie = desk.enter()
    assert desk.ask("/", Cookie=cookie, Host=named)[0] in (400, 403)
    assert desk.ask(desk.served.way_in().removeprefix(f"http://{desk.host}"), Host=named)[0] in (400, 403)


def test_both_names_of_this_machine_are_answered(desk: Desk) -> None:
    port = desk.host.partition(":")[2]
    cookie = desk.enter()
    origin = f"http://localhost:{port}"
    assert desk.ask("/", Cookie=cookie, Host=f"localhost:{port}")[0] == 200
    assert desk.ask(ACTION, "POST", Cookie=cookie, Host=f"localhost:{port}", Origin=origin)[0] == 200


@pytest.mark.parametrize(
    ("origin", "site"),
    [(None, None), ("null", None), ("http://evil.example", "cross-site"), ("http://127.0.0.1:1", "same-site"),
     ("http://localhost:{port}", "same-site"), ("https://{host}", None), ("http://{host}", "same-site"),
     ("http://{host}", "cross-site"), ("http://{host}.evil.example", None)],
    ids=["none", "null", "elsewhere", "other-port", "other-name", "scheme", "same-site", "cross-site", "suffix"],
)  # fmt: skip
def test_no_other_page_makes_the_node_do_something(desk: Desk, origin: str | None, site: str | None) -> None:
    """A program on another port of this machine is the same site to a browser, which sends the cookie along."""
    port = desk.host.partition(":")[2]
    named = None if origin is None else origin.format(host=desk.host, port=port)
    cookie, before = desk.enter(), list(desk.node.asked)
    status, _, headers = desk.ask(ACTION, "POST", Cookie=cookie, Origin=named, Sec_Fetch_Site=site)
    assert (status, desk.node.asked) == (403, before)
    assert not any(name.startswith("access-control") for name in headers)


def test_no_other_page_reads_or_frames_it(desk: Desk) -> None:
    cookie = desk.enter()
    for origin in ("same-site", "cross-site", "nonsense"):
        assert desk.ask("/", Cookie=cookie, Sec_Fetch_Site=origin)[0] == 403
        assert desk.ask("/live/mesh", Cookie=cookie, Sec_Fetch_Site=origin)[0] == 403
    _, _, headers = desk.ask("/", Cookie=cookie, Sec_Fetch_Site="none", Origin="http://evil.example")
    assert {name: headers[name.lower()] for name in HEADERS} == HEADERS
    assert headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in CSP
    assert not any(name.startswith("access-control") for name in headers)


def test_the_cookie_of_another_node_is_none_here(desk: Desk) -> None:
    with Served(MeshInMemory()) as served:
        theirs = Desk(served, MeshInMemory()).enter()
    renamed = f"meshnode-{desk.host.partition(':')[2]}={theirs.partition('=')[2]}"
    mine = desk.enter()
    assert desk.ask("/", Cookie=theirs)[0] == 403
    assert desk.ask("/", Cookie=renamed)[0] == 403
    assert desk.ask("/", Cookie=f"{theirs}; {mine}; theme=dark")[0] == 200
    for broken in ("=", "a=b; ;;", f"{mine}x", "x" * 20_000 + f"; {mine}", "\u00e9=1"):
        assert desk.ask("/", Cookie=broken.encode().decode("latin-1"))[0] in (400, 403)


def test_what_a_form_says_is_bounded_and_errors_are_pages(desk: Desk) -> None:
    ours = {"Cookie": desk.enter(), "Origin": f"http://{desk.host}"}
    status, body, _ = desk.ask(ACTION, "POST", "peer=" + "x" * (1024 * 1024), **ours)
    assert (status, "at most" in body) == (400, True)
    assert desk.ask(ACTION, "POST", "&".join(f"a{n}=" for n in range(2000)), **ours)[0] == 400
    assert desk.ask(ACTION, "GET", **ours)[0] == 405
    assert desk.ask("/", "DELETE", **ours)[0] == 405
    status, body, _ = desk.ask("/nothing/<script>alert(1)</script>", **ours)
    assert (status, "no such page" in body, "<script>alert" in body) == (404, True, False)
    assert desk.ask("/?" + "x" * 5000, **ours)[0] == 414


def test_without_scripts_an_action_leads_to_a_page_that_says_what_came_of_it(desk: Desk) -> None:
    ours = {"Cookie": desk.enter(), "Origin": f"http://{desk.host}"}
    status, body, _ = desk.ask(ACTION, "POST", **ours)
    assert status == 200
    assert "Asked 1 member for everything." in body
    assert body.startswith("<!doctype html>")
    assert "<!doctype html>" not in desk.ask(ACTION, "POST", HX_Request="true", **ours)[1]


def test_only_so_many_are_open_at_once() -> None:
    names = iter(range(10_000))
    doors = Doors(lambda: 0.0, lambda: f"secret {next(names)}")
    tickets = [doors.ticket() for _ in range(TICKETS + 1)]
    assert doors.redeem(tickets[0]) is None
    sessions = [doors.redeem(ticket) for ticket in tickets[1:]]
    assert None not in sessions
    assert doors.knows(str(sessions[0]))
    more = [doors.redeem(doors.ticket()) for _ in range(SESSIONS - 1)]
    assert [doors.knows(str(each)) for each in sessions] == [True] + [False] * (TICKETS - 1)
    assert all(doors.knows(str(each)) for each in more)


def test_a_safe_request_is_judged_by_what_it_is_alone() -> None:
    asked = Asked("GET", "/", f"127.0.0.1:{PORT}", None, "same-origin", known=True)
    assert refusal_of(asked, PORT) is None


def half_a_form(desk: Desk) -> socket.socket:
    head = f"POST {ACTION} HTTP/1.1\r\nHost: {desk.host}\r\nOrigin: http://{desk.host}\r\nCookie: {desk.enter()}\r\n"
    host, _, port = desk.host.partition(":")
    connection = socket.create_connection((host, int(port)), timeout=60)
    connection.sendall(f"{head}Content-Length: 100\r\n\r\nsite=".encode())
    return connection


def test_a_form_that_never_ends_is_ended(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(site, "FORM_S", 0.05)
    with half_a_form(desk) as connection:
        assert connection.recv(15) == b"HTTP/1.1 400 Ba"


def test_a_browser_that_goes_away_in_the_middle_of_a_form_is_no_fault(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    asked, left = threading.Event(), threading.Event()

    async def form_of(request: Request) -> dict[str, str]:
        asked.set()
        try:
            return await site.form_of(request)
        finally:
            left.set()

    monkeypatch.setattr(mesh, "form_of", form_of)
    with Served(node := MeshInMemory([peer(0)])) as served:
        with half_a_form(Desk(served, node)):
            assert asked.wait(10)
        assert left.wait(10)
    assert not [each for each in caplog.records if each.levelno >= logging.ERROR]


def test_who_has_no_cookie_and_reads_nothing_keeps_nobody_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another person's program may fill the port: what it leaves unread makes room at once for the owner."""
    stalled = threading.Event()
    pause = Connection.pause_writing

    def paused(self: Connection) -> None:
        pause(self)
        stalled.set()

    monkeypatch.setattr(Connection, "pause_writing", paused)
    cookie = desk.enter()
    monkeypatch.setattr(connections, "CONNECTIONS", 1)
    host, _, port = desk.host.partition(":")
    with socket.socket() as stranger:
        stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stranger.settimeout(0.05)
        stranger.connect((host, int(port)))
        while not stalled.is_set():
            with suppress(TimeoutError):
                stranger.sendall(f"GET / HTTP/1.1\r\nHost: {desk.host}\r\n\r\n".encode() * 100)
        assert desk.ask("/", Cookie=cookie)[0] == 200
