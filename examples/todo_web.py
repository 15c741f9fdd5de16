"""A list of things to do as a page in the browser, the same on every device: `python todo_web.py [FOLDER [INVITE]]`.

It prints the address of the page. Whoever knows that may read and write, so there is a secret in it: other users of
this machine, and other pages in the browser, do not have it.
"""

import asyncio
import secrets
import sys
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Mount, Route

from meshnode import MeshError, Node, NotFoundError, Settings, Table

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>To do</title>
<style>
  body { font: 1.1rem system-ui, sans-serif; max-width: 32rem; margin: 2rem auto; padding: 0 1rem }
  form, li { display: flex; gap: .6rem; align-items: center; padding: .3rem 0 }
  ul { padding: 0 }
  input[name=title], label { flex: 1 }
  input, button { font: inherit }
  .done { color: #666; text-decoration: line-through }
  output { display: block; overflow-wrap: anywhere }
</style>
<h1>To do</h1>
<form><input name="title" aria-label="What is to be done" required autofocus><button>Add</button></form>
<ul></ul>
<button id="invite">Let another device in</button>
<output></output>
<script>
  const list = document.querySelector("ul"), said = document.querySelector("output");
  const make = (tag, properties) => Object.assign(document.createElement(tag), properties);

  async function send(method, path, body) {
    const answer = await fetch(path, {method, body: JSON.stringify(body)});
    said.textContent = await answer.text();
  }

  function item(task) {
    const one = make("li"), path = "tasks/" + encodeURIComponent(task.id);
    const label = make("label", {className: task.done ? "done" : ""});
    const box = make("input", {type: "checkbox", checked: task.done});
    box.onchange = () => send("PATCH", path, {done: box.checked});
    label.append(box, " ", task.title);
    one.append(label, make("button", {textContent: "Delete", onclick: () => send("DELETE", path)}));
    return one;
  }

  document.querySelector("form").onsubmit = event => {
    event.preventDefault();
    send("POST", "tasks", {title: event.target.title.value});
    event.target.reset();
  };
  document.querySelector("#invite").onclick = () => send("POST", "invite");
  new EventSource("changes").onmessage = event => list.replaceChildren(...JSON.parse(event.data).map(item));
</script>
</html>
"""


@dataclass
class Task:
    """A row of the table `tasks`. A field is None where a device deleted the task while another one wrote on."""

    id: str
    title: str | None = ""
    done: bool | None = False


class Edit(TypedDict, total=False):
    """What the page sends of a task."""

    title: str
    done: bool


class Todo:
    """The answers to what the page asks."""

    def __init__(self, node: Node, tasks: Table[Task]) -> None:
        self.node, self.tasks = node, tasks
        self.secret = secrets.token_urlsafe()
        routes = [
            Route("/", self.page),
            Route("/changes", self.changes),
            Route("/tasks", self.add, methods=["POST"]),
            Route("/tasks/{id}", self.edit, methods=["PATCH"]),
            Route("/tasks/{id}", self.delete, methods=["DELETE"]),
            Route("/invite", self.invite, methods=["POST"]),
        ]
        self.app = Starlette(
            routes=[Mount(f"/{self.secret}", routes=routes)],
            exception_handlers={MeshError: refused, msgspec.MsgspecError: refused},
        )

    async def page(self, _request: Request) -> Response:
        return HTMLResponse(PAGE)

    async def changes(self, _request: Request) -> Response:
        """All tasks, and again whenever they are others, whoever changed them: server-sent events."""
        return StreamingResponse(self.events(), media_type="text/event-stream")

    async def events(self) -> AsyncIterator[bytes]:
        async for tasks in self.node.live("SELECT id, title, done FROM tasks ORDER BY done, title, id", row=Task):
            yield b"data: " + msgspec.json.encode(tasks) + b"\n\n"

    async def add(self, request: Request) -> Response:
        task = Task(uuid.uuid4().hex, **msgspec.json.decode(await request.body(), type=Edit))
        await self.tasks.upsert(task)
        return Response(status_code=204)

    async def edit(self, request: Request) -> Response:
        edit = msgspec.json.decode(await request.body(), type=Edit)
        await self.tasks.patch(request.path_params["id"], **edit)
        return Response(status_code=204)

    async def delete(self, request: Request) -> Response:
        await self.tasks.delete(request.path_params["id"])
        return Response(status_code=204)

    async def invite(self, _request: Request) -> Response:
        return Response((await self.node.invite()).invite)


async def refused(_request: Request, error: Exception) -> Response:
    """What the page asked for cannot be, and why."""
    return Response(str(error), status_code=404 if isinstance(error, NotFoundError) else 400)


@asynccontextmanager
async def opened(folder: Path, invite: str = "", **settings: Unpack[Settings]) -> AsyncIterator[Todo]:
    """Runs the node of this folder, which founds a mesh or joins that of the invite when it is new."""
    async with Node.open(folder, invite=invite, **settings) as node:
        yield Todo(node, await node.table("tasks", Task).create(key="id"))


async def main(folder: Path, invite: str = "") -> None:
    async with opened(folder, invite) as todo:
        print(f"http://127.0.0.1:8000/{todo.secret}/", flush=True)
        config = uvicorn.Config(todo.app, port=8000, log_level="critical", timeout_graceful_shutdown=1)
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    try:
        asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else "todo"), *sys.argv[2:3]))
    except MeshError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        pass
