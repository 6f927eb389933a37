"""Exceptions of the client. All of them are a CampaneroError.

CampaneroError
├── ConnectionFailed    no connection, a timeout, or a connection that broke
├── InvalidSignature    a webhook request was not signed with the secret, or is too old
└── ApiError            the service returned a status of 400 or above
    ├── BadRequest          400
    ├── Unauthorized        401
    ├── Forbidden           403
    ├── NotFound            404
    ├── Conflict            409
    ├── ValidationFailed    422
    ├── RateLimited         429
    └── ServerError         500 or above
        └── Unavailable     503
"""

from collections.abc import Mapping
from typing import Any


class CampaneroError(Exception):
    """Base of all exceptions of the client."""


class ConnectionFailed(CampaneroError):
    """No connection, a timeout, or a connection that broke.

    If `was_sent` is true, the service may have carried out the request.
    """

    def __init__(self, text: str, *, was_sent: bool) -> None:
        super().__init__(text)
        self.was_sent = was_sent


class InvalidSignature(CampaneroError):
    """A webhook request was not signed with the secret, or it is too old."""


class ApiError(CampaneroError):
    """A response with a status of 400 or above.

    `code` is the error code for programs, and `reason` the exact reason, if there is one. `fields` maps the path of
    each invalid field, such as `steps[1].subject`, to its messages; `base` has errors of no single field. `body` is the
    whole JSON of the response; it is empty if the response is not from Campanero, but from a proxy before it. `headers`
    are the response headers. `retry_after` is the number of seconds after which the request may be repeated, or None.
    """

    def __init__(
        self, status: int, body: Mapping[str, Any], headers: Mapping[str, str], retry_after: float | None = None
    ) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.retry_after = retry_after
        self.code = str(body.get("code") or "unknown")
        self.message = str(body.get("message") or _describe(status, headers))
        self.reason: str | None = body.get("reason")
        self.request_id: str | None = body.get("request_id") or headers.get("x-request-id")
        self.fields: dict[str, list[str]] = body.get("validation_errors") or {}
        super().__init__(f"{status} {self.code}: {self.message}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.body, dict(self.headers), self.retry_after)


def _describe(status: int, headers: Mapping[str, str]) -> str:
    """Return a message for a response that is not from Campanero."""
    place = headers.get("location")
    return f"The address redirects to {place}." if place else f"The response has the status {status}."


class BadRequest(ApiError):
    """400: the request cannot be read, for example because its body is not JSON."""


class Unauthorized(ApiError):
    """401: the API key is missing, wrong or revoked."""


class Forbidden(ApiError):
    """403: the API key does not have the scope; `body["required_scope"]` names it."""


class NotFound(ApiError):
    """404: the account has no object with this id."""


class Conflict(ApiError):
    """409: the object was changed meanwhile, or the idempotency key was used for another request."""


class ValidationFailed(ApiError):
    """422: `fields` has all errors, each at its field; or a rule forbids the action, and `reason` names it."""


class RateLimited(ApiError):
    """429: too many requests; `retry_after` says when to try again."""


class ServerError(ApiError):
    """500 or above: an unexpected error of the service, or of a proxy before it."""


class Unavailable(ServerError):
    """503: the service cannot handle the request now; `retry_after` says when to try again."""


_BY_STATUS: dict[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    422: ValidationFailed,
    429: RateLimited,
    503: Unavailable,
}


def error_of_status(status: int) -> type[ApiError]:
    """Return the exception of a status of 400 or above."""
    return _BY_STATUS.get(status) or (ServerError if status >= 500 else ApiError)
