"""Every error of the API: status and code; the reasons of a 422 with their further keys; the stable messages."""

from tests.rules.contract.rows import lines

_CODES = """
O 400 bad_request -- a request that does not arrive whole, or whose head cannot be read, is no JSON that is wrong
D 400 invalid_json
D 401 unauthorized
D 401 invalid_credentials
D 401 otp_required
O 401 password_sign_in_off -- an account may allow only sign-in with OpenID Connect
D 403 forbidden
S 404 not_found
D 405 method_not_allowed
D 409 idempotency_conflict
D 409 conflict
D 413 payload_too_large
D 415 unsupported_media_type
S 422 validation_error
S 429 rate_limited
D 500 internal_error
D 503 storage_unavailable
D 503 unavailable
"""
_REASONS = """
D audience_required blockers
D confirmation_required blockers
D content_required blockers
D sender_not_ready blockers
D approval_required blockers
D preflight_failed blockers
D campaign_locked status
D invalid_transition from,to,allowed
D recipient_suppressed message_id,skip_reason
D transactional_disabled
D in_use used_by
"""

CODES = tuple((line.origin, int(line.cells[0]), line.cells[1]) for line in lines(_CODES))
REASONS = {
    line.cells[0]: (line.origin, tuple(line.cells[1].split(",")) if len(line.cells) > 1 else ())
    for line in lines(_REASONS)
}
# In this order stand the blockers of a send, and the first is its reason
BLOCKING = (
    "audience_required", "confirmation_required", "content_required", "sender_not_ready", "approval_required",
    "preflight_failed",
)  # fmt: skip
BODY = ("error", "code", "message", "request_id")
MESSAGES = (
    "can't be blank", "is invalid", "must exist", "has already been taken", "is not included in the list",
    "is not a number", "is reserved", "is too long (maximum is {} characters)", "must be greater than or equal to {}",
)  # fmt: skip
# Checked in this order
ORDER = ("path 404", "method 405", "credential 401", "rate 429", "scope 403", "size 413", "type 415", "JSON 400",
         "id 404", "rest")  # fmt: skip
