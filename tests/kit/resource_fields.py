"""The documented fields of each API resource, and a minimal client that is written from the documentation alone."""

import http.client
import json
import re
from typing import Any, NamedTuple
from urllib.parse import urlencode, urlsplit
from uuid import UUID

from tests.kit.server import Server

# One line for each resource: a type, then the fields of that type. A type with `?` may be null.
TABLES = """
trigger | integer id flow_id triggered_count | integer? segment_id contact_list_id | string event | object data |
    date-time created_at updated_at | date-time? last_triggered_at
template | integer id | integer? flow_id action_id | string? name subject body preheader from_name from_email reply_to
    | object design variables | array languages | date-time created_at updated_at
campaign | integer id account_id sent_count | string status approval_state channel name phase | object data trigger
    template stats | array templates | boolean editable | string? pause_reason local_time |
    date-time created_at updated_at | date-time? scheduled_at cancelled_at | object? experiment utm repeat |
    integer? series_id best_hour_until
flow | integer id account_id sent_count | string status approval_state name | string? goal | object trigger stats |
    array steps templates | date-time created_at updated_at
step | string? subject body preheader event_name | integer? duration | array filters yes no | boolean
    forward_event_data | string type
contact | integer id | uuid uuid | string? first_name last_name source country_code language | object data |
    array list_ids channels | boolean subscribed_phone subscribed_email sendable_phone sendable_email |
    string verification_status enrichment_status tracking | date-time? last_interacted_at |
    date-time created_at updated_at
channel | integer id contact_id sent_count fail_count | string value kind | string? suppression_reason opted_out_by |
    object data | boolean subscribed verified | date-time? opt_in_at opt_out_at | date-time created_at updated_at
list | integer id account_id contacts_count | integer? segment_id | string name | boolean stale double_opt_in public |
    object sendable_count | date-time? last_populated_at | date-time created_at updated_at
segment | integer id account_id contacts_count | string name | array filters | date-time created_at updated_at
brand | integer id account_id | string? brand_color text_color bg_color font_heading font_body style_notes tone
    company_description industry physical_address company_name source_url logo | array? example_copy | object
    default_header default_footer default_theme | array links | date-time? last_scraped_at | boolean complete |
    date-time created_at updated_at
domain | integer id | string name provider status | array? dns_records | date-time? verified_at | date-time created_at
record | string record_type name value priority valid purpose | boolean required | array found | date-time? checked_at
event | integer id account_id chain_depth | integer? contact_id user_id | string event | number? amount | object data
    | boolean test generated | string? idempotency_key resource_uid resource_name resource_url ip user_agent browser
    os device_type referrer utm_source utm_medium utm_term utm_content utm_campaign | date-time created_at updated_at
message | integer id account_id attempts | integer? contact_id campaign_id flow_id step_id template_id segments
    variant | object tags | string channel status provider source_type | boolean transactional test | object? error |
    date-time created_at updated_at | string? to from reply_to subject skip_reason source_name provider_id
    idempotency_key internet_message_id | date-time? next_attempt_at sent_at delivered_at opened_at clicked_at
    bounced_at
account | integer id attribution_days | string base_url public_url version name time_zone locale privacy_ip |
    date-time created_at updated_at |
    string? email_from_name email_from_email email_reply_to sms_from stop_reason sms_opt_out_hint | object?
    frequency_cap sms_quiet_hours marketing_calendar utm | boolean can_send using_sandbox domain_verified
    approval_required block_on_missing_variable transactional_allowed sending_stopped | array blockers | object
    transport capabilities
    onboarding counts usage brand sms_opt_out_hints | number? control_share
error | string code message request_id | boolean error
"""
KINDS: dict[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def has_type(kind: str, value: Any) -> bool:
    """Return whether a value has a type of the tables."""
    if kind.endswith("?"):
        return value is None or has_type(kind[:-1], value)
    if kind in KINDS:
        return isinstance(value, KINDS[kind]) and (kind == "boolean" or not isinstance(value, bool))
    if kind == "uuid":
        return isinstance(value, str) and str(UUID(value)) == value
    return isinstance(value, str) and (kind != "date-time" or TIME.fullmatch(value) is not None)


def check_fields(resource: dict[str, Any], name: str) -> dict[str, Any]:
    """Return the resource, after checking that it has every field of its table with the right type."""
    tables = (table.split("|") for table in TABLES.replace("\n    ", " ").strip().splitlines())
    rows = next(rows for table_name, *rows in tables if table_name.strip() == name)
    fields = [(field, row.split()[0]) for row in rows for field in row.split()[1:]]
    wrong = {
        field: resource.get(field, "absent")
        for field, kind in fields
        if field not in resource or not has_type(kind, resource[field])
    }
    assert wrong == {}
    return resource


class Response(NamedTuple):
    """A response: status, headers and the JSON of the body."""

    status: int
    headers: http.client.HTTPMessage
    body: Any


class Client:
    """A minimal client: JSON over HTTP with one bearer credential."""

    def __init__(self, server: Server, credential: str | None = None) -> None:
        self.address = urlsplit(server.url).netloc
        self.credential = server.key if credential is None else credential

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Response:
        """Send a request under `/v1`; underscores in header names become dashes."""
        connection = http.client.HTTPConnection(self.address, timeout=60)
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if self.credential:
            sent["Authorization"] = f"Bearer {self.credential}"
        if body is not None:
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, f"/v1{path}", None if body is None else json.dumps(body), sent)
            response = connection.getresponse()
            return Response(response.status, response.headers, json.loads(response.read() or b"null"))
        finally:
            connection.close()

    def get(self, path: str, **query: Any) -> Any:
        """Return the body of a GET under `/v1/my`, which must have status 200."""
        return self.request(200, "GET", f"{path}?{urlencode(query)}" if query else path)

    def request(self, status: int, method: str, path: str, body: Any = None) -> Any:
        """Return the body of a request under `/v1/my`, which must have this status."""
        response = self.call(method, f"/my{path}", body)
        assert response.status == status, response.body
        return response.body

    def expect_error(self, status: int, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Return the error of a request that must fail with this status, after checking the fields of the error."""
        error = check_fields(self.request(status, method, path, body), "error")
        assert error["error"] is True
        return error
