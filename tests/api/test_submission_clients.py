"""Programs that people have send through SMTP submission: swaks, msmtp, PHP's mail() and nodemailer."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.server import Server
from tests.kit.smtp import Message, SmtpServer
from tests.kit.submission import KEY_NAME, Ports, certificate_files, create_key

SENDER = "shop@bakery.example"


@pytest.fixture(scope="module")
def key(relay: SmtpServer, ports: Ports) -> Iterator[str]:
    """Yield the API key of a server that sends through the relay."""
    with Server(relay=relay.port, env=ports.env).set_up().start() as running:
        yield create_key(running)
        running.stop()


def require(name: str) -> str:
    """Return the path of a program, or skip the test if it is not installed."""
    path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/bin")
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def run(command: list[str], text: str = "", **environment: str) -> str:
    """Run a program and return its output. Raises AssertionError if it fails."""
    done = subprocess.run(
        command, input=text, text=True, capture_output=True, timeout=60, env={**os.environ, **environment}
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def wait_for(relay: SmtpServer, subject: str, count: int) -> list[Message]:
    """Return the messages with a subject, once there are `count`."""
    relay.wait_until(lambda: [message.subject for message in relay.messages].count(subject) >= count, subject, 30)
    return [message for message in relay.messages if message.subject == subject]


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
@pytest.mark.parametrize("is_tls_first", [False, True])
def test_swaks(relay: SmtpServer, ports: Ports, key: str, mechanism: str, is_tls_first: bool) -> None:
    """The usual test client signs in with both mechanisms on both ports, and sends a file."""
    subject = f"swaks {mechanism} {is_tls_first}"
    where = ["--tls-on-connect", "--port", str(ports.tls)] if is_tls_first else ["--tls", "--port", str(ports.starttls)]
    output = run([
        require("swaks"), "--server", "localhost", *where, "--auth", mechanism, "--auth-user", KEY_NAME,
        "--auth-password", key, "--from", SENDER, "--to", "ann@example.org,bea@example.org",
        "--header", f"Subject: {subject}", "--attach", f"@{certificate_files()[0]}",
    ])  # fmt: skip
    assert "250 2.0.0 OK" in output
    assert {message.to for message in wait_for(relay, subject, 2)} == {"ann@example.org", "bea@example.org"}


def write_msmtprc(directory: Path, ports: Ports, key: str, port: int, options: str = "") -> Path:
    """Write the configuration of msmtp and return its file."""
    path = directory / "msmtprc"
    path.write_text(
        f"defaults\nauth on\ntls on\ntls_trust_file {certificate_files()[0]}\n{options}account default\n"
        f"host localhost\nport {port}\nuser {KEY_NAME}\npassword {key}\nfrom {SENDER}\n"
    )
    path.chmod(0o600)
    return path


def test_msmtp(relay: SmtpServer, ports: Ports, key: str, tmp_path: Path) -> None:
    """msmtp sends to the recipients of To and Bcc, and adds what is missing; Bcc is in no copy."""
    settings = write_msmtprc(tmp_path, ports, key, ports.tls, "tls_starttls off\n")
    mail = "To: ann@example.org\nBcc: hidden@example.org\nSubject: msmtp\n\nHello\n.\nend\n"
    run([require("msmtp"), "-C", str(settings), "-t"], mail)
    received = wait_for(relay, "msmtp", 2)
    assert {message.to for message in received} == {"ann@example.org", "hidden@example.org"}
    for message in received:
        assert message.header("Bcc") is None and message.header("From") == SENDER
        assert message.raw.endswith(b"Hello\r\n.\r\nend\r\n")


def test_php_mail_as_wordpress_sends_it(relay: SmtpServer, ports: Ports, key: str, tmp_path: Path) -> None:
    """PHP's mail() with an attached file and Bcc, through msmtp as sendmail, arrives as PHP wrote it."""
    settings = write_msmtprc(tmp_path, ports, key, ports.starttls)
    script = tmp_path / "mail.php"
    script.write_text(r"""<?php
$body = "--b\r\nContent-Type: text/html; charset=UTF-8\r\n\r\n<p>Grüße aus dem Laden</p>\r\n--b\r\n"
  . "Content-Type: application/pdf; name=\"invoice.pdf\"\r\nContent-Transfer-Encoding: base64\r\n"
  . "Content-Disposition: attachment; filename=\"invoice.pdf\"\r\n\r\n"
  . base64_encode("PDF content") . "\r\n--b--\r\n";
$headers = "From: Bakery <shop@bakery.example>\r\nBcc: office@example.org\r\nMIME-Version: 1.0\r\n"
  . "Content-Type: multipart/mixed; boundary=b";
exit(mail("ann@example.org", "php order", $body, $headers) ? 0 : 1);
""")
    run([
        require("php"), "-d", f"sendmail_path={require('msmtp')} -C {settings} -t", "-d", "mail.mixed_lf_and_crlf=0",
        str(script),
    ])  # fmt: skip
    received = wait_for(relay, "php order", 2)
    assert {message.to for message in received} == {"ann@example.org", "office@example.org"}
    for message in received:
        html, file = message.parsed.iter_parts()
        assert "Grüße aus dem Laden" in html.get_content() and message.header("Bcc") is None
        assert (file.get_filename(), file.get_content()) == ("invoice.pdf", b"PDF content")
        assert message.header("Message-ID") and message.header("Date")


