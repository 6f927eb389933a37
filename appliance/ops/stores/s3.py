"""A store in a bucket of Amazon S3, or of a service with the same API.

Sources: AWS, "Amazon S3 API Reference" (https://docs.aws.amazon.com/AmazonS3/latest/API/), "Checking object integrity"
and "Conditional requests" of its user guide. Only operations that other services also have are used: an upload is
verified by its SHA-256 in the signature, by Content-MD5 and by the ETag of the response.
"""

import base64
import hashlib
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

import httpx

from appliance.core import aws_signature, clock
from appliance.ops.stores import base, min_speed_http, s3_responses
from appliance.ops.stores.base import ObjectInfo, Throttle
from appliance.ops.stores.s3_responses import read_body, read_error
from appliance.settings.copies import Copies

# Larger objects are uploaded in parts of this size (at least 5 MiB by the API). An interrupted upload continues after
# the stored parts.
PART_BYTES = 8 << 20
_MAX_PARTS = 10_000
_MAX_PAGES = 2 * base.MAX_OBJECTS // 1_000  # of a listing, which may also have objects of other programs
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_TIMEOUT = httpx.Timeout(60, connect=15)
_ATTEMPTS, _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 4, 0.5, 20.0
_UNFINISHED_AFTER_MS = 7 * clock.DAY_MS
_SEND_BYTES = 1 << 16
_MD5 = re.compile(r"[0-9a-f]{32}")
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()


def open_store(url: SplitResult, settings: Copies, throttle: Throttle) -> "S3Store":
    """Return the store of `s3://BUCKET/PREFIX`. Raises StoreError for an unusable URL or missing credentials."""
    bucket, prefix = url.netloc, unquote(url.path).strip("/")
    if not _BUCKET.fullmatch(bucket):
        raise base.StoreError(f"{url.geturl()} must have the form s3://BUCKET/PREFIX; {bucket!r} is not a bucket name")
    if prefix and not base.is_key(prefix):
        raise base.StoreError(f"{url.geturl()}: the prefix may have letters, digits, '.', '_', '-' and '/'")
    if not settings.s3.access_key_id or not settings.s3.secret_access_key:
        raise base.Refused("copies.s3.access_key_id and copies.s3.secret_access_key are required for S3 storage")
    return S3Store(bucket, prefix, settings, throttle)


Query = list[tuple[str, str]]


class _Content(NamedTuple):
    """The body of a request, and its checksums."""

    body: bytes
    sha256: bytes
    md5: bytes


def _content_of(body: bytes) -> _Content:
    return _Content(body, hashlib.sha256(body).digest(), hashlib.md5(body, usedforsecurity=False).digest())


