"""An S3 server for tests on a loopback port: moto's, with checked signatures and checksums, and with faults.

For example::

    with S3Server() as s3:
        server = fresh_server(env=s3.env)
        s3.faults.append(Fault(503, "SlowDown", method="PUT", times=2))
        assert "copies/x/manifest" in s3.objects()
"""

import base64
import hashlib
import io
import itertools
import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import formatdate
from typing import Any, Self
from urllib.parse import parse_qsl, quote

from appliance.ops.stores import open_store
from appliance.ops.stores.base import Store
from appliance.settings.copies import S3, Copies

ACCESS_KEY_ID, SECRET_ACCESS_KEY, REGION = "AKIAEXAMPLE", "secret/of+the=key", "eu-south-9"
_MAX_SKEW_SECONDS = 15 * 60
_numbers = itertools.count(1)


@dataclass
class Fault:
    """What happens to requests that match: an error, a delay, or a connection that ends."""

    status: int = 500
    code: str = "InternalError"
    method: str = ""  # any, if empty
    key: str = ""  # a part of the path
    times: int = 1 << 30
    delay_seconds: float = 0  # before the request is handled; without a status of 400 or more, it is then handled
    cut_after: int | None = None  # bytes of the answer, before the connection ends
    is_done: bool = False  # whether the request is handled before the error is the answer
    headers: tuple[tuple[str, str], ...] = ()


