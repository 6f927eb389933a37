"""What the guides tell people to type does what they say, in the shell and in Python; what they name exists."""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from appliance.ops import cli
from appliance.settings import config
from tests.kit import guides
from tests.kit.client import Client
from tests.kit.dns import DnsServer
from tests.kit.server import EMAIL, PASSWORD, ROOT, Server, free_port
from tests.rules.contract import errors
from ui.pages import docs

COMMAND = {"sh": ["sh", "-e"], "python": [sys.executable, "-"]}


class Ground(NamedTuple):
    """A server that listens on this machine too, with an account for each language."""

    server: Server
    keys: dict[str, str]


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    """Whoever copies from a guide has an installation, a key, and the right to sign in."""
    local = {"CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1"}
    with DnsServer() as dns, Server(env=dns.env | local).set_up() as running:
        other = running.cli("account", "add", "Other").stdout.strip()
        keys = {"sh": running.new_key("sh"), "python": running.new_key("python", "--account", other)}
        yield Ground(running, keys)


def page_of(server: Server, name: str) -> str:
    """Return a guide as it is served."""
    answer = Client(server.url).request("GET", f"/docs/guides/{name}")
    assert answer.status == 200
    return answer.text


def texts() -> str:
    """Return all guides as they are written."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(Path(ROOT, "ui/guides").glob("*.md")))


@pytest.mark.parametrize("language", COMMAND)
@pytest.mark.parametrize("name", docs.guide_names())
def test_examples_do_what_they_say(ground: Ground, tmp_path: Path, name: str, language: str) -> None:
    """Copied from the page as it is served, every example runs, and returns what stands below it."""
    some = guides.blocks(page_of(ground.server, name))
    script = guides.program(some, language).replace("9123", str(free_port()))
    if not script:
        assert not any(one.mark for one in some), "a guide has its examples in both languages, or in none"
        return
    env = os.environ | {"KEY": ground.keys[language], "EMAIL": EMAIL, "PASSWORD": PASSWORD}
    ran = subprocess.run(
        COMMAND[language], input=script, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-2000:]
    wrote = guides.said(ran.stdout)
    faults = {
        number: found for number, promised in guides.promises(some) if some[number].language == language
        and (found := guides.differences(promised, guides.last_value(wrote[number])))
    }  # fmt: skip
    assert faults == {}


def test_examples_carry_the_address_of_the_installation(ground: Ground) -> None:
    """Nobody has to put in where their installation is, and a request that names another host changes nothing."""
    page = Client(ground.server.url).request("GET", "/docs/guides/flows", headers={"Host": "evil.example"}).text
    assert f"url={ground.server.url}/v1/my" in page
    assert "evil.example" not in page and "127.0.0.1:8080" not in page


def test_paths_that_guides_name_exist(ground: Ground) -> None:
    """Every `GET /v1/...` and its like is an operation of the published document."""
    paths = ground.server.client().contract().document["paths"]
    named = set(re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/v1/[\w/{}.]+)", texts()))
    assert len(named) > 10
    assert {one for one in named if one[0].lower() not in paths.get(one[1], {})} == set()


def test_settings_that_guides_name_exist(tmp_path: Path) -> None:
    """Every block of configuration is read without a fault."""
    found = re.findall(r"```toml\n(.*?)```", texts(), re.DOTALL)
    assert len(found) >= 2
    for name in ("fullchain.pem", "privkey.pem"):
        (tmp_path / name).touch()
    for number, block in enumerate(found):
        file = tmp_path / f"{number}.toml"
        file.write_text(block.replace("/etc/letsencrypt/live/mail.example.com", str(tmp_path)), encoding="utf-8")
        assert config.load({}, file=file).warnings == []


def test_commands_that_guides_name_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """Every `campanero ...` is a command with these options."""
    named = set(re.findall(r"`campanero ([^`]+)`", texts()))
    assert {"check", "doctor --seed", "version --json"} <= named
    for words in named:
        with contextlib.suppress(SystemExit):
            cli._build_parser().parse_args([*words.split(), "--help"])
        assert capsys.readouterr().out.startswith("usage: campanero"), words


def test_every_refusal_is_explained() -> None:
    """Each code has its heading, to which the hints of errors lead, and each reason its line; nothing else does."""
    written = Path(ROOT, "ui/guides/errors-and-limits.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^### (\w+)$", written, re.MULTILINE)) == {code for _, _, code in errors.CODES}
    table = written.partition("## Reasons of a 422")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == {"reason"} | set(errors.REASONS)
