"""What Schemathesis loads: real ids where a request needs one, and when a good request may be refused with 422.

Runs within `st run` (SCHEMATHESIS_HOOKS), never within a test.
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
# What no schema can say, so that a request which fits all of them may still be refused: what is there already and what
# is not, what belongs together, in which state something is, what a text means. The rest the document has to say.
UNSAYABLE = (
    "must exist", "has already been taken", "is reserved", "is invalid", "can't be blank", "must be in the future",
    "a list has either members or a segment", "is a view of a segment", "is not active", "the webhook is switched off",
    "must name either contacts or a segment", "is not allowed for this template: use `email`",
    "is for email", "is for sms", "must not be your own user", "would leave the account without an owner",
    "has no e-mail address",
    "has no phone number", "does not happen to mail", "does not happen to an SMS",
    "only a manual suppression may expire", "only a START from the number lifts this",
    "cannot be changed: make another template", "must match the Idempotency-Key header",
)  # fmt: skip
# Names out of a registry: of time zones, of ready flows
REGISTERED = ("time_zone", "starter")
# Refusals of what lies inside a document of its own: filters, steps, designs, files
INSIDE = re.compile(r"(?:filters|steps|trigger|design|document|\w+_attributes|options|file|contact|events|data)\b")
PAGE_SIZES = ("limit", "per_page", "per")
_contracts: dict[int, Contract] = {}


def _is_good(case: Case) -> bool | None:
    meta = case.meta
    return None if meta is None else meta.generation.mode is GenerationMode.POSITIVE


@schemathesis.hook
def before_call(context: HookContext, case: Case, kwargs: dict[str, object]) -> None:
    """Ask for things that are there, where a good request is meant; what is deleted is asked for by its own number.

    The key that all this is asked with is never revoked: what came after would be 401, and nothing would be tried.
    """
    if case.operation.path.startswith("/v1/my/api_keys/") and _number(case) == THINGS["own_key"]:
        case.path_parameters["id"] = THINGS["api_keys"]
    if not _is_good(case) or case.method.upper() == "DELETE" or case.meta.phase.name.value == "stateful":
        return
    found = _NOUN.match(case.operation.path)
    if found and found[1] in THINGS and "id" in (case.path_parameters or {}):
        case.path_parameters["id"] = THINGS[found[1]]


def _number(case: Case) -> int | None:
    said = str((case.path_parameters or {}).get("id", ""))
    return int(said) if said.isdecimal() else None


@schemathesis.hook
def filter_case(context: HookContext, case: Case) -> bool:
    """Leave out what is wrong only because an empty text is no address: the service takes it for null, as of a form.

    A pattern can say that, and does where there is one; `format: email` and `format: uri` have no way to allow "". And
    in a step of a flow `""`, `[]`, `{}`, `false` and `0` count as absent (docs/decisions.md#12), whatever the key: a
    schema that allowed each of them everywhere would tell nobody what a key is. A page of more than 100 is one of 100.
    """
    if _is_good(case) is not False:
        return True
    if any(str(value).isdecimal() and int(value) > 100 for value in map((case.query or {}).get, PAGE_SIZES)):
        return False
    if not isinstance(case.body, dict):
        return True
    schema = case.operation.schema.raw_schema
    contract = _contracts.setdefault(id(schema), Contract(schema))
    # A method that the path does not take is tried, too
    operation = schema["paths"][case.operation.path].get(case.method.lower(), {})
    if "application/json" not in contract.resolve(operation.get("requestBody", {})).get("content", {}):
        return True
    place = contract.pointer_to("paths", case.operation.path, case.method.lower())
    pointer = f"{place}/requestBody/content/application~1json/schema"
    if isinstance(case.body.get("steps"), list):
        said = {**case.body, "steps": _present(case.body["steps"])}
        if said != case.body and contract.problem(pointer, said) is None:
            return False
    if '""' not in json.dumps(case.body, default=str):
        return True
    return contract.problem(pointer, _filled(case.body)) is not None or not contract.matches_ignoring_formats(
        pointer, case.body
    )


def _present(steps: Any) -> Any:
    """Return steps without what counts as absent in them."""
    if not isinstance(steps, list):
        return steps
    return [_said(step) if isinstance(step, dict) else step for step in steps]


def _said(step: dict[str, Any]) -> dict[str, Any]:
    return {key: _present(one) if key in ("yes", "no") else one for key, one in step.items() if one}


def _filled(value: Any) -> Any:
    return {key: _filled(one) for key, one in value.items() if one != ""} if isinstance(value, dict) else value


@schemathesis.check
def bad_events_are_told(context: CheckContext, response: Response, case: Case) -> bool | None:
    """Name an event of a batch that does not fit the document, in an answer of 200: it keeps the others not out."""
    if case.operation.path != "/v1/my/events/batch" or response.status_code != 200 or _is_good(case) is not False:
        return None
    assert response.json()["errors"], "a batch that does not fit the document was recorded whole"
    return None


@schemathesis.check
def good_requests_are_done(context: CheckContext, response: Response, case: Case) -> bool | None:
    """Refuse a request that fits the document only for what the document cannot say."""
    if response.status_code != 422 or not _is_good(case):
        return None
    told = response.json()
    assert told["validation_errors"], "a 422 names what is wrong"
    for name, messages in told["validation_errors"].items() if "reason" not in told else ():
        for message in messages:
            known = message in UNSAYABLE or name in REGISTERED or INSIDE.match(name)
            assert known, f"the document does not say that {name} {message}"
    return None
