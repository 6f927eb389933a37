"""Email providers that post to the inbound webhooks, with valid signatures made with keys of the tests."""

import base64
import hashlib
import hmac
import json
import ssl
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.hashes import SHA1, SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import NameOID

REGION = "eu-west-1"
HOST = f"sns.{REGION}.amazonaws.com"
TOPIC = f"arn:aws:sns:{REGION}:123456789012:feedback"
_NOTIFICATION = ("Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type")
_CONFIRMATION = ("Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type")


class Post(NamedTuple):
    """A request as a provider sends it."""

    path: str
    headers: dict[str, str]
    body: bytes


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{int(at * 1000) % 1000:03d}Z"


def custom_relay(secret: str, body: Mapping[str, Any], at: float, name: str | None = None) -> Post:
    """Return a request of a custom relay, signed like an outgoing webhook."""
    name, content, sent = name or str(uuid.uuid4()), json.dumps(body).encode(), str(int(at))
    signature = hmac.new(secret.encode(), f"{name}.{sent}.".encode() + content, hashlib.sha256).digest()
    headers = {
        "Content-Type": "application/json", "webhook-id": name, "webhook-timestamp": sent,
        "webhook-signature": "v1," + base64.b64encode(signature).decode(),
    }  # fmt: skip
    return Post("/hooks/email", headers, content)


def mailgun(secret: str, event: Mapping[str, Any], at: float, token: str | None = None) -> Post:
    """Return a request of Mailgun: time and token are signed in the body."""
    token, sent = token or uuid.uuid4().hex, str(int(at))
    digest = hmac.new(secret.encode(), (sent + token).encode(), hashlib.sha256).hexdigest()
    signature = {"timestamp": sent, "token": token, "signature": digest}
    body = {"signature": signature, "event-data": {"id": uuid.uuid4().hex, "timestamp": at, **event}}
    return Post("/hooks/mailgun", {"Content-Type": "application/json"}, json.dumps(body).encode())


def with_password(name: str, secret: str, body: Any) -> Post:
    """Return a request of a provider that signs nothing: the URL of its webhook contains a password."""
    basic = base64.b64encode(f"hooks:{secret}".encode()).decode()
    headers = {"Content-Type": "application/json", "Authorization": f"Basic {basic}"}
    return Post(f"/hooks/{name}", headers, json.dumps(body).encode())


def resend(secret: str, body: Mapping[str, Any], at: float, name: str | None = None) -> Post:
    """Return a request of Resend, signed by Svix with a secret that begins with `whsec_`."""
    name, content, sent = name or f"msg_{uuid.uuid4().hex}", json.dumps(body).encode(), str(int(at))
    key = base64.b64decode(secret.removeprefix("whsec_"))
    signature = hmac.new(key, f"{name}.{sent}.".encode() + content, hashlib.sha256).digest()
    headers = {
        "Content-Type": "application/json", "svix-id": name, "svix-timestamp": sent,
        "svix-signature": "v1," + base64.b64encode(signature).decode(),
    }  # fmt: skip
    return Post("/hooks/resend", headers, content)


