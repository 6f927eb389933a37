"""Parse the responses of S3: listings, uploads, and errors, which become StoreErrors in plain words.

Source: AWS, "Amazon S3 API Reference", "Error responses"
(https://docs.aws.amazon.com/AmazonS3/latest/API/ErrorResponses.html).
"""

import time
import xml.etree.ElementTree as ET
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NamedTuple
from xml.sax.saxutils import escape

import httpx

from appliance.core import clock
from appliance.ops.stores import base
from appliance.ops.stores.base import ObjectInfo

__all__ = ["escape"]
# A page of a listing has at most a thousand items.
_MAX_BODY_BYTES = 8 << 20
_MAX_BODY_SECONDS = 300.0
_MAX_WORDS = 300
_FULL = ("QuotaExceeded", "StorageFull", "XMinioStorageFull", "ServiceQuotaExceeded", "TooManyObjects")
_BUSY = ("SlowDown", "InternalError", "ServiceUnavailable", "RequestTimeout", "Busy", "ThrottlingException")
_CHANGED = ("BadDigest", "XAmzContentSHA256Mismatch", "InvalidDigest", "IncompleteBody", "InvalidPart")
_MISSING = {
    "NoSuchBucket": "the bucket does not exist", "NoSuchKey": "the object does not exist",
    "NoSuchUpload": "the upload does not exist",
}  # fmt: skip
_REFUSED = {
    "InvalidAccessKeyId": "the access key ID is unknown to the storage; was the key rotated?",
    "SignatureDoesNotMatch": "the secret access key does not belong to the access key ID",
    "ExpiredToken": "the access key has expired",
    "AccessDenied": "the access key may not do this in the bucket",
    "AllAccessDisabled": "the storage has disabled this bucket",
    "AuthorizationHeaderMalformed": "the region is wrong: see copies.s3.region",
    "PermanentRedirect": "the bucket is in another region: see copies.s3.region and copies.s3.endpoint",
}


class ErrorBody(NamedTuple):
    """The `Code` and `Message` of an error; both are empty if the response has none."""

    code: str
    message: str


class Listing(NamedTuple):
    """A page of a listing, with full keys, and the token of the next page."""

    objects: list[ObjectInfo]
    next_token: str


class Upload(NamedTuple):
    """An unfinished upload in parts."""

    key: str
    upload_id: str
    started_ms: int


class PartPage(NamedTuple):
    """The etags of the parts of an upload by their number, and the marker of the next page."""

    etags: dict[int, str]
    next_marker: str


def read_body(response: httpx.Response) -> None:
    """Read the body of a streamed response into `response.content`. Raises Unreachable if it is too large or slow."""
    chunks, size, end = [], 0, time.monotonic() + _MAX_BODY_SECONDS
    for chunk in response.iter_raw():
        size += len(chunk)
        if size > _MAX_BODY_BYTES:
            raise base.Unreachable(f"{response.url.host} sent more than {_MAX_BODY_BYTES >> 20} MiB for a short answer")
        if time.monotonic() > end:
            raise base.Unreachable(f"{response.url.host} took more than {_MAX_BODY_SECONDS:.0f} s for a short answer")
        chunks.append(chunk)
    response._content = b"".join(chunks)  # httpx reads a whole body without a limit, and has no other way to set it


def read_error(response: httpx.Response) -> ErrorBody:
    """Return the error in the body of a response; S3 may send one with status 200 after an upload in parts."""
    if b"<Error" not in response.content[:1024]:
        return ErrorBody("", "")
    root = _parse(response)
    return ErrorBody(_text(root, "Code")[:100], " ".join(_text(root, "Message").split())[:_MAX_WORDS])


