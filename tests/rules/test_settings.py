"""Settings: their declaration, layers, validation and errors."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from appliance.settings import config
from appliance.settings.config import ConfigError
from tests.kit.fork_server import fork_server
from tests.kit.server import ROOT
from tests.rules.contract.settings import OURS
from tests.rules.contract.settings import SETTINGS as FLAT


def defaults() -> dict[str, Any]:
    """Return every declared setting with its default."""
    settings = config.load({}, {}).config
    return {name: config.get_value(settings, name) for name, _ in config.list_settings()}


def run_cli(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with these variables and none of the caller's."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CAMPANERO_")}
    return fork_server().run(arguments, clean | environment, ROOT, "", 60)


def config_error(**layers: Any) -> str:
    """Return the error message of an invalid configuration."""
    with pytest.raises(ConfigError) as caught:
        config.load(layers.get("options"), layers.get("environment", {}), layers.get("file"), layers.get("page"))
    return str(caught.value)


@pytest.mark.parametrize("name", FLAT)
def test_settings_of_the_table_are_declared(name: str) -> None:
    """Every setting of the table exists with its default."""
    assert name in defaults()
    assert defaults()[name] == FLAT[name] and type(defaults()[name]) in (type(FLAT[name]), float)


def test_no_other_settings_are_declared() -> None:
    """Every declared setting is in the table or in the list of further ones."""
    assert set(defaults()) == set(FLAT) | OURS and not set(FLAT) & OURS


def test_the_example_file_is_generated() -> None:
    """`config.example.toml` is what the declaration generates, and loading it changes nothing."""
    text = (ROOT / "config.example.toml").read_text()
    assert text == config.format_example()
    assert config.load({}, {}, ROOT / "config.example.toml").config == config.load({}, {}).config


@pytest.mark.parametrize("name", [name for name, _ in config.list_settings()])
def test_every_setting_has_help(name: str) -> None:
    """The help of every setting is one line."""
    words = config.help_text(dict(config.list_settings())[name])
    assert 5 < len(words) < 120 and "\n" not in words


def test_precedence_of_layers(tmp_path: Path) -> None:
    """Option, environment, file, page, default: the first layer with a value wins."""
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


def test_layers_are_merged_by_setting(tmp_path: Path) -> None:
    """Settings of one section can come from different layers."""
    path = tmp_path / "any.toml"
    path.write_text('[email.relay]\nhost = "file.example"\nport = 26\ntls = "none"\n')
    environment = {"CAMPANERO_EMAIL__RELAY__HOST": "environment.example"}
    relay = config.load({}, environment, path, {"email.relay.username": "page"}).config.email.relay
    assert (relay.host, relay.port, relay.tls, relay.username) == ("environment.example", 26, "none", "page")


def test_the_default_configuration_file(tmp_path: Path) -> None:
    """Without a given file, `campanero.toml` in the data directory is read; a given file must exist."""
    (tmp_path / "campanero.toml").write_text("[email]\nconnections = 7\n")
    for options, environment in (({"data_dir": str(tmp_path)}, {}), ({}, {"CAMPANERO_DATA_DIR": str(tmp_path)})):
        assert config.load(options, environment).config.email.connections == 7
    assert "no such file" in config_error(file=tmp_path / "missing.toml")


def test_environment_variables_are_parsed(tmp_path: Path) -> None:
    """Variables contain numbers, booleans and comma-separated lists as text."""
    environment = {
        "CAMPANERO_EMAIL__CONNECTIONS": "8",
        "CAMPANERO_EMAIL__ALLOW_UNVERIFIED_DOMAINS": "true",
        "CAMPANERO_EMAIL__RETRY_AFTER": "1, 2,3.5",
        "CAMPANERO_NETWORK__TRUSTED_PROXIES": "10.0.0.1,10.0.0.2",
        "CAMPANERO_SMS__TWILIO__FROM": "+14155550123",
    }
    settings = config.load({}, environment).config
    assert (settings.email.connections, settings.email.allow_unverified_domains) == (8, True)
    assert settings.email.retry_after == [1, 2, 3.5] and settings.network.trusted_proxies == ["10.0.0.1", "10.0.0.2"]
    assert settings.sms.twilio.from_ == "+14155550123"


def test_unknown_keys_of_a_file_are_rejected(tmp_path: Path) -> None:
    """Every unknown key of a configuration file is reported, and prevents the start."""
    path = tmp_path / "any.toml"
    path.write_text('lisen = "x"\n[email]\nconections = 4\n[mail]\nx = 1\n')
    words = config_error(file=path)
    assert all(name in words for name in ("lisen", "email.conections", "mail.x"))
    done = run_cli("check", "--config", str(path))
    assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1 and "lisen" in done.stderr


def test_an_unknown_variable_is_a_warning() -> None:
    """An unknown variable with the prefix is reported and ignored."""
    loaded = config.load({}, {"CAMPANERO_EMAIL__CONECTIONS": "4", "OTHER": "x", "CAMPANERO_LOG__LEVEL": "error"})
    assert len(loaded.warnings) == 1 and "CAMPANERO_EMAIL__CONECTIONS" in loaded.warnings[0]
    assert loaded.config.log.level == "error"
    done = run_cli("check", CAMPANERO_NONSENSE="1")
    assert done.returncode == 0 and "CAMPANERO_NONSENSE" in done.stderr


def test_all_configuration_errors_are_reported_at_once(tmp_path: Path) -> None:
    """One error names each invalid setting of all layers with its layer."""
    path = tmp_path / "any.toml"
    path.write_text('[email]\nconnections = 0\n[log]\nlevel = "loud"\n')
    words = config_error(
        file=path, environment={"CAMPANERO_EMAIL__RELAY__PORT": "99999", "CAMPANERO_EMAIL__GIVE_UP": "soon"}
    )
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
        (
            {"tls.certificate": "auto", "base_url": "http://mail.example.com"},
            "base_url: must be https:// and a public host name when tls.certificate is auto",
        ),
        (
            {"inbound.tls_certificate": "auto", "base_url": "https://192.0.2.1"},
            "base_url: must be https:// and a public host name when inbound.tls_certificate is auto",
        ),
        (
            {"tls.certificate": "auto", "tls.key": "/dev/null", "base_url": "https://mail.example.com"},
            "tls.key: must be empty when tls.certificate is auto",
        ),
        (
            {"tls.certificate": "auto", "base_url": "https://mail.example.com", "acme.eab_key_id": "x"},
            "acme.eab_hmac_key: needed with the other setting",
        ),
        (
            {"tls.certificate": "auto", "base_url": "https://mail.example.com", "acme.http_listen": "80"},
            "acme.http_listen: '80' is not HOST:PORT",
        ),
        (
            {"tls.certificate": "auto", "base_url": "https://mail.example.com", "acme.email": "me"},
            "acme.email: 'me' is not an email address",
        ),
        ({"acme.directory": "http://ca.example"}, "acme.directory"),
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
def test_invalid_settings_are_rejected(options: dict[str, Any], name: str) -> None:
    """The error names the setting to change."""
    assert name in config_error(options=options)


@pytest.mark.parametrize("sender", ["+14155550123", "72345", "My Shop 24", "a", "MG" + "0" * 32, ""])
def test_valid_sms_senders(sender: str) -> None:
    """A number, a short code, a name, a messaging service, or none is valid."""
    assert config.load({"sms.twilio.from": sender}, {}).config.sms.twilio.from_ == sender


def test_an_incomplete_sms_provider_is_rejected(tmp_path: Path) -> None:
    """Every command fails with one line that names all missing settings."""
    lacking = {"CAMPANERO_SMS__TRANSPORT": "twilio"}
    for words in (("check",), ("key", "create", "x", "--data", str(tmp_path / "data"))):
        done = run_cli(*words, **lacking)
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert "sms.twilio.account_sid" in done.stderr and "sms.twilio.auth_token" in done.stderr
    whole = {"CAMPANERO_SMS__HTTP__URL": "https://sms.example.org/send?to=us", "CAMPANERO_SMS__HTTP__SECRET": "hush"}
    done = run_cli("check", CAMPANERO_SMS__TRANSPORT="http", **whole)
    assert done.returncode == 0 and "hush" not in done.stdout


def test_http_base_url_with_a_certificate_is_a_warning(tmp_path: Path) -> None:
    """With a certificate the base URL is HTTPS by default, and an HTTP one is a warning."""
    certificate = tmp_path / "cert.pem"
    certificate.touch()
    options = {"tls.certificate": str(certificate)}
    plain = config.load(options | {"base_url": "http://mail.example.com"}, {})
    assert [words.partition(" ")[0] for words in plain.warnings] == ["base_url:"]
    usual = config.load(options, {})
    assert usual.warnings == [] and config.base_url(usual.config) == "https://127.0.0.1:8080"


def test_check_masks_secrets() -> None:
    """`check` shows every setting with its layer, and of secrets only whether they are set."""
    secrets = [name for name, info in config.list_settings() if config.is_secret(info)]
    assert set(secrets) == {
        "email.transports", "email.relay.password", "email.feedback_secret", "email.hooks.mailgun",
        "email.hooks.postmark",
        "email.hooks.brevo", "email.hooks.mailjet", "email.hooks.resend",
        "email.ses.secret_access_key", "email.mailgun.api_key", "email.postmark.server_token",
        "email.sendgrid.api_key", "email.resend.api_key", "email.brevo.api_key", "email.mailjet.secret_key",
        "email.google.client_secret", "email.google.refresh_token", "email.microsoft.client_secret",
        "email.microsoft.refresh_token",
        "sms.twilio.auth_token", "sms.http.secret", "acme.eab_hmac_key",
        "copies.s3.secret_access_key", "copies.sftp.password", "copies.sftp.private_key",
    }  # fmt: skip
    variables = {f"CAMPANERO_{name.upper().replace('.', '__')}": f"hush-{place}" for place, name in enumerate(secrets)}
    transport = {"key": "a", "name": "A", "kind": "relay", "options": {"host": "x", "password": "hush"}}
    variables["CAMPANERO_EMAIL__TRANSPORTS"] = json.dumps([transport])
    done = run_cli("check", **variables)
    assert done.returncode == 0 and "hush" not in done.stdout + done.stderr
    lines = dict(line.split(" = ", 1) for line in done.stdout.splitlines())
    assert set(lines) == set(defaults())
    assert all(lines[name] == "***  # environment" for name in secrets)
    assert (
        lines["email.connections"] == "4  # default" and json.loads(lines["listen"].split("  #")[0]) == FLAT["listen"]
    )
    assert 'email.relay.password = ""' in run_cli("check").stdout


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
def test_test_variables_need_loopback(base_url: str, listen: str, allowed: bool, tmp_path: Path) -> None:
    """Test clock and test hosts are rejected unless all links lead to this machine."""
    options = {"base_url": base_url, "listen": listen}
    environment = {name: str(tmp_path / "file") for name in config.TEST_VARIABLES}
    assert config.load(options, {}).config.listen == listen
    if allowed:
        assert config.load(options, environment).warnings == []
    else:
        result = config_error(options=options, environment=environment)
        assert all(name in result for name in environment)


def test_commands_reject_the_test_clock(tmp_path: Path) -> None:
    """With a public base URL a command fails with one line, before it creates anything."""
    variables = {"CAMPANERO_TEST_CLOCK": str(tmp_path / "clock"), "CAMPANERO_BASE_URL": "https://news.example.org"}
    done = run_cli("key", "create", "x", "--data", str(tmp_path / "data"), **variables)
    assert done.returncode == 1 and "CAMPANERO_TEST_CLOCK" in done.stderr and done.stderr.count("\n") == 1
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(("text", "number"), [("600s", 600), ("5m", 300), ("72h", 259_200), ("7d", 604_800), ("0s", 0)])
def test_parse_durations(text: str, number: int) -> None:
    """A duration is an integer and its unit."""
    assert config.parse_seconds(text) == number
    assert config.load({"email.give_up": text}, {}).config.email.give_up == text
