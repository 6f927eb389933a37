"""The settings: one declaration, five layers, and clear words for what is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from appliance.settings import config
from appliance.settings.config import ConfigError
from tests.kit.server import ROOT
from tests.rules.contract.settings import OURS
from tests.rules.contract.settings import SETTINGS as FLAT


def defaults() -> dict[str, Any]:
    """Return every declared setting with its default."""
    here = config.load({}, {}).config
    return {name: config.get_value(here, name) for name, _ in config.list_settings()}


def campanero(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with these variables and none of the caller's."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CAMPANERO_")}
    return subprocess.run(
        [sys.executable, "-m", "appliance", *arguments], cwd=ROOT, env={**clean, **environment},
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def fault(**layers: Any) -> str:
    """Return the words with which a configuration is refused."""
    with pytest.raises(ConfigError) as caught:
        config.load(layers.get("options"), layers.get("environment", {}), layers.get("file"), layers.get("page"))
    return str(caught.value)


@pytest.mark.parametrize("name", FLAT)
def test_what_was_agreed_is_declared(name: str) -> None:
    """Every key of the operating contract exists with its default."""
    assert name in defaults()
    assert defaults()[name] == FLAT[name] and type(defaults()[name]) in (type(FLAT[name]), float)


def test_what_is_ours_is_named() -> None:
    """No setting is declared but the agreed ones and those that are listed as ours."""
    assert set(defaults()) == set(FLAT) | OURS and not set(FLAT) & OURS


def test_the_example_is_the_declaration() -> None:
    """The file people copy is exactly what the declaration writes, and loading it changes nothing."""
    text = (ROOT / "config.example.toml").read_text()
    assert text == config.write_example()
    assert config.load({}, {}, ROOT / "config.example.toml").config == config.load({}, {}).config


@pytest.mark.parametrize("name", [name for name, _ in config.list_settings()])
def test_every_setting_has_help(name: str) -> None:
    """Every setting says in one line what it is."""
    words = config.help_text(dict(config.list_settings())[name])
    assert 5 < len(words) < 120 and "\n" not in words


def test_the_first_layer_wins(tmp_path: Path) -> None:
    """Option, environment, file, page, default: each counts where the ones before it are silent."""
    path = tmp_path / "any.toml"
    path.write_text('[log]\nlevel = "warning"\n')
    layers: dict[str, Any] = {
        "options": {"log.level": "debug"},
        "environment": {"CAMPANERO_LOG__LEVEL": "error"},
        "file": path,
        "page": {"log.level": "info"},
    }
    expected = [
        ("debug", "option"),
        ("error", "environment"),
        ("warning", "file"),
        ("info", "page"),
        ("info", "default"),
    ]
    silent: dict[str, Any] = {"options": {}, "environment": {}, "file": None, "page": {}}
    for place, want in enumerate(expected):
        given = {name: silent[name] if index < place else value for index, (name, value) in enumerate(layers.items())}
        loaded = config.load(**given)
        assert (loaded.config.log.level, loaded.sources["log.level"]) == want
    assert config.load(page={"email.connections": 9}, environment={}).config.email.connections == 9


def test_layers_join_setting_by_setting(tmp_path: Path) -> None:
    """One section may get each of its settings from another layer."""
    path = tmp_path / "any.toml"
    path.write_text('[email.relay]\nhost = "file.example"\nport = 26\ntls = "none"\n')
    environment = {"CAMPANERO_EMAIL__RELAY__HOST": "environment.example"}
    relay = config.load({}, environment, path, {"email.relay.username": "page"}).config.email.relay
    assert (relay.host, relay.port, relay.tls, relay.username) == ("environment.example", 26, "none", "page")


def test_the_file_of_the_data_directory_is_read(tmp_path: Path) -> None:
    """Without a named file, `campanero.toml` in the data directory counts; a named one must be there."""
    (tmp_path / "campanero.toml").write_text("[email]\nconnections = 7\n")
    for options, environment in (({"data_dir": str(tmp_path)}, {}), ({}, {"CAMPANERO_DATA_DIR": str(tmp_path)})):
        assert config.load(options, environment).config.email.connections == 7
    assert "no such file" in fault(file=tmp_path / "missing.toml")


def test_the_environment_reads_text(tmp_path: Path) -> None:
    """Variables hold numbers, booleans and comma lists as text."""
    environment = {
        "CAMPANERO_EMAIL__CONNECTIONS": "8",
        "CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "true",
        "CAMPANERO_EMAIL__RETRY_AFTER": "1, 2,3.5",
        "CAMPANERO_NETWORK__TRUSTED_PROXIES": "10.0.0.1,10.0.0.2",
        "CAMPANERO_SMS__TWILIO__FROM": "+14155550123",
    }
    here = config.load({}, environment).config
    assert (here.email.connections, here.email.allow_unverified_domains) == (8, True)
    assert here.email.retry_after == [1, 2, 3.5] and here.network.trusted_proxies == ["10.0.0.1", "10.0.0.2"]
    assert here.sms.twilio.from_ == "+14155550123"


def test_an_unknown_key_of_the_file_is_refused(tmp_path: Path) -> None:
    """A key that nobody declared stops the start, and every such key is named."""
    path = tmp_path / "any.toml"
    path.write_text('lisen = "x"\n[email]\nconections = 4\n[mail]\nx = 1\n')
    words = fault(file=path)
    assert all(name in words for name in ("lisen", "email.conections", "mail.x"))
    done = campanero("check", "--config", str(path))
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1 and "lisen" in done.stderr


def test_an_unknown_variable_is_a_warning() -> None:
    """A variable with our prefix that nobody declared is told and ignored."""
    loaded = config.load({}, {"CAMPANERO_EMAIL__CONECTIONS": "4", "OTHER": "x", "CAMPANERO_LOG__LEVEL": "error"})
    assert len(loaded.warnings) == 1 and "CAMPANERO_EMAIL__CONECTIONS" in loaded.warnings[0]
    assert loaded.config.log.level == "error"
    done = campanero("check", CAMPANERO_NONSENSE="1")
    assert done.returncode == 0 and "CAMPANERO_NONSENSE" in done.stderr


def test_all_faults_are_told_at_once(tmp_path: Path) -> None:
    """Faults of several layers are one refusal that names each setting and its layer."""
    path = tmp_path / "any.toml"
    path.write_text('[email]\nconnections = 0\n[log]\nlevel = "loud"\n')
    words = fault(file=path, environment={"CAMPANERO_EMAIL__RELAY__PORT": "99999", "CAMPANERO_EMAIL__GIVE_UP": "soon"})
    for name, layer in (("email.connections", "file"), ("log.level", "file"), ("email.relay.port", "environment"),
                        ("email.give_up", "environment")):  # fmt: skip
        assert f"{name} ({layer})" in words


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"listen": "8080"}, "listen"),
        ({"listen": "127.0.0.1:99999"}, "listen"),
        ({"base_url": "news.example.org"}, "base_url"),
        ({"base_url": "ftp://news.example.org"}, "base_url"),
        ({"base_url": "https://news.example.org/?x=1"}, "base_url"),
        ({"tls.key": "/dev/null"}, "tls.certificate: needed when tls.key is set"),
        ({"tls.certificate": "/no/such/file"}, "tls.certificate: no file '/no/such/file'"),
        ({"email.transport": "relay"}, "email.relay.host"),
        ({"email.transport": "pigeon"}, "email.transport"),
        ({"sms.countries": ["US", "Germany"]}, "sms.countries"),
        ({"sms.country_senders": ["US +15551234567", "DE"]}, "sms.country_senders"),
        ({"sms.country_senders": ["DE Bäckerei"]}, "sms.country_senders"),
        ({"sms.twilio.from": "A name that is too long"}, "sms.twilio.from"),
        ({"sms.twilio.from": "12"}, "sms.twilio.from"),
        ({"sms.stop_words": ["ALTO", "!"]}, "sms.stop_words: '!'"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], name: str) -> None:
    """A configuration that could not work is refused under the name of the setting to change."""
    assert name in fault(options=options)


@pytest.mark.parametrize("sender", ["+14155550123", "72345", "My Shop 24", "a", "MG" + "0" * 32, ""])
def test_a_sender_of_sms_may_be_of_any_kind(sender: str) -> None:
    """A number, a short code, a name, a messaging service, or none."""
    assert config.load({"sms.twilio.from": sender}, {}).config.sms.twilio.from_ == sender


def test_a_way_out_for_sms_is_refused_until_it_is_whole(tmp_path: Path) -> None:
    """A provider that lacks something stops every command that would use it, in one line that names all of it."""
    lacking = {"CAMPANERO_SMS__TRANSPORT": "twilio"}
    for words in (("check",), ("key", "create", "x", "--data", str(tmp_path / "data"))):
        done = campanero(*words, **lacking)
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert "sms.twilio.account_sid" in done.stderr and "sms.twilio.auth_token" in done.stderr
    whole = {"CAMPANERO_SMS__HTTP__URL": "https://sms.example.org/send?to=us", "CAMPANERO_SMS__HTTP__SECRET": "hush"}
    done = campanero("check", CAMPANERO_SMS__TRANSPORT="http", **whole)
    assert done.returncode == 0 and "hush" not in done.stdout


def test_an_address_without_encryption_beside_a_certificate_is_warned_about(tmp_path: Path) -> None:
    """With a certificate links are https by themselves; an address that says otherwise leads nowhere."""
    certificate = tmp_path / "cert.pem"
    certificate.touch()
    options = {"tls.certificate": str(certificate)}
    plain = config.load(options | {"base_url": "http://mail.example.com"}, {})
    assert [words.partition(" ")[0] for words in plain.warnings] == ["base_url:"]
    usual = config.load(options, {})
    assert usual.warnings == [] and config.base_url(usual.config) == "https://127.0.0.1:8080"


def test_secrets_are_masked() -> None:
    """`check` shows every setting with its layer, and of secrets only whether they are set."""
    secrets = [name for name, info in config.list_settings() if config.is_secret(info)]
    assert set(secrets) == {
        "email.relay.password", "email.feedback_secret", "email.hooks.mailgun", "email.hooks.postmark",
        "sms.twilio.auth_token", "sms.http.secret"
    }  # fmt: skip
    variables = {f"CAMPANERO_{name.upper().replace('.', '__')}": f"hush-{place}" for place, name in enumerate(secrets)}
    done = campanero("check", **variables)
    assert done.returncode == 0 and "hush" not in done.stdout + done.stderr
    lines = dict(line.split(" = ", 1) for line in done.stdout.splitlines())
    assert set(lines) == set(defaults())
    assert all(lines[name] == "***  # environment" for name in secrets)
    assert (
        lines["email.connections"] == "4  # default" and json.loads(lines["listen"].split("  #")[0]) == FLAT["listen"]
    )
    assert 'email.relay.password = ""' in campanero("check").stdout


@pytest.mark.parametrize(
    ("base_url", "listen", "allowed"),
    [
        ("", "127.0.0.1:8080", True),
        ("", "[::1]:8080", True),
        ("http://localhost:9000", "0.0.0.0:9000", True),
        ("", "0.0.0.0:8080", False),
        ("https://news.example.org", "127.0.0.1:8080", False),
        ("http://127.0.0.1.example.org", "127.0.0.1:8080", False),
    ],
)
def test_the_test_clock_stays_at_home(base_url: str, listen: str, allowed: bool, tmp_path: Path) -> None:
    """What serves rehearsals, clock and stand-ins of servers, is refused unless all our links lead to this machine."""
    options = {"base_url": base_url, "listen": listen}
    environment = {name: str(tmp_path / "file") for name in ("CAMPANERO_TEST_CLOCK", "CAMPANERO_TEST_HOSTS")}
    assert config.load(options, {}).config.listen == listen
    if allowed:
        assert config.load(options, environment).warnings == []
    else:
        said = fault(options=options, environment=environment)
        assert all(name in said for name in environment)


def test_the_test_clock_is_refused_by_every_command(tmp_path: Path) -> None:
    """Off loopback the command line says so in one line and ends with 1, before it makes anything."""
    variables = {"CAMPANERO_TEST_CLOCK": str(tmp_path / "clock"), "CAMPANERO_BASE_URL": "https://news.example.org"}
    done = campanero("key", "create", "x", "--data", str(tmp_path / "data"), **variables)
    assert done.returncode == 1 and "CAMPANERO_TEST_CLOCK" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("text", "number"), [("600s", 600), ("5m", 300), ("72h", 259_200), ("7d", 604_800), ("0s", 0)])
def test_durations_are_seconds(text: str, number: int) -> None:
    """A duration is a whole number and its unit."""
    assert config.parse_seconds(text) == number
    assert config.load({"email.give_up": text}, {}).config.email.give_up == text
