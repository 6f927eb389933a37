"""Sign requests to AWS and to services with the same API (Signature Version 4).

Source: AWS, "Create a signed AWS API request"
(https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html).
"""

import hashlib
import hmac
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote

from appliance.core import clock

_ALGORITHM = "AWS4-HMAC-SHA256"


class Credentials(NamedTuple):
    """An access key, and the region and service (`ses`, `s3`) that it is used for."""

    access_key_id: str
    secret_access_key: str
    region: str
    service: str


def format_moment() -> str:
    """Return the current time as the header `x-amz-date` needs it: `20261128T174400Z`."""
    return datetime.fromtimestamp(clock.now(), UTC).strftime("%Y%m%dT%H%M%SZ")


def encode_path(path: str) -> str:
    """Return a path in canonical form: percent-encoded once, as S3 expects it and as it is sent."""
    return quote(path, safe="/-_.~")


def encode_query(parameters: Iterable[tuple[str, str]]) -> str:
    """Return a query string in canonical form, which is also the form to send."""
    pairs = sorted((quote(name, safe="-_.~"), quote(value, safe="-_.~")) for name, value in parameters)
    return "&".join(f"{name}={value}" for name, value in pairs)


def build_authorization(
    method: str, path: str, query: str, headers: dict[str, str], content_sha256: str, credentials: Credentials
) -> str:
    """Return the header `Authorization` of a request.

    `path` and `query` are in canonical form. `headers` are the headers to sign by name in lower case, with
    `x-amz-date` (YYYYMMDDTHHMMSSZ). `content_sha256` is the hash of the body in hex.
    """
    moment, names = headers["x-amz-date"], sorted(headers)
    canonical_headers = "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in names)
    request = "\n".join((method, path, query, canonical_headers, ";".join(names), content_sha256))
    scope = f"{moment[:8]}/{credentials.region}/{credentials.service}/aws4_request"
    to_sign = "\n".join((_ALGORITHM, moment, scope, hashlib.sha256(request.encode()).hexdigest()))
    key = f"AWS4{credentials.secret_access_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, to_sign.encode(), hashlib.sha256).hexdigest()
    credential = f"{credentials.access_key_id}/{scope}"
    return f"{_ALGORITHM} Credential={credential}, SignedHeaders={';'.join(names)}, Signature={signature}"
