"""The promised fields of answers and bodies, held against the published shapes, in both directions."""

import pytest

from tests.rules import published
from tests.rules.contract.fields import FIELDS, SHAPES, Field
from tests.rules.contract.requests import KEYS, PARTS, Key

OPERATIONS = tuple(dict.fromkeys(key.operation for key in KEYS))


def _of(shape: str, *, later: bool) -> dict[str, Field]:
    return {one.name: one for one in FIELDS if one.shape == shape and (one.origin == "L") == later}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_answer_is_as_promised(shape: str) -> None:
    """A shape has exactly the promised fields, each of its type, and all of them are always there."""
    schema = published.joined(published.document()["components"]["schemas"][shape])
    promised, later = _of(shape, later=False), _of(shape, later=True)
    assert set(schema["properties"]) - set(promised) == set(later) & set(schema["properties"]) == set()
    assert set(promised) - set(schema["properties"]) == set()
    for name, field in promised.items():
        found = published.notation(schema["properties"][name])
        assert published.agrees(field.type, found), f"{name}: {found}, promised {field.type}"
    if shape not in ("Error", "FlowStep", "Preview"):
        assert set(schema["required"]) == set(promised)


def test_what_always_stands_in_a_step_an_error_and_a_preview() -> None:
    """The keys that always stand are required: the response form of a step, four keys of an error, the preview."""
    schemas = published.document()["components"]["schemas"]
    step = {one.name for one in FIELDS if one.shape == "FlowStep"}
    optional = {"from_name", "from_email", "reply_to", "design", "transactional", "event_data", "contact_list_id",
                "data_merge"}  # fmt: skip
    assert set(published.joined(schemas["FlowStep"])["required"]) == step - optional
    assert set(published.joined(schemas["Error"])["required"]) == {"error", "code", "message", "request_id"}
    assert {"html", "text", "warnings", "bytes"} == set(published.joined(schemas["Preview"])["required"])


def test_every_shape_is_published() -> None:
    """Each shape that the tables name stands in the document under that name."""
    named = {one.type.strip("[]?") for one in (*FIELDS, *KEYS)}
    schemas = published.document()["components"]["schemas"]
    assert {name for name in named if name[0].isupper()} <= set(schemas)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_a_body_is_as_promised(operation: str) -> None:
    """A body takes exactly the promised keys, each of its type; what must be sent is required, and nothing else."""
    keys = [key for key in KEYS if key.operation == operation]
    found = {f"{method} {path}" for method, path, _ in published.operations()}
    if all(key.origin == "L" for key in keys):
        assert operation not in found, "take the mark away"
        return
    part = PARTS.get(operation)
    schema = (
        published.joined(published.document()["components"]["schemas"][part])
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
        found = published.notation(properties[name])
        assert published.agrees(key.type, found), f"{name}: {found}, promised {key.type}"


def test_every_body_is_in_the_table() -> None:
    """No operation takes a body that the table does not know."""
    with_body = {
        f"{method} {path}"
        for method, path, operation in published.operations()
        if path in {one.partition(" ")[2] for one in OPERATIONS} or "requestBody" in operation
    }
    found = {name for name in with_body if published.body(published.operation(name))}
    outside = {"POST /v1/public/forms/{public_key}", "POST /v1/login", "POST /v1/my/login"}
    assert {name for name in found if "/hooks/" not in name} - outside - set(OPERATIONS) == set()
