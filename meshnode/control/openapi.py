"""The OpenAPI document of the control API, made from its operations: `python -m meshnode.control.openapi` writes it.

It is written at development time and served as it stands: what fields mean is read from the comments of the source.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import msgspec

from meshnode.control.answering import JSON_TYPE, LINES_TYPE
from meshnode.control.app import DOCUMENT, DOCUMENT_PATH
from meshnode.control.failures import AT_THE_DOOR, error_kinds, status_of
from meshnode.control.operation import Call, Operation, Stream
from meshnode.control.operations import OPERATIONS, SUBJECTS, declared
from meshnode.control.requests import BODY_BYTES, Failure
from meshnode.control.schemas import VALUES, described, paragraphs
from meshnode.errors import CorruptStateError, MeshError, StoreError, TransportError, UsageError

PLACE: Final = Path(__file__).with_name(DOCUMENT)
FAULTS: Final = (MeshError, StoreError, CorruptStateError)  # of the node itself: any operation can meet them
REF: Final = "#/components/schemas/{name}"
ABOUT: Final = f"""What the `meshnode` program asks of a running node, for other programs of the same user.

Each operation is a POST to `/v1/NAME` with its arguments as a JSON object; one that only reads is a GET as well, with
its arguments in the query. On the Unix socket `control.sock` in the node's home (mode 0600) whoever may open it may
ask; where there is no such socket, `control.token` there names a loopback port and the token that every request bears.

An answer with another status than 200 is a `Failure`, whatever was asked, and so is the last line of a stream that ends
with an error. Its `error` is stable, as is what that means; `default` stands for those that any operation may end with.
A path that there is not is 404 (NotFoundError), another method than those named is 405 (UsageError, with `Allow`; HEAD
and OPTIONS too), and what is no HTTP at all is 400 (UsageError).

A stream is lines of JSON (`application/jsonl`), of which the schema describes one; the first line is empty and says
that the request is in force. It lasts until either side ends it.

Stable: a path under `/v1`, its arguments and the fields of its answers keep their meaning, and none goes away. What may
be added is operations, arguments that may be left out, fields of answers, further words in fields of text, names of
errors, and limits on what had none: a reader ignores fields that it does not know, and takes an error of an unknown
name for a MeshError. A change of any other kind gets another prefix than `/v1`.

