"""How long requests take, by the pattern of their path: never by a path as it was asked for."""

import re

from appliance.counted import Histogram

_TOOK = Histogram(
    "http_request_seconds",
    "From a request to the beginning of its answer, by the pattern of its path and the class of its status.",
    ("method", "route", "status"),
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_PLACE = re.compile(r"<(\w+)(?::[^>]*)?>")


def took(method: str, route: str | None, status: int, seconds: float) -> None:
    """Note a request that was answered; `route` is how the router writes its path, None where it knows none."""
    pattern = "unknown" if route is None else "/" + _PLACE.sub(r"{\1}", route.strip("/")).replace("{number}", "{id}")
    _TOOK.observe(seconds, method if method in _METHODS else "other", pattern, f"{status // 100}xx")
