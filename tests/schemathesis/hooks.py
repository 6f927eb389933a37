"""Hooks of Schemathesis: real ids for valid requests, and the cases in which a valid request may get a 422.

They run within `st run` (SCHEMATHESIS_HOOKS), and not within a test.
"""

import json
import os
import re
from typing import Any

import schemathesis
from schemathesis import Case, CheckContext, GenerationMode, HookContext, Response

from tests.kit.contract import Contract

THINGS: dict[str, int] = json.loads(os.environ.get("THINGS", "{}"))
_NOUN = re.compile(r"^/v1/my/(\w+)/\{id\}")
# Errors of valid requests by rules that no schema expresses: existence, uniqueness, combinations, states, meaning of
# texts. Every other rule must be in the document.
UNSAYABLE = (
    "is needed until an owner has signed in with a provider",
    "must be the id of a random split with a metric",
    "must exist", "has already been taken", "is reserved", "is invalid", "can't be blank", "must be in the future",
    "a list has either members or a segment", "is a view of a segment", "is not active", "the webhook is turned off",
    "must name either contacts or a segment", "is not allowed for this template: use `email`",
    "is for the other channel", "must not be your own user", "would leave the account without an owner",
    "has no email address", "is not a web address",
    "has no phone number", "does not happen to an email", "does not happen to an SMS",
    "only a manual suppression may expire", "only a START from the number lifts this",
    "cannot be changed: make another template", "must match the Idempotency-Key header",
    "must be public lists, because visitors see their names",
    "must be a language code such as de or pt-BR",
    "give either `html` or `body`, not both", "give either this or `template_id`, not both",
    "give either `from`, or `from_email` and `from_name`", "is not supported for SMS", "is already a recipient",
    "is only for transactional messages: send marketing to each recipient alone",
    "needs two variants or more, or a holdout", "is more than the holdout leaves", "is only for events",
    "is only for an A/B test",
    "SMS have no opens", "minutes after the last variant", "cannot be combined with different send times",
    "is that of the campaign: change", "is only for email", "is used twice", "must be the first variant",
    "give either `scheduled_at` or `local_time`, not both", "needs a `local_time` in the same request",
    "must be a full hour, such as 08:00", "must be a full hour, such as 08:00, with `best_hour_until`",
    "must be after the hour of `local_time`",
    "must be later than the start", "must be a draft", "must be a draft or paused",
    "must be active, paused or a draft that was active", "must be false for an agent",
    "the campaign has times of its own", "There are too many providers. Remove one first.",
    "must have only ASCII characters before the @", "is too long (maximum is 50 recipients)",
)  # fmt: skip
# The error of an alias whose value differs from that of its field
ALIAS = re.compile(r"must be the same as [\w.]+, or absent")
# Fields with names from a registry: of time zones, of flow starters, of the scopes of agents, of roles and others
REGISTERED = ("time_zone", "starter", "scope", "scopes", "role", "replacement")
# Fields that contain a document with its own validation: filters, steps, designs, headers, files, translated texts
INSIDE = re.compile(
    r"(?:filters|steps|trigger|design|document|\w+_attributes|options|file|contact|events|data|headers|attachments|experiment|utm|responses|repeat|changes|texts)\b"
)
PAGE_SIZES = ("limit", "per_page", "per")
_contracts: dict[int, Contract] = {}


def _is_good(case: Case) -> bool | None:
    meta = case.meta
    return None if meta is None else meta.generation.mode is GenerationMode.POSITIVE


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict[str, object]) -> None:
    """Use ids of existing objects in valid requests. DELETE keeps its generated id.

    The API key of the run is never revoked, because all later requests would be a 401.
    """
    if case.operation.path.startswith("/v1/my/api_keys/") and _number(case) == THINGS["own_key"]:
        case.path_parameters["id"] = THINGS["api_keys"]
    if not _is_good(case) or case.method.upper() == "DELETE" or case.meta.phase.name.value == "stateful":
        return
    match = _NOUN.match(case.operation.path)
    if match and match[1] in THINGS and "id" in (case.path_parameters or {}):
        case.path_parameters["id"] = THINGS[match[1]]


def _number(case: Case) -> int | None:
    text = str((case.path_parameters or {}).get("id", ""))
    return int(text) if text.isdecimal() else None


@schemathesis.hook
def filter_case(context: HookContext, case: Case) -> bool:
    """Return whether a generated case is useful; skip those that are invalid only by a rule that no schema expresses.

    An empty text counts as null, also where `format: email` or `format: uri` does not allow it. In a step of a flow
    `""`, `[]`, `{}`, `false` and `0` count as absent (docs/decisions.md#12), whatever the key. A page size over 100
    counts as 100.
    """
    if _is_good(case) is not False:
        return True
    if any(str(value).isdecimal() and int(value) > 100 for value in map((case.query or {}).get, PAGE_SIZES)):
        return False
    if not isinstance(case.body, dict):
        return True
    schema = case.operation.schema.raw_schema
    contract = _contracts.setdefault(id(schema), Contract(schema))
    # Methods that the path does not support are generated too
    operation = schema["paths"][case.operation.path].get(case.method.lower(), {})
    if "application/json" not in contract.resolve(operation.get("requestBody", {})).get("content", {}):
        return True
    place = contract.pointer_to("paths", case.operation.path, case.method.lower())
    pointer = f"{place}/requestBody/content/application~1json/schema"
    if isinstance(case.body.get("steps"), list):
        body = {**case.body, "steps": _without_absent_keys(case.body["steps"])}
        if body != case.body and contract.problem(pointer, body) is None:
            return False
    if '""' not in json.dumps(case.body, default=str):
        return True
    return contract.problem(
        pointer, _without_empty_texts(case.body)
    ) is not None or not contract.matches_ignoring_formats(pointer, case.body)


def _without_absent_keys(steps: Any) -> Any:
    """Return steps without the keys that count as absent."""
    if not isinstance(steps, list):
        return steps
    return [_present_keys(step) if isinstance(step, dict) else step for step in steps]


def _present_keys(step: dict[str, Any]) -> dict[str, Any]:
    branches = ("yes", "no", "else")
    return {key: _without_absent_keys(value) if key in branches else value for key, value in step.items() if value}


def _without_empty_texts(value: Any) -> Any:
    return (
        {key: _without_empty_texts(item) for key, item in value.items() if item != ""}
        if isinstance(value, dict)
        else value
    )


@schemathesis.check
def invalid_events_are_reported(context: CheckContext, response: Response, case: Case) -> bool | None:
    """Check that a batch with an invalid event reports it in its 200 response."""
    if case.operation.path != "/v1/my/events/batch" or response.status_code != 200 or _is_good(case) is not False:
        return None
    assert response.json()["errors"], "a batch that does not fit the document was recorded whole"
    return None


@schemathesis.check
def valid_requests_succeed(context: CheckContext, response: Response, case: Case) -> bool | None:
    """Check that a valid request gets a 422 only for a rule that no schema expresses."""
    if response.status_code != 422 or not _is_good(case):
        return None
    body = response.json()
    assert body["validation_errors"], "a 422 names what is wrong"
    for name, messages in body["validation_errors"].items() if "reason" not in body else ():
        for message in messages:
            known = message in UNSAYABLE or name in REGISTERED or INSIDE.match(name) or ALIAS.fullmatch(message)
            assert known, f"the document does not say that {name} {message}"
    return None
