"""The parts of the commands for scripts that need no service: fields, paths, profiles, and what a terminal gets."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from appliance.remote import api_command, cli, connection, output, profiles
from appliance.remote.errors import CommandError, UsageError
from tests.clients.scripted_server import Reply, ScriptedServer
from tests.kit.server import ROOT


def fields(*texts: str) -> dict[str, Any]:
    """Return the object of these fields, all with `-F`."""
    options = type("Options", (), {"fields": [(True, text) for text in texts]})
    return api_command.build_fields(api_command.parse_pairs(options))  # type: ignore[arg-type]  # stands for a namespace


@pytest.mark.parametrize(
    ("texts", "value"),
    [
        (("a=1", "b=true", "c=null", "d=1.5", "e=", "f=a=b"),
         {"a": 1, "b": True, "c": None, "d": "1.5", "e": "", "f": "a=b"}),
        (("a[b][c]=x", "a[b][d]=-7"), {"a": {"b": {"c": "x", "d": -7}}}),
        (("ids[]=1", "ids[]=2"), {"ids": [1, 2]}),
        (("ids[]",), {"ids": []}),
        (("steps[][a]=1", "steps[][b]=2", "steps[][a]=3"), {"steps": [{"a": 1, "b": 2}, {"a": 3}]}),
        (("rows[][]=1", "rows[][]=2"), {"rows": [[1], [2]]}),
    ],
)  # fmt: skip
def test_fields_make_objects_and_lists(texts: tuple[str, ...], value: dict[str, Any]) -> None:
    """Keys with brackets make objects and lists, and `-F` converts values, as `gh api` does."""
    assert fields(*texts) == value


@pytest.mark.parametrize(
    "texts", [("a",), ("=1",), ("a=1", "a=2"), ("a=1", "a[b]=2"), ("a[]=1", "a[b]=2"), ("a[=1",), ("a]=1",), ("[]=1",),
              ("a" + "[b]" * 21 + "=1",), ("a=@/nowhere",)],
)  # fmt: skip
def test_wrong_fields_are_refused(texts: tuple[str, ...]) -> None:
    """A key that is given twice, is used in two ways or is malformed is an error of the command line."""
    with pytest.raises(UsageError):
        fields(*texts)


def test_paths() -> None:
    """Paths are below the API unless they are whole; nothing leads to another host or out of the API."""
    for path in ("/account", "account"):
        assert connection.locate(path) == "/v1/my/account"
    for path in ("/v1/my/account", "/healthz", "/openapi.yaml", "/v1/login"):
        assert connection.locate(path) == path
    for path in (
        "//evil.example/x",
        "https://evil.example/x",
        "/a/../../x",
        "/a/%2E%2e/x",
        "/a\\b",
        "/a b",
        "/a#b",
        "/a\n",
    ):
        with pytest.raises(UsageError):
            connection.locate(path)


@pytest.mark.parametrize(
    "text", ["\x1b[2J", "\x9b31m", "\x07", "\r", "\u202eevil", "\u2066", "\x00", "\x7f", "\udc80", "\u200bx"]
)
def test_text_of_strangers_is_cleaned(text: str) -> None:
    """Control characters and characters that hide or reorder text do not reach a terminal; letters and emoji do."""
    for shown in (output.clean(f"a{text}b"), output.clean_line(f"a{text}b"), output.format_cell(f"a{text}b")):
        assert shown.isprintable() and shown[0] == "a" and shown[-1] == "b"
    dumped = output._dump_json({"name": f"a{text}b"}, is_terminal=True)
    assert dumped.replace("\n", "").isprintable() and json.loads(dumped) == {"name": f"a{text}b"}
    assert output.clean("Zoë 👩‍🚀 日本") == "Zoë 👩‍🚀 日本"


@pytest.mark.parametrize(
    "url",
    ["mail.example.com", "ftp://x", "https://", "https://a:b@c", "https://x?y", "https://x#y", "https://x:99999", ""],
)
def test_wrong_addresses_are_refused(url: str) -> None:
    """The address of a service is an http or https URL without user name, query and fragment."""
    with pytest.raises(UsageError):
        profiles.parse_url(url)


@pytest.mark.parametrize("arguments", [["--paginate"], [], ["--jq", "."]])
def test_json_that_is_nested_too_deeply_is_an_error_in_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also JSON that can be read, but not written with an indent."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for depth in (900, 200_000):
        with ScriptedServer(Reply(200, b"[" * depth + b"]" * depth, {"Content-Type": "application/json"})) as server:
            monkeypatch.setenv("CAMPANERO_URL", server.url)
            monkeypatch.setenv("CAMPANERO_KEY", "key")
            cli.run(["api", "GET", "/contacts", *arguments])
        assert len(capsys.readouterr().err.splitlines()) <= 1


def test_addresses(capsys: pytest.CaptureFixture[str]) -> None:
    """The path of the API may be part of the address; plain http is warned of, except on this machine."""
    assert profiles.parse_url("https://x.example/v1/my/") == "https://x.example"
    for url in ("http://127.0.0.1:8080", "http://[::1]:80", "http://localhost", "https://mail.example.com"):
        profiles.warn_without_encryption(url)
    assert capsys.readouterr().err == ""
    profiles.warn_without_encryption("http://mail.example.com")
    assert "is not encrypted" in capsys.readouterr().err


def test_profiles_are_private(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file has the mode 0600 whatever was there before; others' access is warned of; a damaged file is an error."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in (profiles.URL_VARIABLE, profiles.KEY_VARIABLE, profiles.PROFILE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(CommandError, match="not signed in"):
        profiles.choose(None)
    with profiles.change() as stored:
        stored["default"] = profiles.Profile("https://a.example", "key-a", "A")
        stored["other"] = profiles.Profile("https://b.example", "key-b", "B")
    path = profiles.file_path()
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert [file.name for file in path.parent.iterdir()] == ["profiles.json"]
    assert profiles.choose(None).key == "key-a" and profiles.choose("other").url == "https://b.example"
    assert "key-a" not in repr(profiles.choose(None))
    path.chmod(0o644)
    profiles.choose(None)
    assert "other users can read the keys" in capsys.readouterr().err
    with profiles.change() as stored:
        del stored["other"]
    assert path.stat().st_mode & 0o777 == 0o600
    monkeypatch.setenv(profiles.KEY_VARIABLE, "key-c")
    with pytest.raises(CommandError, match="set both"):
        profiles.choose(None)
    assert profiles.choose("default").key == "key-a"
    monkeypatch.setenv(profiles.URL_VARIABLE, "https://c.example")
    assert profiles.choose(None) == profiles.Profile("https://c.example", "key-c")
    for damaged in ("", "[]", '{"profiles": [1]}', '{"profiles": {"default": {"url": "x"}}}'):
        path.write_text(damaged)
        with pytest.raises(CommandError, match="damaged"):
            profiles.load()


def test_a_relative_home_of_configuration_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A relative XDG_CONFIG_HOME is ignored, as its specification demands."""
    monkeypatch.setenv("XDG_CONFIG_HOME", "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert profiles.file_path() == tmp_path / ".config" / "campanero" / "profiles.json"


def test_commands_import_nothing_of_the_service(tmp_path: Path) -> None:
    """A command loads no module of the service, and no HTTP client before it is needed: both would double its start."""
    program = (
        "import sys; sys.argv = ['campanero', *sys.argv[1:]]\n"
        "from appliance.__main__ import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(*sorted(sys.modules))"
    )
    for arguments, is_client_loaded in ((["profiles"], False), (["api", "GET", "/account", "--retries", "0"], True)):
        env = {
            "PYTHONPATH": str(ROOT),
            "HOME": str(tmp_path),
            "CAMPANERO_KEY": "x",
            "CAMPANERO_URL": "http://127.0.0.1:1",
        }
        done = subprocess.run(
            [sys.executable, "-P", "-c", program, *arguments], env=env, capture_output=True, text=True, timeout=60
        )
        modules = set(done.stdout.split())
        loaded = {name for name in modules if name.startswith("appliance.") and not name.startswith("appliance.remote")}
        assert loaded == {"appliance.__main__"}, done.stderr
        assert not modules & {"sanic", "peewee", "apsw", "msgspec", "jq", "babel", "cryptography", "jinja2"}
        assert ("httpx" in modules) is is_client_loaded
