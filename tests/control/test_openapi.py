"""The document of the control API: it is that of the code, it is OpenAPI, and it says what there is to say."""

from __future__ import annotations

import json

from openapi_spec_validator import OpenAPIV31SpecValidator

from meshnode import errors
from meshnode.control import openapi
from meshnode.control.failures import STATUSES, error_kinds
from meshnode.control.operations import OPERATIONS
from meshnode.errors import MeshError
from meshnode.node.api import Operations

COMMITTED = openapi.PLACE.read_text(encoding="utf-8")
DOCUMENT = json.loads(COMMITTED)


def test_the_committed_document_is_that_of_the_code() -> None:
    assert openapi.text() == COMMITTED, "write it again: python -m meshnode.control.openapi"


def test_it_is_openapi_as_an_independent_validator_reads_it() -> None:
    assert [error.message for error in OpenAPIV31SpecValidator(DOCUMENT).iter_errors()] == []


def test_every_operation_is_in_it_those_of_a_node_among_them() -> None:
    methods = {f"/v1/{name.replace('_', '-')}" for name in vars(Operations) if not name.startswith("_")}
    assert set(DOCUMENT["paths"]) == {*OPERATIONS, "/v1/openapi.json"}
    assert methods - set(OPERATIONS) == set()


def test_every_operation_says_what_it_does() -> None:
    asked = [each for path in DOCUMENT["paths"].values() for each in path.values()]
    assert [each["operationId"] for each in asked if not each["summary"].endswith(".")] == []
    ids = [each["operationId"] for each in asked]
    assert sorted(set(ids)) == sorted(ids)


def test_every_error_has_its_name_its_meaning_and_its_status() -> None:
    told = {each["const"]: each["description"] for each in DOCUMENT["components"]["schemas"]["ErrorName"]["oneOf"]}
    tree = {name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, MeshError)}
    assert set(told) == tree == {kind.__name__ for kind in error_kinds()}
    assert told["NotFoundError"].endswith("is not here. HTTP 404.")
    assert told["RegistrationError"].endswith("HTTP 400.")
    assert {int(text.rpartition(" ")[2].rstrip(".")) for text in told.values()} == set(STATUSES.values())


def test_comments_of_the_source_describe_fields() -> None:
    peer = DOCUMENT["components"]["schemas"]["PeerView"]
    assert peer["properties"]["behind"]["description"].startswith("Events that this node holds and the peer")
    assert DOCUMENT["components"]["schemas"]["Put"]["properties"]["columns"]["additionalProperties"] == {
        "$ref": "#/components/schemas/Value"
    }