def _encode_number(number: int) -> str:
    return base64.urlsafe_b64encode(number.to_bytes((number.bit_length() + 7) // 8)).decode().rstrip("=")


class Postal:
    """A Postal server with its signing key."""

    def __init__(self) -> None:
        self._key = rsa.generate_private_key(65537, 2048)
        public = self._key.public_key()
        self.pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
        numbers = public.public_numbers()
        key = {"kty": "RSA", "n": _encode_number(numbers.n), "e": _encode_number(numbers.e), "kid": "k"}
        self.key_set = json.dumps({"keys": [key]})

    def post(self, event: str, payload: Mapping[str, Any], at: float, /, **envelope: Any) -> Post:
        """Return a request whose body, with the time of the event, is signed."""
        body = {"event": event, "timestamp": at, "uuid": str(uuid.uuid4()), "payload": payload, **envelope}
        content = json.dumps(body).encode()
        headers = {"Content-Type": "application/json", "X-Postal-Signature-256": self.sign(content)}
        return Post("/hooks/postal", headers, content)

    def sign(self, content: bytes) -> str:
        """Return the signature of a body."""
        return base64.b64encode(self._key.sign(content, padding.PKCS1v15(), SHA256())).decode()


class SendGrid:
    """SendGrid with its key pair."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        public = self._key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        self.verification_key = base64.b64encode(public).decode()

    def post(self, events: list[Mapping[str, Any]], at: float) -> Post:
        """Return a request whose time and body are signed."""
        body = json.dumps(
            [{"sg_event_id": uuid.uuid4().hex, "timestamp": int(at), **event} for event in events]
        ).encode()
        signature = self._key.sign(str(int(at)).encode() + body, ec.ECDSA(SHA256()))
        headers = {
            "Content-Type": "application/json",
            "X-Twilio-Email-Event-Webhook-Signature": base64.b64encode(signature).decode(),
            "X-Twilio-Email-Event-Webhook-Timestamp": str(int(at)),
        }
        return Post("/hooks/sendgrid", headers, body)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        sns: Sns = self.server.sns  # type: ignore[attr-defined]  # set where the server is created
        sns.requested_paths.append(self.path)
        body = sns.files.get(self.path)
        is_known = body is not None or self.path.startswith("/?")
        self.send_response(sns.status if is_known else 404)
        self.end_headers()
        self.wfile.write(body or b"<ConfirmSubscriptionResponse/>")

    def log_message(self, *_: Any) -> None:
        pass


class Sns:
    """Amazon SNS: signs with its own key, and serves the certificate over https under its region's host name."""

    certificate_path = "/SimpleNotificationService-0123456789abcdef.pem"

    def __init__(self) -> None:
        self.key = rsa.generate_private_key(65537, 2048)
        self.files = {self.certificate_path: _certificate(self.key, "sns.amazonaws.com").public_bytes(Encoding.PEM)}
        self.requested_paths: list[str] = []
        self.status = 200

    def message(self, kind: str, at: float, version: str = "1", key: Any = None, **fields: Any) -> Post:
        """Return a signed SNS message of a type; `fields` replace fields or add new ones."""
        fields_: dict[str, Any] = {
            "Type": kind, "MessageId": str(uuid.uuid4()), "TopicArn": TOPIC, "Timestamp": _iso(at), "Message": "hello",
            "SignatureVersion": version, "SigningCertURL": f"https://{HOST}{self.certificate_path}", **fields,
        }  # fmt: skip
        names = _NOTIFICATION if kind == "Notification" else _CONFIRMATION
        text = "".join(f"{name}\n{fields_[name]}\n" for name in names if fields_.get(name) is not None)
        hashed = SHA256() if version == "2" else SHA1()  # version 1 is SHA-1
        signature = (key or self.key).sign(text.encode(), padding.PKCS1v15(), hashed)
        fields_.setdefault("Signature", base64.b64encode(signature).decode())
        headers = {"Content-Type": "text/plain; charset=UTF-8", "x-amz-sns-message-type": kind}
        return Post("/hooks/ses", headers, json.dumps(fields_).encode())

    def notification(self, notice: Mapping[str, Any], at: float, **fields: Any) -> Post:
        """Return a signed SNS notification that contains a notice of SES."""
        return self.message("Notification", at, Message=json.dumps(notice), **fields)

    def confirmation(self, at: float, url: str | None = None, **fields: Any) -> Post:
        """Return the subscription confirmation that SNS sends first."""
        url = url or f"https://{HOST}/?Action=ConfirmSubscription&TopicArn={TOPIC}&Token=abc"
        return self.message("SubscriptionConfirmation", at, SubscribeURL=url, Token="abc", **fields)

    @contextmanager
    def serving(self, directory: Path) -> Iterator[dict[str, str]]:
        """Serve the certificate on this machine; yields the environment in which a server accepts it as Amazon."""
        key = ec.generate_private_key(ec.SECP256R1())
        (directory / "key.pem").write_bytes(
            key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())
        )
        (directory / "ca.pem").write_bytes(_certificate(key, HOST).public_bytes(Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "ca.pem", directory / "key.pem")
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        server.sns = self  # type: ignore[attr-defined]  # a handler has access to its server only
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        hosts = {"ca": str(directory / "ca.pem"), "hosts": {HOST: server.server_port}}
        (directory / "hosts.json").write_text(json.dumps(hosts))
        try:
            yield {"CAMPANERO_TEST_HOSTS": str(directory / "hosts.json")}
        finally:
            server.shutdown()
            server.server_close()


def _certificate(key: Any, name: str) -> x509.Certificate:
    """Create a self-signed certificate that is valid for years, because tests move the clock."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    today = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - timedelta(days=30))
        .not_valid_after(today + timedelta(days=800))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, SHA256())
    )
