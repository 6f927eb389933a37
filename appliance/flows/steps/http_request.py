"""The step that makes an HTTP request, waits for its response, and stores values of the response.

The request is a row (`request_queue`) that a separate worker processes, so neither the engine nor a transaction waits
for the server. The run waits at the step until there is a result, at most `timeout` seconds.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from appliance.audience.consent import Evidence
from appliance.audience.contacts import write
from appliance.audience.contacts.store import ContactPatch
from appliance.core.errors import Invalid
from appliance.core.i18n import gettext, gettext_noop
from appliance.core.validation import MAX_DATA_BYTES, find_data_error
from appliance.flows import request_queue, request_template
from appliance.flows.request_queue import FAILED, SUCCEEDED, Result
from appliance.flows.request_template import TO_CONTACT, TO_RUN, RequestSpec, find_mapping_faults, pick_values
from appliance.flows.steps.base import (
    YES,
    ActiveRun,
    Node,
    ParseContext,
    StepContext,
    StepField,
    StepKind,
    StepResult,
    take,
    wait_until,
)
from appliance.flows.triggers import check_integer
from appliance.storage.database import connection, write_state
from appliance.webhooks.subscriptions import url_host

METHODS = ("POST", "PUT", "GET")
MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS, DEFAULT_TIMEOUT_SECONDS = 60, 259_200, 3_600
MAX_HEADERS, MAX_HEADER_CHARACTERS = 20, 2_000
MIN_SECRET_CHARACTERS, MAX_SECRET_CHARACTERS = 16, 200
# The prop of a stored step with its simulated response, which only simulations set (`simulator`)
SIMULATED = "simulated_response"
# RFC 9110, 5.6.2 and 5.5: a token, and visible ASCII with spaces.
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e\t]*")
# Headers that the service sets itself, or that change how the request is sent.
_RESERVED_HEADERS = frozenset({
    "accept-encoding", "connection", "content-encoding", "content-length", "content-type", "expect", "host",
    "idempotency-key", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade", "webhook-id",
    "webhook-signature", "webhook-timestamp",
})  # fmt: skip


class HttpRequest(StepKind):
    """A step that makes a request and takes the branch `yes` if it succeeded, else `no`."""

    type = "http_request"
    label = gettext_noop("HTTP request")
    icon = "webhook"
    branch_keys = ("yes", "no")
    waits = True
    batch_size = 50
    keys = frozenset({
        "method", "url", "headers", "secret_headers", "payload", "signed", "signing_secret", TO_CONTACT, TO_RUN,
        "timeout",
    })  # fmt: skip
    fields = (
        StepField(
            "method", gettext_noop("Method"), "choice", required=True, default="POST",
            options=tuple((method, method) for method in METHODS),
        ),
        StepField("url", gettext_noop("URL"), "url", required=True),
        StepField(
            "payload", gettext_noop("JSON body"), "json",
            help=gettext_noop("Texts may have merge tags, such as {{ email }} or {{ event.order_id }}."),
        ),
        StepField("headers", gettext_noop("Headers"), "object"),
        StepField(
            "secret_headers", gettext_noop("Secret headers"), "secret_object",
            help=gettext_noop("They are stored encrypted and not shown again. A name without a value keeps its value."),
        ),
        StepField(
            "signed", gettext_noop("Sign requests"), "boolean",
            help=gettext_noop("As webhooks are signed, so that the receiver can check where the request comes from."),
        ),
        StepField(
            "signing_secret", gettext_noop("Signing secret"), "secret",
            help=gettext_noop("At least 16 characters, which the receiver knows too. Leave empty to keep it."),
        ),
        StepField(
            TO_CONTACT, gettext_noop("Store in custom fields"), "object",
            help=gettext_noop(
                "One per line: the custom field, then the path in the response, as “score: result.score”."
            ),
        ),
        StepField(
            TO_RUN, gettext_noop("Store for this run"), "object",
            help=gettext_noop("As above. Later steps find these values with the event, as {{ event.score }}."),
        ),
        StepField(
            "timeout", gettext_noop("Try for at most"), "duration", default=DEFAULT_TIMEOUT_SECONDS,
            help=gettext_noop("From a minute to 3 days. Servers that are down are asked again within this time."),
        ),
    )  # fmt: skip

    def parse(self, raw: dict[str, Any], context: ParseContext) -> dict[str, Any]:
        """Parse the request; secret values that are absent keep the stored value if the URL has the same origin."""
        url, method = _read_url(raw.get("url"), context), _read_method(raw.get("method"), context)
        payload = raw.get("payload")
        if payload is not None and method == "GET":
            context.add_fault("payload", gettext("must be empty for GET"))
        elif payload is not None:
            for path, message in request_template.find_payload_faults(payload):
                context.add_fault(f"payload{path}", message)
        stored = _get_stored(url, context)
        headers = _read_headers(raw.get("headers"), "headers", {}, context)
        previous = stored.get("secret_headers", {})
        plain = _read_headers(raw.get("secret_headers"), "secret_headers", previous, context)
        secrets = {
            name: text if text == previous.get(name) else _seal(text, url, context) for name, text in plain.items()
        }
        for name in {name.lower() for name in headers} & {name.lower() for name in secrets}:
            context.add_fault(f"secret_headers.{name}", gettext("has already been taken"))
        secret = _read_signing_secret(raw, url, stored, context)
        timeout = raw.get("timeout")
        timeout = DEFAULT_TIMEOUT_SECONDS if timeout is None else timeout
        if error := check_integer(MIN_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS)(timeout):
            context.add_fault("timeout", gettext(error))
        props = {
            "method": method, "url": url, "headers": headers, "secret_headers": secrets, "payload": payload,
            "signing_secret": secret, "timeout": timeout,
        }  # fmt: skip
        return props | {key: _read_mapping(raw.get(key), key, context) for key in (TO_CONTACT, TO_RUN)}

    def dump(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return the props without secret values: only their names, and whether requests are signed."""
        dumped = {key: value for key, value in props.items() if value and key not in ("signing_secret", SIMULATED)}
        if props.get("secret_headers"):
            dumped["secret_headers"] = dict.fromkeys(props["secret_headers"])
        if props.get("signing_secret"):
            dumped["signed"] = True
        return dumped

    def list_branches(self, props: dict[str, Any]) -> dict[str, str]:
        """Return the labels of the two branches."""
        return {"yes": gettext("Succeeded"), "no": gettext("Failed")}

    def get_disclosures(self, props: dict[str, Any]) -> dict[str, Any]:
        """Return the target, the sent data and the stored values, because a request can send any contact data away."""
        keys = ("url", "payload", TO_CONTACT, TO_RUN)
        return {"request": {key: props[key] for key in keys if props.get(key)}}

    def get_request(self, props: dict[str, Any], account_id: int) -> RequestSpec:
        """Return the request with its secrets in plain text."""
        url, secret = props["url"], props.get("signing_secret")

        def unseal(sealed: str) -> str:
            return request_template.unseal_secret(account_id, url, sealed)

        headers = {**props["headers"], **{name: unseal(value) for name, value in props["secret_headers"].items()}}
        return RequestSpec(
            props["method"], url, headers, props.get("payload"), unseal(secret) if secret else None,
            bool(props.get(TO_CONTACT) or props.get(TO_RUN)),
        )  # fmt: skip

    def run(self, node: Node, runs: Sequence[ActiveRun], context: StepContext) -> list[StepResult]:
        """Add the request of each run that arrives, and use the result of each run that has waited.

        A test run makes no request and takes `yes`. So does a simulation, unless it has another response for the step.
        """
        if write_state.is_sandboxed:
            return [_use_result(run, _simulate_response(node.props), context) for run in runs]
        arriving = [run.id for run in runs if run.step_visit_id is None and not run.test]
        until = context.now + node.props["timeout"] * 1000
        request_queue.add_requests(arriving, node.id, until)
        waited = [run.id for run in runs if run.step_visit_id is not None]
        results = request_queue.take_results(waited, node.id) if waited else {}
        return [
            take("yes", "test_request") if run.test else wait_until(until) if run.step_visit_id is None
            else _use_result(run, results.get(run.id), context)
            for run in runs
        ]  # fmt: skip

    def simulate(self, node: Node, run: ActiveRun, result: StepResult, context: StepContext) -> dict[str, Any]:
        """Return the simulated response, and the values that the step took from it."""
        response = node.props.get(SIMULATED) or {}
        values = _simulate_response(node.props).answers
        return {
            "status": response.get("status", 200),
            **{key: values[key] for key in (TO_CONTACT, TO_RUN) if values.get(key)},
        }

    def summary(self, props: dict[str, Any], account_id: int) -> str:
        """Return a text with the method and the host."""
        return gettext("%(method)s request to %(host)s", method=props["method"], host=url_host(props["url"]))


