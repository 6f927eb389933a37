"""Parts of schemas that several modules of the OpenAPI document use."""

from typing import Any


def reference(name: str) -> dict[str, str]:
    """Return a reference to a schema of the document."""
    return {"$ref": f"#/components/schemas/{name}"}


def nullable(schema: dict[str, Any], text: str) -> dict[str, Any]:
    """Return a schema that allows null too, with a description."""
    return {"anyOf": [schema, {"type": "null"}], "description": text}