A request is at most {BODY_BYTES} bytes. Unknown or repeated names in it are an error."""


def document() -> dict[str, Any]:
    """The whole document."""
    operations = [*OPERATIONS.values()]
    kinds = [Failure, *(each.takes for each in operations), *(each.gives for each in operations)]
    schemas_of, schemas = msgspec.json.schema_components(kinds, ref_template=REF)
    given = dict(zip([each.path for each in operations], schemas_of[1 + len(operations) :], strict=True))
    schemas = described(schemas, kinds) | VALUES | {"ErrorName": _error_names()}
    schemas["Failure"]["properties"]["error"] = {"$ref": REF.format(name="ErrorName")}
    responses: dict[str, Any] = {"Failure": _failure("Any other error.", [])}
    paths = {each.path: _path(each, given[each.path], schemas, responses) for each in operations}
    return {
        "openapi": "3.1.0",
        "info": {"title": "meshnode control API", "version": "1", "description": paragraphs(ABOUT)},
        "servers": [
            {"url": "http://localhost", "description": "Over the Unix socket; any host name does."},
            {
                "url": "http://127.0.0.1:{port}",
                "description": "Over loopback, where there is no Unix socket.",
                "variables": {"port": {"default": "80", "description": "As `control.token` says."}},
            },
        ],
        "security": [{}, {"token": []}],
        "tags": [{"name": _subject(each), "description": paragraphs(each.__doc__ or "")} for each in SUBJECTS],
        "paths": paths | {DOCUMENT_PATH: _own_path()},
        "components": {
            "schemas": schemas,
            "responses": responses,
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Over loopback: see `control.token`.",
                }
            },
        },
    }


def text() -> str:
    """The document as it is kept: the same for the same code."""
    return json.dumps(document(), indent=2, sort_keys=True, ensure_ascii=False) + "\n"


def _path(
    operation: Operation[Any, Any], given: dict[str, Any], schemas: dict[str, Any], responses: dict[str, Any]
) -> dict[str, Any]:
    summary, _, more = paragraphs(operation.explained()).partition("\n\n")
    common: dict[str, Any] = {"summary": summary, "tags": [_subject_of(operation)]}
    if more:
        common["description"] = more
    errors = _errors(operation, responses)
    takes = schemas[operation.takes.__name__]
    body = {
        "required": bool(takes.get("required")),
        "content": {JSON_TYPE: {"schema": {"$ref": REF.format(name=operation.takes.__name__)}}},
    }
    post = common | {"operationId": operation.name, "requestBody": body}
    found = {"post": post | {"responses": _answered(operation, given, get=False) | errors}}
    if operation.reads:
        get = common | {"operationId": f"read-{operation.name}", "parameters": _parameters(takes)}
        found["get"] = get | {"responses": _answered(operation, given, get=True) | errors}
    return found


def _answered(operation: Operation[Any, Any], given: dict[str, Any], *, get: bool) -> dict[str, Any]:
    if isinstance(operation, Stream):
        line = {"anyOf": [given, {"$ref": REF.format(name="Failure")}]}
        return {
            "200": {"description": "Lines of JSON, of which this is one.", "content": {LINES_TYPE: {"schema": line}}}
        }
    if get and isinstance(operation, Call) and operation.text is not None:
        return {"200": _content("Done.", operation.text.content_type, {"type": "string"})}
    return {"200": _content("Done.", JSON_TYPE, given)}


def _errors(operation: Operation[Any, Any], responses: dict[str, Any]) -> dict[str, Any]:
    """By status; each set of errors is a component of its own, that many operations share."""
    kinds: set[type[MeshError]] = {UsageError, *FAULTS, *operation.raises}
    if isinstance(operation, Call) and operation.waits:
        kinds.add(TransportError)
    by_status: dict[int, list[str]] = {}
    found: dict[str, Any] = {"default": {"$ref": "#/components/responses/Failure"}}
    for status, kind in [*((status_of(kind), kind) for kind in kinds), *AT_THE_DOOR.items()]:
        by_status.setdefault(status, []).append(kind.__name__)
    for status, names in by_status.items():
        name = ".".join([str(status), *sorted(names)])
        responses[name] = _failure(f"{', '.join(sorted(names))}.", sorted(names))
        found[str(status)] = {"$ref": f"#/components/responses/{name}"}
    return found


def _failure(about: str, names: list[str]) -> dict[str, Any]:
    schema: dict[str, Any] = {"$ref": REF.format(name="Failure")}
    if names:
        schema = {"allOf": [schema, {"properties": {"error": {"enum": names}}}]}
    return _content(about, JSON_TYPE, schema)


def _content(about: str, content_type: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": about, "content": {content_type: {"schema": schema}}}


def _error_names() -> dict[str, Any]:
    return {
        "title": "ErrorName",
        "description": "The names of `meshnode.errors`, with what each means and its HTTP status.",
        "type": "string",
        "oneOf": [
            {"const": kind.__name__, "description": f"{paragraphs(kind.__doc__ or '')} HTTP {status_of(kind)}."}
            for kind in error_kinds()
        ],
    }


def _parameters(takes: dict[str, Any]) -> list[dict[str, Any]]:
    """Of a GET: null is what is not there."""
    found = []
    for name, schema in takes["properties"].items():
        inside = {
            key: value for key, value in schema.items() if key not in ("description", "anyOf") and value is not None
        }
        for choice in schema.get("anyOf", ()):
            if choice != {"type": "null"}:
                inside |= choice
        parameter = {"name": name, "in": "query", "required": name in takes.get("required", ()), "schema": inside}
        if "description" in schema:
            parameter["description"] = schema["description"]
        found.append(parameter)
    return found


def _own_path() -> dict[str, Any]:
    done = _content("Done.", JSON_TYPE, {"type": "object"})
    responses = {"200": done, "default": {"$ref": "#/components/responses/Failure"}}
    return {"get": {"operationId": DOCUMENT, "summary": "This document.", "tags": ["node"], "responses": responses}}


def _subject(module: Any) -> str:
    return str(module.__name__).rpartition(".")[2]


def _subject_of(operation: Operation[Any, Any]) -> str:
    return next(_subject(module) for module in SUBJECTS if any(each is operation for each in declared(module)))


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="utf-8")