def _read_url(value: Any, context: ParseContext) -> str:
    if value is None:
        context.add_fault("url", gettext("can't be blank"))
    elif not isinstance(value, str):
        context.add_fault("url", gettext("is invalid"))
    elif len(value) > request_template.MAX_URL_CHARACTERS:
        maximum = request_template.MAX_URL_CHARACTERS
        context.add_fault("url", gettext("is too long (maximum is %(max)s characters)", max=maximum))
    elif error := request_template.find_url_fault(value.strip()):
        context.add_fault("url", error)
    else:
        return value.strip()
    return ""


def _read_method(value: Any, context: ParseContext) -> str:
    if value is not None and value not in METHODS:
        context.add_fault("method", gettext("is not included in the list"))
        return METHODS[0]
    return str(value or METHODS[0])


def _get_stored(url: str, context: ParseContext) -> dict[str, Any]:
    """Return the stored step if its secrets may be sent to a URL, else an empty one."""
    stored = dict(context.previous or {})
    is_same = request_template.get_origin(str(stored.get("url") or "")) == request_template.get_origin(url)
    # The label of a secret contains the URL's origin, which is the same.
    return stored if is_same else {}


def _read_headers(value: Any, key: str, stored: dict[str, str], context: ParseContext) -> dict[str, str]:
    """Parse `headers` or `secret_headers`; a header that is null keeps its encrypted value in `stored`."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        context.add_fault(key, gettext("is invalid"))
        return {}
    if len(value) > MAX_HEADERS:
        context.add_fault(key, gettext("is too long (maximum is %(max)s items)", max=MAX_HEADERS))
        return {}
    headers: dict[str, str] = {}
    for name, text in value.items():
        path = f"{key}.{name.encode('utf-8', 'replace').decode()[:100]}"
        text = str(text) if isinstance(text, int) and not isinstance(text, bool) else text
        if not _HEADER_NAME.fullmatch(name):
            context.add_fault(path, gettext("is not a valid name"))
        elif name.lower() in _RESERVED_HEADERS or name.lower() in map(str.lower, headers):
            context.add_fault(path, gettext("is set by the service") if name.lower() in _RESERVED_HEADERS
                              else gettext("has already been taken"))  # fmt: skip
        elif text is None and name in stored:
            headers[name] = stored[name]
        elif text is None or text == "":
            context.add_fault(path, gettext("can't be blank"))
        elif not isinstance(text, str) or not _HEADER_VALUE.fullmatch(text):
            context.add_fault(path, gettext("is invalid"))
        elif len(text) > MAX_HEADER_CHARACTERS:
            maximum = MAX_HEADER_CHARACTERS
            context.add_fault(path, gettext("is too long (maximum is %(max)s characters)", max=maximum))
        else:
            headers[name] = text.strip()
    return headers


def _seal(text: str, url: str, context: ParseContext) -> str:
    """Return a secret encrypted for the origin of a URL; "" if the URL is invalid."""
    return request_template.seal_secret(context.account_id, url, text) if url else ""


def _read_signing_secret(raw: dict[str, Any], url: str, stored: dict[str, Any], context: ParseContext) -> str | None:
    """Parse `signed` and `signing_secret`, and return the encrypted secret; None without a signature."""
    secret = raw.get("signing_secret")
    if raw.get("signed") not in (None, True):
        context.add_fault("signed", gettext("is invalid"))
    if secret is None:
        if raw.get("signed") is True and not stored.get("signing_secret"):
            context.add_fault("signing_secret", gettext("can't be blank"))
        return stored.get("signing_secret") if raw.get("signed") is True else None
    if not isinstance(secret, str) or not _HEADER_VALUE.fullmatch(secret):
        context.add_fault("signing_secret", gettext("is invalid"))
    elif not MIN_SECRET_CHARACTERS <= len(secret.strip()) <= MAX_SECRET_CHARACTERS:
        error = gettext("must have between %(min)s and %(max)s characters", min=MIN_SECRET_CHARACTERS,
                        max=MAX_SECRET_CHARACTERS)  # fmt: skip
        context.add_fault("signing_secret", error)
    else:
        return _seal(secret.strip(), url, context)
    return None


def _read_mapping(value: Any, key: str, context: ParseContext) -> dict[str, str]:
    if value is None:
        return {}
    faults = find_mapping_faults(value)
    for name, message in faults:
        context.add_fault(f"{key}.{name}" if name else key, message)
    return {} if faults else dict(value)


def _simulate_response(props: dict[str, Any]) -> Result:
    """Return the result of the simulated response; by default a success without values."""
    response = props.get(SIMULATED) or {}
    status = int(response.get("status", 200))
    if not 200 <= status < 300:
        return Result(FAILED, "timed_out" if status == 0 else f"http_{status}", {})
    try:
        return Result(SUCCEEDED, None, pick_values(response.get("body"), props))
    except ValueError:
        return Result(FAILED, "invalid_response", {})


def _use_result(run: ActiveRun, result: Result | None, context: StepContext) -> StepResult:
    """Store the values of a response, and return the branch; values that are not valid custom data are not stored."""
    if result is None or result.status not in (SUCCEEDED, FAILED):
        return take("no", "timed_out")
    if result.status == FAILED:
        return take("no", result.reason)
    for_contact, for_run = (result.answers.get(key) or {} for key in (TO_CONTACT, TO_RUN))
    event_data = {**run.event_data, **for_run}
    if for_run and find_data_error(event_data, {"bytes": MAX_DATA_BYTES}):
        return take("no", "invalid_data")
    if for_contact and run.contact_id is not None:
        evidence = Evidence("flow", f"flow:{context.flow_id}")
        try:
            write.update(run.account_id, run.contact_id, ContactPatch(data_merge=for_contact), evidence)
        except Invalid:
            return take("no", "invalid_data")
    if for_run:
        run.event_data = event_data
        encoded = msgspec.json.encode(event_data).decode()
        connection().execute("UPDATE run SET event_data = ? WHERE id = ?", (encoded, run.id)).fetchall()
    return YES
