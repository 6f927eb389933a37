"""The tables of fields agree with the published schemas of responses and bodies."""

import pytest

from tests.rules import published
from tests.rules.contract.fields import FIELDS, SHAPES, Field
from tests.rules.contract.requests import KEYS, PARTS, Key

OPERATIONS = tuple(dict.fromkeys(key.operation for key in KEYS))


def _of(shape: str, *, later: bool) -> dict[str, Field]:
    return {field.name: field for field in FIELDS if field.shape == shape and (field.origin == "L") == later}


@pytest.mark.parametrize("shape", SHAPES)
def test_response_fields_match_the_table(shape: str) -> None:
    """A schema has exactly the fields of the table, with their types, and all are required."""
    schema = published.merge_all_of(published.document()["components"]["schemas"][shape])
    promised, later = _of(shape, later=False), _of(shape, later=True)
    assert set(schema["properties"]) - set(promised) == set(later) & set(schema["properties"]) == set()
    assert set(promised) - set(schema["properties"]) == set()
    for name, field in promised.items():
        result = published.notation(schema["properties"][name])
        assert published.agrees(field.type, result), f"{name}: {result}, promised {field.type}"
    if shape not in ("ErrorResponse", "FlowStep", "Preview"):
        assert set(schema["required"]) == set(promised)


def test_required_fields_of_steps_errors_and_previews() -> None:
    """The fields that are always present are required."""
    schemas = published.document()["components"]["schemas"]
    step = {field.name for field in FIELDS if field.shape == "FlowStep"}
    optional = {"from_name", "from_email", "reply_to", "design", "transactional", "event_data", "contact_list_id",
                "data_merge", "channel", "utm"}  # fmt: skip
    assert set(published.merge_all_of(schemas["FlowStep"])["required"]) == step - optional
    assert set(published.merge_all_of(schemas["ErrorResponse"])["required"]) == {
        "error",
        "code",
        "message",
        "request_id",
    }
    assert {"html", "text", "warnings", "bytes"} == set(published.merge_all_of(schemas["Preview"])["required"])


def test_every_shape_is_published() -> None:
    """Each schema in the tables is in the document."""
    named = {field.type.strip("[]?") for field in (*FIELDS, *KEYS)}
    schemas = published.document()["components"]["schemas"]
    assert {name for name in named if name[0].isupper()} <= set(schemas)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_body_fields_match_the_table(operation: str) -> None:
    """A body has exactly the keys of the table, with their types, and the required ones are required."""
    keys = [key for key in KEYS if key.operation == operation]
    operations = {f"{method} {path}" for method, path, _ in published.operations()}
    if all(key.origin == "L" for key in keys):
        assert operation not in operations, "take the mark away"
        return
    part = PARTS.get(operation)
    schema = (
        published.merge_all_of(published.document()["components"]["schemas"][part])
        if part
        else published.body(published.operation(operation))
    )
    assert schema is not None
    _compare(keys, schema["properties"], set(schema["required"]))


def _compare(keys: list[Key], properties: dict[str, object], required: set[str]) -> None:
    promised = {key.name: key for key in keys if key.origin != "L"}
    later = {key.name for key in keys if key.origin == "L"}
    assert set(properties) - set(promised) == later & set(properties) == set()
    assert set(promised) - set(properties) == set()
    assert required == {name for name, key in promised.items() if key.required}
    for name, key in promised.items():
        result = published.notation(properties[name])
        assert published.agrees(key.type, result), f"{name}: {result}, promised {key.type}"


def test_every_body_is_in_the_table() -> None:
    """Each operation with a body is in the table."""
    with_body = {
        f"{method} {path}"
        for method, path, operation in published.operations()
        if path in {operation.partition(" ")[2] for operation in OPERATIONS} or "requestBody" in operation
    }
    operations = {name for name in with_body if published.body(published.operation(name))}
    outside = {"POST /v1/public/forms/{public_key}", "POST /v1/login", "POST /v1/my/login"}
    assert {name for name in operations if "/hooks/" not in name} - outside - set(OPERATIONS) == set()
