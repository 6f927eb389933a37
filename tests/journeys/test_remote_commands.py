"""The commands for scripts, against a real service and against a hostile server."""

import http.server
import json
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

from appliance.remote.connection import MAX_RESPONSE_BYTES
from tests.kit.client import Client
from tests.kit.fork_server import fork_server
from tests.kit.server import ROOT, Completed, Server, free_port

Run = Callable[..., Completed]


def environment(home: Path, **others: str) -> dict[str, str]:
    """Return the environment of a user with this home directory."""
    return {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **others}


def read_until(process: subprocess.Popen[bytes], text: str, seconds: float = 30) -> None:
    """Read what a process prints until it contains the text. Raises AssertionError if that takes too long."""
    assert process.stdout is not None
    output, end = b"", time.monotonic() + seconds
    while text.encode() not in output:
        readable, _, _ = select.select([process.stdout], [], [], max(end - time.monotonic(), 0))
        more = os.read(process.stdout.fileno(), 65_536) if readable else b""
        if not more:
            process.kill()  # so that the test ends
            raise AssertionError(f"it did not print {text!r}, but {output!r}")
        output += more


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory, server: Server) -> Path:
    """Return the home directory of a user who is signed in to the service with its full key."""
    directory = tmp_path_factory.mktemp("home")
    done = fork_server().run(["login", server.url], environment(directory), directory, f"{server.key}\n", 60)
    assert done.returncode == 0, done.stderr
    server.set_postal_address()
    return directory