def test_from_of_cron_and_php_as_in_the_guide(relay: SmtpServer, ports: Ports, key: str, tmp_path: Path) -> None:
    """With `set_from_header on` a From of cron is replaced, and PHP's own option keeps the From of a PHP program."""
    settings = write_msmtprc(tmp_path, ports, key, ports.starttls, "set_from_header on\n")
    guide = (Path(__file__).parents[2] / "ui/guides/company-mail.md").read_text()
    option = re.search(r'^sendmail_path = "/usr/bin/msmtp (.+)"$', guide, re.MULTILINE)
    assert option is not None
    mail = "From: root (Cron Daemon)\nTo: ann@example.org\nSubject: cron\n\nDone\n"
    run([require("msmtp"), "-C", str(settings), "-t"], mail)
    assert wait_for(relay, "cron", 1)[0].header("From") == SENDER
    written = "Bakery <orders@bakery.example>"
    run([
        require("php"), "-d", f"sendmail_path={require('msmtp')} -C {settings} {option[1]}", "-r",
        f'exit(mail("ann@example.org", "kept", "Hello", "From: {written}") ? 0 : 1);',
    ])  # fmt: skip
    assert wait_for(relay, "kept", 1)[0].header("From") == written


NODE = """
const transport = require("nodemailer").createTransport(JSON.parse(process.env.TRANSPORT));
transport.sendMail({
  from: "Shop <shop@bakery.example>", to: "ann@example.org", bcc: "hidden@example.org", subject: "nodemailer",
  text: "Hello", html: "<p>Grüße</p>", attachments: [{filename: "a.bin", content: Buffer.from([0, 1, 255])}],
}).then((info) => { console.log(JSON.stringify(info.accepted)); transport.close(); });
"""


def test_nodemailer(relay: SmtpServer, ports: Ports, key: str, tmp_path: Path) -> None:
    """The client of most programs in JavaScript sends an attached file and Bcc."""
    node, npm = require("node"), require("npm")
    install = subprocess.run(
        [npm, "install", "--no-audit", "--no-fund", "--prefix", str(tmp_path), "nodemailer@7"], capture_output=True,
        timeout=120,
    )  # fmt: skip
    if install.returncode:
        pytest.skip("nodemailer cannot be installed")
    transport = {
        "host": "localhost", "port": ports.starttls, "requireTLS": True, "auth": {"user": KEY_NAME, "pass": key},
        "tls": {"ca": certificate_files()[0].read_text()},
    }  # fmt: skip
    environment = {"TRANSPORT": json.dumps(transport), "NODE_PATH": str(tmp_path / "node_modules")}
    assert json.loads(run([node, "-e", NODE], **environment)) == ["ann@example.org", "hidden@example.org"]
    received = wait_for(relay, "nodemailer", 2)
    assert {message.to for message in received} == {"ann@example.org", "hidden@example.org"}
    [file] = received[0].parsed.iter_attachments()
    assert file.get_content() == b"\0\1\xff" and received[0].header("Bcc") is None
