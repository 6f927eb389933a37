"""The guides are correct: their examples run in the shell and in Python, and what they name exists."""

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
from ui import documentation

COMMAND = {"sh": ["sh", "-e"], "python": [sys.executable, "-"]}


class Ground(NamedTuple):
    """A server that may call this machine, and an API key of one account for each language."""

    server: Server
    keys: dict[str, str]


@pytest.fixture(scope="module")
def ground() -> Iterator[Ground]:
    """An installation with API keys for the examples."""
    local = {"CAMPANERO_NETWORK__ALLOW_PRIVATE_HOSTS": "127.0.0.1"}
    with DnsServer() as dns, Server(env=dns.env | local).set_up() as running:
        other = running.cli("account", "add", "Other").stdout.strip()
        keys = {"sh": running.new_key("sh"), "python": running.new_key("python", "--account", other)}
        yield Ground(running, keys)


def page_of(server: Server, name: str) -> str:
    """Return a guide as it is served."""
    response = Client(server.url).request("GET", f"/docs/guides/{name}")
    assert response.status == 200
    return response.text


def guide_sources() -> str:
    """Return the sources of all guides."""
    return "\n".join(path.read_text(encoding="utf-8") for path in sorted(Path(ROOT, "ui/guides").glob("*.md")))


@pytest.mark.parametrize("language", COMMAND)
@pytest.mark.parametrize("name", documentation.guide_names())
def test_guide_examples_run(ground: Ground, tmp_path: Path, name: str, language: str) -> None:
    """Each example of a served guide runs and returns the response that the guide shows."""
    blocks = guides.blocks(page_of(ground.server, name))
    script = guides.join_blocks(blocks, language).replace("9123", str(free_port()))
    if not script:
        assert not any(block.mark for block in blocks), "a guide has its examples in both languages, or in none"
        return
    env = os.environ | {"KEY": ground.keys[language], "EMAIL": EMAIL, "PASSWORD": PASSWORD}
    result = subprocess.run(
        COMMAND[language], input=script, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=90
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-2000:]
    outputs = guides.split_output(result.stdout)
    differences = {
        number: found_differences for number, shown in guides.expected_results(blocks)
        if blocks[number].language == language
        and (found_differences := guides.differences(shown, guides.last_value(outputs[number])))
    }  # fmt: skip
    assert differences == {}


def test_examples_have_the_base_url(ground: Ground) -> None:
    """Examples use the installation's base URL, whatever host the request names."""
    page = Client(ground.server.url).request("GET", "/docs/guides/flows", headers={"Host": "evil.example"}).text
    assert f"url={ground.server.url}/v1/my" in page
    assert "evil.example" not in page and "127.0.0.1:8080" not in page


def test_paths_in_guides_exist(ground: Ground) -> None:
    """Each API path in the guides is an operation of the OpenAPI document."""
    paths = ground.server.client().contract().document["paths"]
    named = set(re.findall(r"`(GET|POST|PUT|PATCH|DELETE) (/v1/[\w/{}.]+)", guide_sources()))
    assert len(named) > 10
    assert {operation for operation in named if operation[0].lower() not in paths.get(operation[1], {})} == set()


def test_settings_in_guides_exist(tmp_path: Path) -> None:
    """Each configuration example loads without warnings."""
    blocks = re.findall(r"```toml\n(.*?)```", guide_sources(), re.DOTALL)
    assert len(blocks) >= 2
    for name in ("fullchain.pem", "privkey.pem"):
        (tmp_path / name).touch()
    for number, block in enumerate(blocks):
        file = tmp_path / f"{number}.toml"
        file.write_text(block.replace("/etc/letsencrypt/live/mail.example.com", str(tmp_path)), encoding="utf-8")
        assert config.load({}, file=file).warnings == []


def test_commands_in_guides_exist(capsys: pytest.CaptureFixture[str]) -> None:
    """Each `campanero` command in the guides exists with its options."""
    named = set(re.findall(r"`campanero ([^`]+)`", guide_sources()))
    assert {"check", "doctor --seed", "version --json"} <= named
    for command in named:
        with contextlib.suppress(SystemExit):
            cli._build_parser().parse_args([*command.split(), "--help"])
        assert capsys.readouterr().out.startswith("usage: campanero"), command


def test_every_error_code_has_a_heading() -> None:
    """The guide has a heading for each error code and a table row for each reason, and no others."""
    guide = Path(ROOT, "ui/guides/errors-and-limits.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^### (\w+)$", guide, re.MULTILINE)) == {code for _, _, code in errors.CODES}
    table = guide.partition("## Reasons of a 422")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == {"reason"} | set(errors.REASONS)