class S3Store:
    """A store in a bucket, below a prefix."""

    def __init__(self, bucket: str, prefix: str, settings: Copies, throttle: Throttle) -> None:
        self.url = f"s3://{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._throttle = throttle
        s3 = settings.s3
        if s3.endpoint:
            self._base, self._root = s3.endpoint.rstrip("/"), f"/{bucket}"
        elif "." in bucket:  # Its name would not match the wildcard of Amazon's certificate.
            self._base, self._root = f"https://s3.{s3.region}.amazonaws.com", f"/{bucket}"
        else:
            self._base, self._root = f"https://{bucket}.s3.{s3.region}.amazonaws.com", ""
        self._host = urlsplit(self._base).netloc
        self._credentials = aws_signature.Credentials(s3.access_key_id, s3.secret_access_key, s3.region, "s3")
        self._client = min_speed_http.open_client(_TIMEOUT)

    def put(self, key: str, source: BinaryIO, size: int, sha256: bytes) -> None:
        """Upload an object, in parts if it is large; parts of an interrupted upload are kept. See `Store.put`."""
        base.require_key(key)
        if size > PART_BYTES:
            self._put_parts(key, source, size)
        else:
            source.seek(0)
            content = _content_of(source.read(size))._replace(sha256=sha256)
            response = self._send("PUT", key, content=content)
            _require_md5(key, response, content.md5.hex())
        stored = self.head(key)
        if stored is None or stored.size != size:
            raise base.Damaged(f"{key} was accepted by the storage, but is not there with its {size:,} bytes")

    @contextmanager
    def open(self, key: str) -> Iterator[base.Readable]:
        """Yield a stream of the object, which continues where a broken connection ended. See `Store.open`."""
        download = _Download(self, base.require_key(key), self._throttle)
        try:
            yield download
        finally:
            download.close()

    def head(self, key: str) -> ObjectInfo | None:
        """Return the description of an object. See `Store.head`."""
        response = self._send("HEAD", base.require_key(key), allowed=(404, 400, 403, 301))
        if response.status_code == 404:
            return None
        if response.status_code >= 300:
            # The response to HEAD has no body, and so no reason.
            self._send("GET", key, headers={"range": "bytes=0-0"})
            raise s3_responses.to_store_error(response, read_error(response))
        modified_ms = s3_responses.parse_http_date(response.headers.get("last-modified"))
        size = int(response.headers.get("content-length") or 0)
        return ObjectInfo(key, size, modified_ms, response.headers.get("etag") or "")

    def list(self, prefix: str) -> Iterator[ObjectInfo]:
        """Yield the objects below a prefix, by pages of a thousand. See `Store.list`."""
        return base.limit_count(self._list_pages(prefix), self.url)

    def _list_pages(self, prefix: str) -> Iterator[ObjectInfo]:
        token: str | None = None
        for _ in range(_MAX_PAGES):
            query = [("list-type", "2"), ("prefix", self._prefix + prefix)]
            page = self._send("GET", None, query=query + ([("continuation-token", token)] if token else []))
            for item in (listing := s3_responses.parse_listing(page)).objects:
                key = item.key.removeprefix(self._prefix)
                if item.key.startswith(self._prefix + prefix) and base.is_key(key):
                    yield item._replace(key=key)
            token = listing.next_token
            if not token:
                return
        raise base.too_many_objects(self.url)

    def delete(self, key: str) -> None:
        """Delete an object. See `Store.delete`."""
        self._send("DELETE", base.require_key(key), allowed=(404,))

    def fetch(self, key: str) -> tuple[bytes, str] | None:
        """Return a small object and its etag. See `Store.fetch`."""
        response = self._send("GET", base.require_key(key), allowed=(404,))
        if response.status_code == 404:
            if (error := read_error(response)).code not in ("", "NoSuchKey"):
                raise s3_responses.to_store_error(response, error)
            return None
        return response.content, response.headers.get("etag") or ""

    def put_if(self, key: str, body: bytes, etag: str | None) -> str:
        """Write by a conditional request (If-Match, If-None-Match). See `Store.put_if`."""
        headers = {"if-none-match": "*"} if etag is None else {"if-match": etag}
        headers["content-type"] = "application/octet-stream"
        try:
            response = self._send("PUT", base.require_key(key), content=_content_of(body), headers=headers, attempts=1)
        except base.Unreachable:
            # The response to a successful write may have been lost; repeating the request would then report a conflict.
            stored = self.fetch(key)
            if stored is None or stored[0] != body:
                raise
            return stored[1]
        return response.headers.get("etag") or ""

    def discard_unfinished(self) -> int:
        """Abort the uploads begun more than a week ago, because their parts cost money, and return their number."""
        count = 0
        response = self._send("GET", None, query=[("uploads", ""), ("prefix", self._prefix)])
        now = s3_responses.parse_http_date(response.headers.get("date"))
        for upload in s3_responses.parse_uploads(response):
            if upload.key.startswith(self._prefix) and upload.started_ms < now - _UNFINISHED_AFTER_MS:
                key = upload.key.removeprefix(self._prefix)
                self._send("DELETE", key, query=[("uploadId", upload.upload_id)], allowed=(404,))
                count += 1
        return count

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _put_parts(self, key: str, source: BinaryIO, size: int) -> None:
        part_size = max(PART_BYTES, -(-size // _MAX_PARTS))
        upload_id, present = self._find_upload(key)
        md5s, xml = [], ""
        for number, start in enumerate(range(0, size, part_size), 1):
            source.seek(start)
            content = _content_of(source.read(min(part_size, size - start)))
            md5s.append(content.md5)
            etag = present.get(number, "")
            if etag.strip('"') != content.md5.hex():
                query = [("partNumber", str(number)), ("uploadId", upload_id)]
                response = self._send("PUT", key, query=query, content=content)
                _require_md5(f"part {number} of {key}", response, content.md5.hex())
                etag = response.headers.get("etag") or ""
            xml += f"<Part><PartNumber>{number}</PartNumber><ETag>{s3_responses.escape(etag)}</ETag></Part>"
        body = f"<CompleteMultipartUpload>{xml}</CompleteMultipartUpload>".encode()
        response = self._send("POST", key, query=[("uploadId", upload_id)], content=_content_of(body), allowed=(404,))
        expected_md5 = hashlib.md5(b"".join(md5s), usedforsecurity=False).hexdigest()
        if (error := read_error(response)).code:
            # The response to an earlier attempt may have been lost: then the object exists.
            stored = self.head(key)
            if error.code != "NoSuchUpload" or stored is None or not stored.etag.strip('"').startswith(expected_md5):
                raise s3_responses.to_store_error(response, error)

    def _find_upload(self, key: str) -> tuple[str, dict[int, str]]:
        """Return the id and the part etags (by number) of an unfinished upload of this object, else of a new one."""
        response = self._send("GET", None, query=[("uploads", ""), ("prefix", self._prefix + key)])
        uploads = [upload for upload in s3_responses.parse_uploads(response) if upload.key == self._prefix + key]
        for upload in sorted(uploads, key=lambda upload: -upload.started_ms):
            parts: dict[int, str] = {}
            marker = "0"
            while True:
                query = [("uploadId", upload.upload_id), ("part-number-marker", marker)]
                response = self._send("GET", key, query=query, allowed=(404,))
                if response.status_code == 404:
                    break
                page = s3_responses.parse_parts(response)
                parts |= page.etags
                if not page.next_marker:
                    return upload.upload_id, parts
                marker = page.next_marker
        response = self._send("POST", key, query=[("uploads", "")])
        return s3_responses.parse_upload_id(response), {}

    def _send(
        self,
        method: str,
        key: str | None,
        query: Query | None = None,
        content: _Content | None = None,
        headers: dict[str, str] | None = None,
        allowed: tuple[int, ...] = (),
        attempts: int = _ATTEMPTS,
    ) -> httpx.Response:
        """Send a request, repeat it after temporary errors, and return the response with its body.

        `key` is None for the bucket itself. Raises StoreError for a status of 300 or more that is not in `allowed`.
        """
        for attempt in range(attempts):
            try:
                response = self._send_once(method, key, query or [], content, headers or {})
                if response.status_code < 300 or response.status_code in allowed:
                    return response
                raise s3_responses.to_store_error(response, read_error(response))
            except base.Unreachable as error:
                if attempt == attempts - 1:
                    raise
                pause = error.retry_after_seconds or _FIRST_PAUSE_SECONDS * 2**attempt
                time.sleep(min(pause, _MAX_PAUSE_SECONDS))
        raise AssertionError("there is at least one attempt")

    def _send_once(
        self,
        method: str,
        key: str | None,
        query: Query,
        content: _Content | None,
        headers: dict[str, str],
    ) -> httpx.Response:
        if content:
            headers = headers | {"content-md5": base64.b64encode(content.md5).decode()}
        request = self._build_request(method, key, query, headers, content.sha256.hex() if content else _EMPTY_SHA256)
        if content:
            request.headers["content-length"] = str(len(content.body))
            request.stream = _Upload(content.body, self._throttle)
        try:
            response = self._client.send(request, stream=True)
            try:
                read_body(response)
            finally:
                response.close()
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        return response

    def _build_request(
        self, method: str, key: str | None, query: Query, headers: dict[str, str], sha256: str
    ) -> httpx.Request:
        path = self._root + (f"/{aws_signature.encode_path(self._prefix + key)}" if key is not None else "") or "/"
        canonical_query = aws_signature.encode_query(query)
        signed = headers | {
            "host": self._host, "x-amz-date": aws_signature.format_moment(), "x-amz-content-sha256": sha256
        }  # fmt: skip
        authorization = aws_signature.build_authorization(
            method, path, canonical_query, signed, sha256, self._credentials
        )
        url = f"{self._base}{path}" + (f"?{canonical_query}" if canonical_query else "")
        return self._client.build_request(method, url, headers=signed | {"authorization": authorization})

    def _unreachable(self, error: Exception) -> base.Unreachable:
        reason = " ".join(str(error).split()) or type(error).__name__
        return base.Unreachable(f"{self._host} cannot be reached: {reason}")

    def open_range(self, key: str, start: int, etag: str) -> httpx.Response:
        """Return a response with the object from byte `start`. With `etag`, the object must still have that etag."""
        headers = ({"range": f"bytes={start}-"} if start else {}) | ({"if-match": etag} if etag else {})
        try:
            # Without this header, httpx would request compressed bytes, which differ from the stored ones.
            request = self._build_request("GET", key, [], headers | {"accept-encoding": "identity"}, _EMPTY_SHA256)
            response = self._client.send(request, stream=True)
            if response.status_code in (200, 206) and (response.status_code == 206 or not start):
                return response
            try:
                read_body(response)
            finally:
                response.close()
        except httpx.HTTPError as error:
            raise self._unreachable(error) from None
        raise s3_responses.to_store_error(response, read_error(response))


class _Upload(httpx.SyncByteStream):
    """The body of an upload, sent no faster than the bandwidth limit."""

    def __init__(self, body: bytes, throttle: Throttle) -> None:
        self._body, self._throttle = memoryview(body), throttle

    def __iter__(self) -> Iterator[bytes]:
        for start in range(0, len(self._body), _SEND_BYTES):
            chunk = bytes(self._body[start : start + _SEND_BYTES])
            self._throttle.wait(len(chunk))
            yield chunk


class _Download:
    """A stream of an object. After a broken connection it continues at the next missing byte."""

    def __init__(self, store: S3Store, key: str, throttle: Throttle) -> None:
        self._store, self._key, self._throttle = store, key, throttle
        self._position, self._failures = 0, 0
        self._response = self._open("")
        self._etag = self._response.headers.get("etag") or ""
        self._chunks = self._response.iter_raw(base.CHUNK_BYTES)
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` further bytes, or none at the end."""
        while not self._rest:
            try:
                self._rest = next(self._chunks, b"")
            except httpx.HTTPError as error:
                self._failures += 1
                if self._failures >= _ATTEMPTS:
                    raise base.Unreachable(f"{self._key} broke off at byte {self._position:,}: {error}") from None
                self._response.close()
                self._response = self._open(self._etag)
                self._chunks = self._response.iter_raw(base.CHUNK_BYTES)
                continue
            if not self._rest:
                return b""
            self._throttle.wait(len(self._rest))
            self._position += len(self._rest)
        content, self._rest = self._rest[:size], self._rest[size:]
        return content

    def close(self) -> None:
        """Close the connection, even before the end of the object."""
        self._response.close()

    def _open(self, etag: str) -> httpx.Response:
        for attempt in range(_ATTEMPTS):
            try:
                return self._store.open_range(self._key, self._position, etag)
            except base.Unreachable:
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(_FIRST_PAUSE_SECONDS * 2**attempt)
        raise AssertionError("there is at least one attempt")


def _require_md5(name: str, response: httpx.Response, md5: str) -> None:
    """Raise Damaged if the ETag of an upload is an MD5 of other bytes.

    The ETag is the MD5 of an object or part, unless the store encrypts with a key of AWS KMS or of a customer.
    """
    is_encrypted = response.headers.get("x-amz-server-side-encryption", "").startswith("aws:kms")
    is_encrypted |= "x-amz-server-side-encryption-customer-algorithm" in response.headers
    etag = (response.headers.get("etag") or "").strip('"').lower()
    if _MD5.fullmatch(etag) and not is_encrypted and etag != md5:
        raise base.Damaged(f"{name} arrived changed: the storage computed {etag}, but {md5} was sent")
