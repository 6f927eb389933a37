"""Check responses against an OpenAPI 3.1 document: the status must be listed, the body must match its schema."""

import json
import re
from collections.abc import Sequence
from functools import cache
from typing import Any, Self
from urllib.parse import urlsplit

import jsonschema_rs
import yaml
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from referencing import Registry
from referencing.jsonschema import DRAFT202012

_HOME = "urn:contract"


class Contract:
    """An OpenAPI document; `check` raises an AssertionError with the first mismatch of a response."""

    def __init__(self, document: dict[str, Any]):
        # YAML parses the keys of responses as numbers, but a JSON pointer consists of strings.
        self.document = document = json.loads(json.dumps(document, default=str))
        self._registry = Registry().with_resource(_HOME, DRAFT202012.create_resource(document))
        templates = sorted(document["paths"], key=_fewest_placeholders_first)
        self._paths = [(self._pattern(template), template) for template in templates]
        self._validator = cache(self._make_validator)
        self._known = jsonschema_rs.Registry([(_HOME, document)], draft=jsonschema_rs.Draft202012)
        self._quick = cache(self._make_quick)

    @classmethod
    def from_yaml(cls, text: str) -> Self:
        """Parse the document from YAML."""
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        return cls(yaml.load(text, loader))

    @staticmethod
    def _pattern(template: str) -> re.Pattern[str]:
        parts = re.split(r"\{[^}]+\}", template)
        return re.compile("[^/]+".join(re.escape(part) for part in parts))

    def template_of(self, path: str) -> str | None:
        """Return the documented path of a request, or None if there is none."""
        bare = urlsplit(path).path
        return next((template for pattern, template in self._paths if pattern.fullmatch(bare)), None)

    def check(self, method: str, path: str, status: int, headers: Any, body: bytes) -> None:
        """Raise AssertionError unless status, content type and body match the document."""
        where = f"{method} {path} -> {status}"
        template = self.template_of(path)
        operation = self.document["paths"].get(template, {}).get(method.lower())
        if template is None or operation is None:
            expected = 404 if template is None else 405
            if status != expected:
                raise AssertionError(f"{where}: not in the document, so it should be {expected}; {body[:300]!r}")
            self._check_error(where, body)
            return
        pointer, response = self._response(template, method.lower(), operation, status)
        if response is None:
            raise AssertionError(f"{where}: this status is not listed for {template}; {body[:1000]!r}")
        content = response.get("content")
        if not content:
            if body:
                raise AssertionError(f"{where}: a body where none is promised: {body[:300]!r}")
            return
        kind = (headers.get("Content-Type") or "").partition(";")[0].strip()
        if kind not in content:
            raise AssertionError(f"{where}: Content-Type {kind!r}, promised {sorted(content)}")
        if kind.endswith("json") and "schema" in content[kind]:
            self._check_schema(where, f"{pointer}/content/{_escape(kind)}/schema", body)

    def matches(self, name: str, value: Any) -> bool:
        """Return whether a value matches a named schema of the document, as a request body must."""
        pointer = f"#/components/schemas/{name}"
        return self._quick(pointer).is_valid(value) or bool(self._validator(pointer).is_valid(value))

    def problem(self, pointer: str, value: Any) -> str | None:
        """Return why a value does not match the schema at a pointer (`#/...`), or None if it matches."""
        error = best_match(self._validator(pointer).iter_errors(value))
        return None if error is None else f"{error.json_path}: {error.message[:800]}"

    def matches_ignoring_formats(self, pointer: str, value: Any) -> bool:
        """Return whether a value matches the schema at a pointer, ignoring formats."""
        return bool(self._validator(pointer).evolve(format_checker=None).is_valid(value))

    def resolve(self, node: Any) -> Any:
        """Return the target of a node that is a reference, or the node itself."""
        while isinstance(node, dict) and "$ref" in node:
            node = self._follow(node["$ref"])
        return node

    @staticmethod
    def pointer_to(*names: str) -> str:
        """Return the pointer to a node of the document."""
        return "#/" + "/".join(map(_escape, names))

    def errors_at(self, names: Sequence[str], value: Any) -> list[str]:
        """Return the errors of a value, given the names that lead to its schema in the document."""
        pointer = self.pointer_to(*names)
        if self._quick(pointer).is_valid(value):
            return []
        return [f"{error.json_path}: {error.message[:300]}" for error in self._validator(pointer).iter_errors(value)]

    def _response(self, template: str, method: str, operation: Any, status: int) -> tuple[str, Any]:
        for name in (str(status), f"{status // 100}XX", "default"):
            response = operation["responses"].get(name)
            if response is not None and "$ref" in response:
                return str(response["$ref"]), self._follow(response["$ref"])
            if response is not None:
                return f"#/paths/{_escape(template)}/{method}/responses/{name}", response
        return "", None

    def _follow(self, reference: str) -> Any:
        return self._registry.resolver(_HOME).lookup(_HOME + reference).contents

    def _make_validator(self, pointer: str) -> Draft202012Validator:
        schema = {"$ref": _HOME + pointer}
        return Draft202012Validator(schema, registry=self._registry, format_checker=Draft202012Validator.FORMAT_CHECKER)

    def _make_quick(self, pointer: str) -> jsonschema_rs.Validator:
        """Return a validator that is hundreds of times as fast; the slow validator explains failures and decides."""
        return jsonschema_rs.validator_for(
            {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": _HOME + pointer},
            registry=self._known, validate_formats=True,
        )  # fmt: skip

    def _check_schema(self, where: str, pointer: str, body: bytes) -> None:
        try:
            value = json.loads(body)
        except ValueError:
            raise AssertionError(f"{where}: not JSON: {body[:300]!r}") from None
        if self._quick(pointer).is_valid(value):
            return
        problem = best_match(self._validator(pointer).iter_errors(value))
        if problem is not None:
            raise AssertionError(
                f"{where}: the body does not fit the contract at {problem.json_path}: {problem.message[:800]}\n"
                f"rule: {'/'.join(map(str, problem.schema_path))}\nbody: {body[:2000].decode(errors='replace')}"
            )

    @staticmethod
    def _check_error(where: str, body: bytes) -> None:
        value = json.loads(body)
        missing = {"error", "code", "message", "request_id"} - set(value)
        if missing or value["error"] is not True or not value["message"]:
            raise AssertionError(f"{where}: not the shape of an error: {value}")


def _escape(name: str) -> str:
    return name.replace("~", "~0").replace("/", "~1").replace("{", "%7B").replace("}", "%7D")


def _fewest_placeholders_first(template: str) -> tuple[int, str]:
    return template.count("{"), template