class S3Server:
    """A thread that serves a bucket; use it as a context manager. Several of a process have buckets of their own.

    It imports its libraries where it uses them, because each process of pytest imports this module, which would take it
    a second of a processor.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self._host = host
        self.bucket, self.faults = f"copies-of-ours-{next(_numbers)}", list[Fault]()
        self.access_key_id, self.secret_access_key = ACCESS_KEY_ID, SECRET_ACCESS_KEY
        self.checks_clock = False
        self.requests: list[tuple[str, str, str]] = []  # method, key, query
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        from moto.server import create_backend_app
        from werkzeug.serving import make_server

        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._backend.create_bucket(self.bucket, REGION)
        self._moto = create_backend_app("s3")
        self._server = make_server(self._host, 0, self._handle, threaded=True)
        self.url = f"http://{self._host}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for key in self.objects():
            self.remove(key)

    @property
    def env(self) -> dict[str, str]:
        """The environment of a process whose copies go to this bucket."""
        return {
            "CAMPANERO_COPIES__STORE": self.store_url, "CAMPANERO_COPIES__S3__ENDPOINT": self.url,
            "CAMPANERO_COPIES__S3__REGION": REGION, "CAMPANERO_COPIES__S3__ACCESS_KEY_ID": ACCESS_KEY_ID,
            "CAMPANERO_COPIES__S3__SECRET_ACCESS_KEY": SECRET_ACCESS_KEY,
        }  # fmt: skip

    @property
    def store_url(self) -> str:
        """The URL of a store in this bucket."""
        return f"s3://{self.bucket}/campanero"

    def settings(self, **changes: Any) -> Copies:
        """Return settings of copies that go to this bucket."""
        s3 = S3(self.url, REGION, ACCESS_KEY_ID, SECRET_ACCESS_KEY)
        return Copies(**({"store": self.store_url, "s3": s3} | changes))

    def open_store(self, **changes: Any) -> Store:
        """Return the store in this bucket."""
        return open_store(self.store_url, self.settings(**changes))

    def objects(self) -> dict[str, bytes]:
        """Return the content of the objects by their key below the prefix of `store_url`."""
        bucket = self._backend.get_bucket(self.bucket)
        return {name.removeprefix("campanero/"): key.value for name, key in list(bucket.keys.items())}

    def replace(self, key: str, content: bytes) -> None:
        """Replace the content of an object, or create it, past all checks."""
        self._backend.put_object(self.bucket, f"campanero/{key}", content)

    def remove(self, key: str) -> None:
        """Lose an object."""
        self._backend.delete_object(self.bucket, f"campanero/{key}")

    def unfinished_uploads(self) -> list[str]:
        """Return the keys of the unfinished uploads in parts."""
        return [upload.key_name for upload in self._backend.get_bucket(self.bucket).multiparts.values()]

    @property
    def _backend(self) -> Any:
        from moto.core import DEFAULT_ACCOUNT_ID
        from moto.s3.models import s3_backends

        return s3_backends[DEFAULT_ACCOUNT_ID]["aws"]

    def _handle(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"].encode("latin-1").decode()
        key = path.removeprefix(f"/{self.bucket}").removeprefix("/campanero/")
        self.requests.append((method, key, environ.get("QUERY_STRING", "")))
        size = int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(size)
        fault = self._find_fault(method, path)
        if fault and fault.delay_seconds:
            time.sleep(fault.delay_seconds)
        if fault and fault.status >= 400 and fault.cut_after is None:
            if fault.is_done:
                self._answer(environ, body, lambda *_: None)
            return _error(start, fault.status, fault.code, "of this test", fault.headers)
        if len(body) != size:
            return _error(start, 400, "IncompleteBody", "the body is too short")
        if wrong := self._find_wrong(environ, method, body):
            return _error(start, *wrong)
        answer = self._answer(environ, body, start)
        return _cut(answer, fault.cut_after) if fault and fault.cut_after is not None else answer

    def _answer(self, environ: dict[str, Any], body: bytes, start: Callable[..., Any]) -> list[bytes]:
        # The backend is not made for several threads.
        with self._lock:
            return list(self._moto(environ | {"wsgi.input": io.BytesIO(body)}, start))

    def _find_fault(self, method: str, path: str) -> Fault | None:
        with self._lock:
            for fault in self.faults:
                if fault.times > 0 and fault.method in ("", method) and fault.key in path:
                    fault.times -= 1
                    return fault
        return None

    def _find_wrong(self, environ: dict[str, Any], method: str, body: bytes) -> tuple[int, str, str] | None:
        sent = environ["HTTP_X_AMZ_DATE"]
        moment = datetime.strptime(sent, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
        if self.checks_clock and abs(moment - time.time()) > _MAX_SKEW_SECONDS:
            return (
                403,
                "RequestTimeTooSkewed",
                "The difference between the request time and the current time is too large.",
            )
        authorization = environ.get("HTTP_AUTHORIZATION", "")
        if f"Credential={self.access_key_id}/" not in authorization:
            return 403, "InvalidAccessKeyId", "The AWS Access Key Id you provided does not exist in our records."
        if self._sign(environ, method, authorization) != authorization.rpartition("Signature=")[2]:
            return 403, "SignatureDoesNotMatch", "The request signature we calculated does not match."
        if environ["HTTP_X_AMZ_CONTENT_SHA256"] != hashlib.sha256(body).hexdigest():
            return 400, "XAmzContentSHA256Mismatch", "The provided 'x-amz-content-sha256' header does not match."
        md5 = base64.b64encode(hashlib.md5(body).digest()).decode()
        if environ.get("HTTP_CONTENT_MD5", md5) != md5:
            return 400, "BadDigest", "The Content-MD5 you specified did not match what we received."
        return None

    def _sign(self, environ: dict[str, Any], method: str, authorization: str) -> str:
        """Return the signature that botocore, which is not ours, computes for a request."""
        from botocore.auth import S3SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.credentials import Credentials

        names = authorization.partition("SignedHeaders=")[2].partition(",")[0].split(";")
        headers = {name: environ[_environ_name(name)] for name in names}
        path = quote(environ["PATH_INFO"].encode("latin-1").decode(), safe="/-_.~")
        request = AWSRequest(method, f"http://{headers['host']}{path}", headers)
        request.params = parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True)
        request.context["timestamp"] = headers["x-amz-date"]
        signer = S3SigV4Auth(Credentials(ACCESS_KEY_ID, self.secret_access_key), "s3", REGION)
        request.context["payload_signing_enabled"] = True
        canonical = signer.canonical_request(request)
        return signer.signature(signer.string_to_sign(request, canonical), request)


def _environ_name(header: str) -> str:
    name = header.upper().replace("-", "_")
    return name if name in ("CONTENT_TYPE", "CONTENT_LENGTH") else f"HTTP_{name}"


def _error(
    start: Callable[..., Any], status: int, code: str, message: str, headers: Iterable[tuple[str, str]] = ()
) -> list[bytes]:
    start(f"{status} Error", [("Content-Type", "application/xml"), ("Date", formatdate(usegmt=True)), *headers])
    return [f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>{message}</Message></Error>".encode()]


def _cut(answer: Iterable[bytes], size: int) -> Iterable[bytes]:
    yield b"".join(answer)[:size]
    raise ConnectionAbortedError("of this test")