@pytest.fixture(scope="module")
def run(home: Path) -> Run:
    """Return a function that runs a command of the user; its exit code must be `expect`."""

    def run_command(*arguments: str, stdin: str = "", expect: int = 0, **variables: str) -> Completed:
        done = fork_server().run(arguments, environment(home, **variables), home, stdin, 60)
        assert done.returncode == expect, (arguments, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    return run_command


def run_on_terminal(arguments: list[str], env: dict[str, str], answers: list[tuple[str, str]]) -> tuple[str, int]:
    """Run the real command on a terminal, answer each question with its text, and return its output and exit code."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-P", "-m", "appliance", *arguments], env)
    output, waiting, deadline = "", list(answers), time.monotonic() + 60
    while time.monotonic() < deadline:
        if not select.select([terminal], [], [], 1)[0]:
            continue
        try:
            block = os.read(terminal, 65_536)
        except OSError:
            break  # how Linux reports that the other side has closed
        if not block:
            break
        output += block.decode("utf-8", "replace")
        if waiting and waiting[0][0] in output:
            time.sleep(0.1)  # getpass throws away what was typed before it has turned the echo off
            os.write(terminal, waiting.pop(0)[1].encode())
    os.close(terminal)
    return output, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def read_available(stream: IO[Any]) -> str:
    """Return what can be read from the output of a process within a second."""
    return os.read(stream.fileno(), 65_536).decode() if select.select([stream], [], [], 1)[0] else ""


def stored_profile(home: Path) -> Path:
    """Return the file of the user's profiles."""
    return home / ".config/campanero/profiles.json"


class TestSigningIn:
    """`login`, `logout` and `profiles`."""

    def test_login_says_account_and_scopes(self, server: Server, run: Run, home: Path) -> None:
        """The key comes from stdin, is checked, and is stored for its owner only; its scopes are printed."""
        narrow = server.new_key("narrow", "--scope", "messages:send,events:write")
        done = run("login", f"{server.url}/v1/my", "--profile", "narrow", stdin=f"{narrow}\n")
        assert "an account that the key may not read" in done.stdout
        assert "Scopes: events:write,messages:send" in done.stdout
        assert stored_profile(home).stat().st_mode & 0o777 == 0o600
        table = run("profiles").stdout
        assert "narrow" in table and "Bakery" in table and narrow not in table
        refusal = run("api", "GET", "/account", "--profile", "narrow", expect=4)
        assert "does not have the account:read scope" in refusal.stderr
        assert json.loads(refusal.stdout)["required_scope"] == "account:read"
        assert "revoke it" in run("logout", "--profile", "narrow").stdout
        assert narrow not in stored_profile(home).read_text()
        run("logout", "--profile", "narrow", expect=1)

    def test_wrong_keys_and_addresses(self, server: Server, run: Run, home: Path) -> None:
        """A wrong key, no key, and an address without a service have exit codes of their own, and store nothing."""
        before = stored_profile(home).read_text()
        assert "valid API key" in run("login", server.url, stdin="camp_live_wrong\n", expect=4).stderr
        run("login", server.url, stdin="", expect=4)
        run("login", server.url, stdin="a key\n", expect=2)
        run("login", "mail.example.com", stdin="x\n", expect=2)
        assert "cannot be reached" in run("login", f"http://127.0.0.1:{free_port()}", stdin="x\n", expect=3).stderr
        run("api", "GET", "/account", expect=4, XDG_CONFIG_HOME="/nonexistent")
        run("api", "GET", "/account", "--profile", "nobody", expect=4)
        assert stored_profile(home).read_text() == before

    def test_the_key_is_not_shown_on_a_terminal(self, server: Server, tmp_path: Path) -> None:
        """On a terminal the key is asked for without showing it."""
        assert server.key is not None
        output, code = run_on_terminal(["login", server.url], environment(tmp_path), [("API key", f"{server.key}\n")])
        assert code == 0 and "Signed in to account Bakery" in output and server.key not in output

    def test_environment_instead_of_a_profile(self, server: Server, run: Run) -> None:
        """CAMPANERO_URL and CAMPANERO_KEY stand for a profile, and are not unknown settings of the service."""
        assert server.key is not None
        variables = {"CAMPANERO_URL": server.url, "CAMPANERO_KEY": server.key, "XDG_CONFIG_HOME": "/nonexistent"}
        assert run("api", "GET", "/account", "--jq", ".name", **variables).stdout == "Bakery\n"
        assert run("check", "--data", str(server.data), **variables).stderr == ""


class TestApi:
    """`campanero api`."""

    def test_fields_files_and_filters(self, run: Run, api: Client, home: Path) -> None:
        """Bodies are made of fields or a file, responses are printed as they are or filtered."""
        done = run(
            "api", "POST", "/contacts", "-f", "email=fields@example.org", "-F", "data[age]=3", "-F", "data[ok]=true"
        )
        contact = json.loads(done.stdout)
        assert contact["data"] == {"age": 3, "ok": True}
        (home / "body.json").write_text('{"first_name": "Zoë"}')
        path = f"/contacts/{contact['id']}"
        assert run("api", "patch", path, "--input", "body.json", "--jq", ".first_name").stdout == "Zoë\n"
        assert run("api", "PATCH", path, "--input", "-", stdin="[1", expect=2).stdout == ""
        head, _, body = run("api", "GET", path, "-i", "-H", "Accept: application/json").stdout.partition("\n\n")
        assert (
            head.startswith("HTTP/1.1 200 OK\n") and "x-scopes: full" in head and json.loads(body) == api.get(path).json
        )
        assert run("api", "DELETE", path, "--silent").stdout == ""
        refusal = run("api", "POST", "/contacts", "-f", "email=nobody", "-f", "phone=1", expect=1)
        assert refusal.stderr.count("is invalid") == 2 and json.loads(refusal.stdout)["code"] == "validation_error"
        assert run("api", "GET", "openapi.yaml").stdout.startswith("openapi: 3.1")

    def test_all_pages(self, run: Run, api: Client) -> None:
        """`--paginate` prints one list of all pages, or filters each page; `--count` prints how many objects it has."""
        for number in range(5):
            api.post("/lists", {"name": f"list {number}"}).expect(201)
        query = ("api", "GET", "/lists", "--paginate", "-F", "limit=2", "-f", "search=list")
        assert [row["name"] for row in json.loads(run(*query).stdout)] == [
            f"list {number}" for number in range(4, -1, -1)
        ]
        assert run(*query, "--jq", "length").stdout == "2\n2\n1\n"
        assert run("api", "GET", "/lists", "--count", "-f", "search=list").stdout == "5\n"
        assert run(*query[:-1], "search=nowhere").stdout == "[]\n"

    @pytest.mark.parametrize(
        "arguments",
        [
            ("GET", "//127.0.0.1/x"), ("GET", "/../../x"), ("FETCH", "/account"), ("GET", "/account", "-f", "name"),
            ("POST", "/lists", "--count"), ("GET", "/lists", "--count", "--jq", "."), ("GET", "/account", "--count"),
            ("GET", "/account", "--jq", ".["), ("POST", "/lists", "--paginate"), ("GET", "/account", "-H", "Host: x"),
            ("GET", "/account", "-H", "no header"), ("POST", "/lists", "-F", "name=@/nowhere"),
            ("GET", "/account", "--retries", "99"), ("GET",),
        ],
    )  # fmt: skip
    def test_wrong_usage(self, run: Run, arguments: tuple[str, ...]) -> None:
        """A wrong command line is reported with exit code 2, and sends nothing."""
        assert run("api", *arguments, expect=2).stdout == ""


class TestDailyCommands:
    """Contacts, campaigns, messages, events and flows."""

    def test_import_and_export(self, run: Run, home: Path, api: Client) -> None:
        """An import waits for its result and writes what became of each row; an export can be imported again."""
        (home / "people.csv").write_text("E-mail,Name\ncarla@example.org,Carla\nnot an address,Eve\n")
        contact_list = api.post("/lists", {"name": "Guests"}).expect(201)["id"]
        options = ("--list", "guests", "--map", "Name=first_name", "--consent-source", "guest book")
        trial = run("contacts", "import", "people.csv", *options, "--dry-run", "--json")
        assert json.loads(trial.stdout)["created"] == 1
        saving = ("--results", "results.csv", "--rejected", "rejected.csv")
        done = run("contacts", "import", "people.csv", *options, *saving)
        assert "created:  1\n" in done.stdout and "failed:   1\n" in done.stdout and done.stderr == ""
        header, accepted, rejected = (home / "results.csv").read_text().splitlines()
        assert "carla@example.org" in accepted and "email is invalid" in rejected
        assert (home / "rejected.csv").read_text().splitlines() == [header, rejected]
        run("contacts", "import", "people.csv", "--rejected", "rejected.csv", "--no-wait", expect=2)
        exported = run("contacts", "export", "--list", str(contact_list)).stdout
        assert "carla@example.org" in exported
        lines = run("contacts", "export", "--list", "Guests", "--json").stdout.splitlines()
        assert [json.loads(line)["first_name"] for line in lines] == ["Carla"]
        run("contacts", "export", "--jq", ".", expect=2)
        assert json.loads(run("contacts", "import", "-", "--json", stdin=exported).stdout)["updated"] == 1
        command = f"cat people.csv | {sys.executable} -P -m appliance contacts import - --jq .total"
        piped = subprocess.run(["bash", "-c", command], env=environment(home), cwd=home, capture_output=True, text=True)
        assert (piped.stdout, piped.stderr) == ("2\n", "")
        run("contacts", "export", "out.jsonl", "--list", str(contact_list))
        assert json.loads((home / "out.jsonl").read_text())["first_name"] == "Carla"
        assert (home / "out.jsonl").stat().st_mode & 0o777 == 0o600
        run("contacts", "import", "nowhere.csv", expect=2)
        assert "no list with the name Guest\n" in run("contacts", "export", "--list", "Guest", expect=2).stderr
        assert "no segment with the name Guests\n" in run("contacts", "export", "--segment", "Guests", expect=2).stderr
        for _ in range(2):
            api.post("/segments", {"name": "Twice"}).expect(201)
        assert "are 2 segments with" in run("contacts", "export", "--segment", "twice", expect=2).stderr
        assert "must exist" in run("contacts", "export", "kept.csv", "--list", "999999", expect=1).stderr
        assert not list(home.glob("*kept.csv*"))
        (home / "empty.csv").write_text("")
        run("contacts", "import", "empty.csv", expect=1)

    def test_a_campaign_from_check_to_end(self, run: Run, home: Path, api: Client) -> None:
        """A campaign is sent only after the preflight and a confirmation; `--all` is needed for all contacts."""
        contact_list = api.post("/lists", {"name": "Friends"}).expect(201)["id"]
        for name in ("anna", "bo"):
            api.post("/contacts", {"email": f"{name}@example.org", "list_ids": [contact_list]})
        content = {"subject": "Hello", "body": "<p>Hello</p>"}
        api.post("/campaigns", {"name": "Empty", "template_attributes": content}).expect(201)
        campaign = api.post(
            "/campaigns",
            {
                "name": "Friends",
                "trigger_attributes": {"contact_list_id": contact_list},
                "template_attributes": content,
            },
        ).expect(201)["id"]
        everybody = api.post(
            "/campaigns",
            {
                "name": "All",
                "trigger_attributes": {"data": {"audience_type": "all_contacts"}},
                "template_attributes": content,
            },
        ).expect(201)["id"]
        empty = str(api.get("/campaigns", search="Empty").json[0]["id"])
        assert "audience_required" in run("campaigns", "preflight", empty, expect=1).stdout
        assert "audience_required" in run("campaigns", "send", empty, "--yes", expect=1).stderr
        assert "not sent: draft" in run("campaigns", "show", empty, "--wait", expect=1).stderr
        assert "use --yes" in run("campaigns", "send", str(campaign), expect=2).stderr
        assert "use --all" in run("campaigns", "send", str(everybody), "--yes", expect=1).stderr
        arguments, env = ["campaigns", "send", str(campaign)], environment(home)
        output, code = run_on_terminal(arguments, env, [("[y/N]", "n\n")])
        assert code == 1 and 'Send "Friends" by email to 2 contacts now?' in output and "nothing was done" in output
        assert {row["status"] for row in api.get("/campaigns").json} == {"draft"}
        output, code = run_on_terminal([*arguments, "--wait"], env, [("[y/N]", "y\n")])
        assert code == 0 and "phase:      completed" in output and "sent:       2" in output
        assert "is not a draft: it is completed" in run("campaigns", "send", str(campaign), "--yes", expect=1).stderr
        sent = run("campaigns", "send", str(everybody), "--all", "--yes", "--wait", "--jq", ".phase")
        assert sent.stdout == "completed\n"
        assert "Friends" in run("campaigns", "list", "--status", "completed").stdout
        run("campaigns", "pause", str(campaign), expect=1)
        run("campaigns", "show", "999999", expect=1)

    def test_messages(self, server: Server, run: Run, home: Path) -> None:
        """A message is sent with its files, once for a key; `tail --follow` prints it when it comes, until Ctrl C."""
        (home / "note.txt").write_text("a note")
        send = ("messages", "send", "--to", "dan@example.org", "--subject", "Receipt {{ data.order }}",
                "--text", "@note.txt", "--attach", "note.txt")  # fmt: skip
        run(*send, "-F", "order=6")
        command = [sys.executable, "-P", "-m", "appliance", "messages", "tail", "-n", "1", "--follow"]
        with subprocess.Popen(
            [*command, "--interval", "0.2", "--to", "dan@example.org", "--jq", ".subject"], env=environment(home),
            cwd=home, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        ) as follower:  # fmt: skip
            # The last message is printed at once; from then on it follows
            read_until(follower, "Receipt")
            numbers = [run(*send, "-F", "order=7", "--idempotency-key", "order-7", "--jq", ".id").stdout for _ in "ab"]
            assert numbers[0] == numbers[1]
            read_until(follower, "Receipt 7")
            follower.send_signal(signal.SIGINT)
            assert follower.wait(30) == 130
        assert "dan@example.org  Receipt 7" in run("messages", "tail", "--to", "dan@example.org").stdout
        server.client().post("/suppressions", {"address": "dan@example.org", "reason": "manual"}).expect(201)
        assert (
            "campanero: "
            in run("messages", "send", "--to", "dan@example.org", "--text", "x", "--subject", "x", expect=1).stderr
        )

    def test_events_and_flows(self, run: Run, api: Client) -> None:
        """An event is recorded for a contact; a flow is simulated for one, and nothing is sent."""
        order = ("--amount", "12.5", "-F", "order[number]=7", "--json")
        event = json.loads(
            run("events", "send", "order_paid", "--email", "eve@example.org", "--create-contact", *order).stdout
        )
        assert (event["event"], event["amount"], event["data"]) == ("order_paid", 12.5, {"order": {"number": 7}})
        run("events", "send", "Wrong Name", "--email", "eve@example.org", expect=1)
        steps = [{"subject": "Hello", "body": "<p>Hello</p>"}]
        flow = api.post("/flows", {"name": "Welcome", "trigger": {"event": "order_paid"}, "steps": steps}).expect(201)[
            "id"
        ]
        before = len(api.get("/messages").json)
        assert "Hello" in run("flows", "simulate", str(flow), "--email", "EVE@example.org").stdout
        assert json.loads(run("flows", "simulate", str(flow), "--json").stdout)["flow_id"] == flow
        assert "no contact" in run("flows", "simulate", str(flow), "--email", "no@example.org", expect=1).stderr
        assert len(api.get("/messages").json) == before

    def test_a_closed_output_ends_quietly(self, server: Server, home: Path) -> None:
        """A reader that closes the pipe, such as head, causes no error message."""
        command = f"{sys.executable} -P -m appliance api GET /openapi.yaml; echo $? > code"
        done = subprocess.run(
            ["bash", "-c", f"({command}) | head -n 1"], env=environment(home), cwd=home, capture_output=True, text=True
        )
        assert done.stdout.startswith("openapi") and done.stderr == "" and (home / "code").read_text() == "141\n"


HOSTILE_NAME = "\x1b]0;owned\x07\x9b31mred\u202etxt.exe"


class HostileHandler(http.server.BaseHTTPRequestHandler):
    """Responses of a server that means no good, by path; it notes the requests that it gets."""

    protocol_version = "HTTP/1.1"
    requests: list[tuple[str, str | None]]

    def do_GET(self) -> None:
        """Send the response of the path."""
        self.requests.append((self.path, self.headers.get("authorization")))
        name = self.path.partition("?")[0].rpartition("/")[2]
        body, status, headers = json.dumps([{"name": HOSTILE_NAME}], ensure_ascii=False).encode(), 200, {}
        if name == "campaigns":
            row = {"id": HOSTILE_NAME, "phase": HOSTILE_NAME, "name": HOSTILE_NAME, "channel": "x\ny"}
            row |= {"audience_count": 1, "sent_count": 1, "created_at": "x"}
            body = json.dumps([row]).encode()
        elif name == "moved":
            status, headers = 307, {"Location": f"http://127.0.0.1:{self.server.server_address[1]}/stolen"}
        elif name == "refused":
            status, body = 422, json.dumps({"message": HOSTILE_NAME, "validation_errors": [HOSTILE_NAME]}).encode()
        elif name == "page":
            body, headers = b"<html>\x1b[2J</html>", {"Content-Type": "text/html"}
        elif name == "compressed":
            headers = {"Content-Encoding": "gzip"}
        elif name == "broken":
            body = b'{"a": '
        headers = {"Content-Type": "application/json", **headers}
        length = MAX_RESPONSE_BYTES * 2 if name == "huge" else len(body)
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(length)}.items():
            self.send_header(key, value)
        self.end_headers()
        try:
            for _ in range(MAX_RESPONSE_BYTES * 2 // 1_048_576 if name == "huge" else 0):
                self.wfile.write(b"x" * 1_048_576)
            if name != "huge":
                self.wfile.write(body)
        except OSError:
            self.close_connection = True

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def hostile_server() -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """Yield the address of a hostile server on this machine, and the requests that it gets."""
    requests: list[tuple[str, str | None]] = []
    handler = type("Handler", (HostileHandler,), {"requests": requests})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as hostile:
        threading.Thread(target=hostile.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{hostile.server_address[1]}", requests
        hostile.shutdown()


class TestHostileServer:
    """What a server can do to the user of a command: nothing."""

    def test_redirects_and_large_responses(self, run: Run) -> None:
        """No redirect is followed with the key, and what is read into memory has a limit."""
        with hostile_server() as (url, requests):
            access = {"CAMPANERO_URL": url, "CAMPANERO_KEY": "secret"}
            assert "redirects to" in run("api", "GET", "/moved", "--retries", "0", expect=1, **access).stderr
            assert not [path for path, _ in requests if "stolen" in path]
            assert "larger than 64 MiB" in run("api", "GET", "/huge", "--jq", ".", expect=1, **access).stderr
            assert "larger than 64 MiB" in run("api", "POST", "/huge", expect=1, **access).stderr
            assert "compressed" in run("api", "GET", "/compressed", expect=1, **access).stderr
            for arguments in (
                ("api", "GET", "/broken", "--jq", "."),
                ("campaigns", "show", "7"),
                ("contacts", "import", "-"),
            ):
                run(*arguments, expect=1, **access)
            refusal = run("api", "GET", "/refused", expect=1, **access).stderr
            assert refusal.replace("\n", "").isprintable() and "owned" in refusal

    def test_text_on_a_terminal(self, tmp_path: Path) -> None:
        """No control character of a response reaches a terminal, be it in a table, in JSON or in HTML."""
        with hostile_server() as (url, _):
            env = environment(tmp_path, CAMPANERO_URL=url, CAMPANERO_KEY="secret")
            for arguments in (["campaigns", "list"], ["api", "GET", "/names"], ["api", "GET", "/page"]):
                output, code = run_on_terminal(arguments, env, [])
                assert code == 0 and output.replace("\r\n", "").isprintable(), (arguments, output)
                assert "owned" in output or "html" in output


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("campanero camp", "campaigns"), ("campanero campaigns --profile x se", "send"),
        ("campanero contacts export --format j", "jsonl"), ("campanero api PA", "PATCH"),
        ("campanero messages tail --campaign 7 --fo", "--follow"), ("campanero backup note", "note.txt"),
        ("campanero completion ", "bash zsh fish -h --help"),
    ],
)  # fmt: skip
def test_completion_in_bash(run: Run, tmp_path: Path, line: str, words: str) -> None:
    """The script completes commands, options, choices and files."""
    (tmp_path / "note.txt").touch()
    script = run("completion", "bash").stdout
    last = " ''" if line.endswith(" ") else ""
    script += f"COMP_WORDS=({line}{last}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))\n"
    script += '_campanero; echo "${COMPREPLY[*]}"\n'
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == (f"{words}\n", "")


def test_completion_in_other_shells(run: Run) -> None:
    """The scripts for zsh and fish name all commands; the shells accept them where they are installed."""
    for shell in ("zsh", "fish"):
        script = run("completion", shell).stdout
        assert all(word in script for word in ("campaigns", "preflight", "restore", "jsonl"))
        if shutil.which(shell):
            assert subprocess.run([shell, "-n"], input=script, capture_output=True, text=True).returncode == 0