def to_store_error(response: httpx.Response, error: ErrorBody) -> base.StoreError:
    """Return the StoreError for a response that is not a success."""
    host, code, status = response.url.host, error.code, response.status_code
    words = f"{code}: {error.message}" if code else f"status {status}"
    if code in ("RequestTimeTooSkewed", "RequestExpired"):
        return base.Refused(f"{host}: {_describe_skew(response)} ({words})")
    if code in _REFUSED:
        return base.Refused(f"{host}: {_REFUSED[code]} ({words})")
    if code in _MISSING or (status == 404 and not code):
        return base.Missing(f"{host}: {_MISSING.get(code, 'not found')} ({words})")
    if code in _FULL or status == 507:
        return base.StoreFull(f"{host}: the storage is full ({words})")
    if code in _CHANGED:
        return base.Damaged(f"{host}: the upload arrived changed ({words})")
    if status == 412 or code in ("PreconditionFailed", "ConditionalRequestConflict"):
        return base.Conflict(host)
    if status == 501 or code == "NotImplemented":
        return base.NotSupported(f"{host}: the storage cannot do this ({words})")
    if status >= 500 or status in (408, 425, 429) or code in _BUSY:
        unreachable = base.Unreachable(f"{host}: the storage is overloaded or out of order ({words})")
        unreachable.retry_after_seconds = _retry_after(response)
        return unreachable
    if status in (401, 403):
        return base.Refused(f"{host}: the storage refused this ({words})")
    return base.StoreError(f"{host}: {words}")


def _retry_after(response: httpx.Response) -> float:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0.0


def _describe_skew(response: httpx.Response) -> str:
    """Return by how much the clock of this machine differs from that of the store."""
    moment = parse_http_date(response.headers.get("date"))
    if not moment:
        return "the clock of this machine is wrong; set it, for example by NTP"
    seconds = (clock.now_ms() - moment) // 1000
    size, direction = abs(seconds), "fast" if seconds > 0 else "slow"
    amount = f"{size // 60} minutes" if size < 7200 else f"{size // 3600} hours"
    return f"the clock of this machine is {amount} {direction}, by that of the storage; set it, for example by NTP"


def parse_http_date(text: str | None) -> int:
    """Return the time of a header such as Last-Modified in milliseconds, or 0."""
    try:
        return int(parsedate_to_datetime(text or "").timestamp() * 1000)
    except (ValueError, TypeError, OverflowError):
        return 0


def parse_listing(response: httpx.Response) -> Listing:
    """Return the page in the response to ListObjectsV2."""
    root = _parse(response)
    objects = [
        ObjectInfo(_text(item, "Key"), _number(item, "Size"), _time(_text(item, "LastModified")), _text(item, "ETag"))
        for item in _children(root, "Contents")
    ]
    is_truncated = _text(root, "IsTruncated") == "true"
    return Listing(objects, _text(root, "NextContinuationToken") if is_truncated else "")


def parse_uploads(response: httpx.Response) -> list[Upload]:
    """Return the uploads in the response to ListMultipartUploads."""
    return [
        Upload(_text(item, "Key"), _text(item, "UploadId"), _time(_text(item, "Initiated")))
        for item in _children(_parse(response), "Upload")
    ]


def parse_parts(response: httpx.Response) -> PartPage:
    """Return the page in the response to ListParts."""
    root = _parse(response)
    etags = {_number(item, "PartNumber"): _text(item, "ETag") for item in _children(root, "Part")}
    return PartPage(etags, _text(root, "NextPartNumberMarker") if _text(root, "IsTruncated") == "true" else "")


def parse_upload_id(response: httpx.Response) -> str:
    """Return the id of a new upload. Raises StoreError if there is none."""
    upload_id = _text(_parse(response), "UploadId")
    if not upload_id:
        raise base.StoreError(f"{response.url.host} began an upload without an id")
    return upload_id


def _parse(response: httpx.Response) -> ET.Element:
    try:
        return ET.fromstring(response.content)  # noqa: S314 - expat limits the expansion of entities
    except (ET.ParseError, LookupError, ValueError) as error:
        # LookupError, ValueError: the declaration names an encoding that Python does not know, or cannot use for XML.
        raise base.StoreError(f"{response.url.host} sent an answer that is not of the S3 API: {error}") from None


def _children(root: ET.Element, name: str) -> list[ET.Element]:
    # Not all services put the elements into the namespace of Amazon.
    return [child for child in root if child.tag.rpartition("}")[2] == name]


def _text(root: ET.Element, name: str) -> str:
    children = _children(root, name)
    return (children[0].text or "").strip() if children else ""


def _number(root: ET.Element, name: str) -> int:
    text = _text(root, name)
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else 0


def _time(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return 0
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
