"""The OpenAPI check of the test kit accepts matching responses and names mismatches."""

import json
from typing import Any

import pytest

from tests.kit.contract import Contract

DOCUMENT = """
openapi: 3.1.0
paths:
  /v1/my/things/{id}:
    get:
      responses:
        200:
          description: The thing.
          content: {application/json: {schema: {$ref: '#/components/schemas/Thing'}}}
        4XX: {$ref: '#/components/responses/Refused'}
        "204": {description: Nothing.}
  /v1/my/things/search:
    get: {responses: {"200": {description: x, content: {application/json: {schema: {type: array}}}}}}
components:
  responses:
    Refused:
      description: No.
      content: {application/json: {schema: {type: object, required: [error]}}}
  schemas:
    Thing:
      type: object
      required: [id, at]
      properties:
        id: {type: integer}
        at: {type: [string, 'null'], format: date-time}
"""
JSON = {"Content-Type": "application/json; charset=utf-8"}
ERROR = {"error": True, "code": "not_found", "message": "No.", "request_id": "1"}


@pytest.mark.parametrize(
    ("method", "path", "status", "body"),
    [("GET", "/v1/my/things/7?x=1", 200, {"id": 7, "at": "2026-11-20T09:30:00.000Z"}),
     ("GET", "/v1/my/things/7", 200, {"id": 7, "at": None}), ("GET", "/v1/my/things/7", 422, {"error": True}),
     ("GET", "/v1/my/things/search", 200, []), ("GET", "/v1/my/none", 404, ERROR),
     ("POST", "/v1/my/things/7", 405, ERROR)],
)  # fmt: skip
def test_matching_responses_pass(method: str, path: str, status: int, body: Any) -> None:
    """Listed statuses, wildcards, references and undocumented paths are accepted."""
    Contract.from_yaml(DOCUMENT).check(method, path, status, JSON, json.dumps(body).encode())


@pytest.mark.parametrize(
    ("path", "status", "body", "says"),
    [("/v1/my/things/7", 200, {"id": "7", "at": None}, r"\$\.id"), ("/v1/my/things/7", 200, {"id": 7}, "'at'"),
     ("/v1/my/things/7", 200, {"id": 7, "at": "today"}, "date-time"), ("/v1/my/things/7", 500, {}, "not listed"),
     ("/v1/my/things/search", 200, {}, "array"), ("/v1/my/things/7", 404, {}, "'error'"),
     ("/v1/my/none", 200, {}, "should be 404"), ("/v1/my/none", 404, {}, "shape of an error"),
     ("/v1/my/things/7", 204, {}, "no body|none is promised")],
)  # fmt: skip
def test_mismatches_are_named(path: str, status: int, body: Any, says: str) -> None:
    """The error names the place of the mismatch."""
    with pytest.raises(AssertionError, match=says):
        Contract.from_yaml(DOCUMENT).check("GET", path, status, JSON, json.dumps(body).encode())
