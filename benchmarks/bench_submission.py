"""Messages a second through SMTP submission, each on disk before its 250, driven by Postfix's smtp-source.

smtp-source knows neither TLS nor AUTH, so a helper process signs in for each of its connections and passes bytes on.
The relay does not answer, so that nothing is sent meanwhile. `--postfix HOST:PORT` sends the same to another server.

    .venv/bin/python -m benchmarks.bench_submission --messages 10000
"""

import argparse
import base64
import multiprocessing
import os
import shutil
import socket
import sqlite3
import ssl
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.kit.server import Server, free_port
from tests.kit.submission import KEY_NAME, Ports, certificate_files, create_key

_PIECE_BYTES = 262_144


def _read_reply(connection: socket.socket) -> bytes:
    reply = b""
    while not reply.endswith(b"\n") or reply.splitlines()[-1][3:4] == b"-":
        piece = connection.recv(65_536)
        if not piece:
            raise ConnectionError(reply)
        reply += piece
    return reply


def _sign_in(port: int, token: bytes) -> ssl.SSLSocket:
    """Return a connection with TLS that has signed in."""
    context = ssl.create_default_context(cafile=str(certificate_files()[0]))
    connection = context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="localhost")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _read_reply(connection)
    for command in (b"EHLO bench\r\n", b"AUTH PLAIN " + token + b"\r\n"):
        connection.sendall(command)
        reply = _read_reply(connection)
        assert reply[:1] == b"2", reply
    return connection


def _pass_on(client: socket.socket, port: int, token: bytes) -> None:
    """Answer the greeting and EHLO of smtp-source, and pass on everything else in both directions."""
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    server = _sign_in(port, token)
    client.sendall(b"220 bench\r\n")
    client.recv(1_000)
    client.sendall(b"250-bench\r\n250 8BITMIME\r\n")
    while True:
        try:
            data = client.recv(_PIECE_BYTES)
        except ConnectionResetError:  # smtp-source has sent all messages and closes its connections
            break
        if not data:
            break
        server.sendall(data)
        if _expects_reply(data):
            client.sendall(server.recv(_PIECE_BYTES))
    client.close()
    server.close()


def _expects_reply(data: bytes) -> bool:
    """Return whether a piece ends a command or a message: smtp-source writes a message in several pieces."""
    return data.endswith(b"\r\n.\r\n") or (
        len(data) < 200 and data[:4] in (b"MAIL", b"RCPT", b"DATA", b"RSET", b"QUIT")
    )


def _serve(listening: socket.socket, port: int, token: bytes) -> None:
    while True:
        client, _ = listening.accept()
        threading.Thread(target=_pass_on, args=(client, port, token), daemon=True).start()


def _drive(address: str, options: argparse.Namespace) -> float:
    """Run smtp-source against an address and return the messages a second."""
    program = shutil.which("smtp-source") or "/usr/sbin/smtp-source"
    command = [
        program, "-d", "-s", str(options.connections), "-m", str(options.messages), "-l", str(options.bytes),
        "-f", "shop@bakery.example", "-t", "ann@example.org", "-M", "bench", address,
    ]  # fmt: skip
    started = time.perf_counter()
    subprocess.run(command, check=True)
    return float(options.messages / (time.perf_counter() - started))


def _read_cpu_seconds(pid: int) -> float:
    """Return the processor time of a process, which does not depend on what else the machine does."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _measure(options: argparse.Namespace) -> None:
    ports = Ports()
    env = ports.env | {
        "CAMPANERO_EMAIL__TRANSPORT": "relay", "CAMPANERO_EMAIL__RELAY__HOST": "127.0.0.1",
        "CAMPANERO_EMAIL__RELAY__PORT": "9", "CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "true",
        "CAMPANERO_SUBMISSION__RECIPIENTS_PER_HOUR": "0",
    }  # fmt: skip
    with Server(env=env, cold=True).set_up().start() as server:
        token = base64.b64encode(f"\0{KEY_NAME}\0{create_key(server)}".encode())
        with socket.create_server(("127.0.0.1", free_port()), backlog=100) as listening:
            helper = multiprocessing.Process(target=_serve, args=(listening, ports.tls, token), daemon=True)
            helper.start()
            before = _read_cpu_seconds(server.pid)
            rate = _drive(f"127.0.0.1:{listening.getsockname()[1]}", options)
            cpu_ms = (_read_cpu_seconds(server.pid) - before) / options.messages * 1_000
            helper.kill()
        server.stop()
        with sqlite3.connect(server.data / "campanero.db") as database:
            [(stored,)] = database.execute("SELECT count(*) FROM message").fetchall()
        size = sum(path.stat().st_size for path in Path(server.data).rglob("*") if path.is_file())
    print(f"submission: {rate:,.0f} messages/s of {options.bytes} bytes over {options.connections} connections")
    print(f"processor time of the service: {cpu_ms:.2f} ms a message, load {os.getloadavg()[0]:.1f}")
    print(f"stored: {stored} of {options.messages}, {size / 1e6:,.0f} MB on disk")
    if stored != options.messages:
        sys.exit("some messages are missing")


def main() -> None:
    """Measure as the options say and print the rates."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--connections", type=int, default=10)
    parser.add_argument("--bytes", type=int, default=20_000)
    parser.add_argument("--postfix", metavar="HOST:PORT", help="measure this server too, without TLS and AUTH")
    options = parser.parse_args()
    _measure(options)
    if options.postfix:
        print(f"{options.postfix}: {_drive(options.postfix, options):,.0f} messages/s")


if __name__ == "__main__":
    main()
