"""Settings changed on pages, which override defaults but not options, environment or configuration file.

Only settings of email and SMS sending and of copies on another machine can be changed on pages. A setting fixed by an
option, the environment or the file is shown as locked. Secrets are encrypted with the installation's key, so a stolen
database does not reveal them.
"""

import base64
import logging
from collections.abc import Mapping
from typing import Any

import msgspec

from appliance.core import clock, crypto
from appliance.core.errors import ConfigError, Invalid
from appliance.core.i18n import gettext
from appliance.sending.sms.providers import PROVIDERS
from appliance.sending.transports import TRANSPORTS
from appliance.settings import config
from appliance.settings.config import LoadedConfig
from appliance.storage.database import run, scalar
from appliance.storage.models import Setting
from appliance.storage.transactions import require_write_transaction

log = logging.getLogger("campanero")
_PURPOSE = "settings of pages"
# The settings that pages can change. A running service applies them without a restart, by recreating its senders
# if they are about sending.
_PAGE_SETTINGS = (
    "email.transport", "email.transports", "email.routes", "email.relay.host", "email.relay.port",
    "email.relay.username", "email.relay.password",
    "email.relay.tls", "email.relay.login", "email.google.refresh_token", "email.microsoft.refresh_token",
    "email.allow_unverified_domains", "email.connections", "email.rate_per_second",
    "email.rate_per_hour",
    *(f"email.{transport.name}.{field.name}" for transport in TRANSPORTS.values() for field in transport.fields),
    "sms.transport", "sms.rate_per_second", "sms.twilio.base_url", "sms.twilio.account_sid", "sms.twilio.auth_token",
    "sms.twilio.from", "sms.http.url", "sms.http.secret",
    "copies.store", "copies.every", "copies.keep_days", "copies.keep_weeks",
    "copies.keep_months", "copies.megabits_per_second", "copies.prove_every",
    "copies.s3.endpoint", "copies.s3.region", "copies.s3.access_key_id", "copies.s3.secret_access_key",
    "copies.sftp.private_key", "copies.sftp.password", "copies.sftp.host_key",
)  # fmt: skip
# The settings that a secret is bound to, by secret. If one of them changes, the secret must be entered again. Otherwise
# a user who changes the server could have the stored secret sent to another server.
_BOUND = {
    "email.relay.password": ("email.relay.host", "email.relay.port", "email.relay.tls", "email.relay.username"),
    "sms.twilio.auth_token": ("sms.twilio.base_url", "sms.twilio.account_sid"),
    "sms.http.secret": ("sms.http.url",),
    "copies.s3.secret_access_key": ("copies.store", "copies.s3.endpoint", "copies.s3.access_key_id"),
    "copies.sftp.private_key": ("copies.store", "copies.sftp.host_key"),
    "copies.sftp.password": ("copies.store", "copies.sftp.host_key"),
}


def load() -> dict[str, Any]:
    """Return the stored settings by dotted name, without settings unknown to this version.

    A secret that cannot be decrypted with the installation's key is left out, and an error is logged.
    """
    settings = dict(config.list_settings())
    values = {row.name: row.value for row in Setting.select() if row.name in settings}
    decrypted = {
        name: _decrypt(name, value, config.is_structured(settings[name])) if config.is_secret(settings[name]) else value
        for name, value in values.items()
    }
    return {name: value for name, value in decrypted.items() if value is not None}


def can_set(name: str) -> bool:
    """Return whether a setting is in `_PAGE_SETTINGS` and not fixed by an option, the environment or the file."""
    return name in _PAGE_SETTINGS and config.get_loaded().sources[name] in ("page", "default")


def save(values: Mapping[str, Any]) -> LoadedConfig:
    """Store settings by dotted name and return the new configuration, which the caller applies after the commit.

    A value of None deletes the stored setting. Raises Invalid with every error by dotted name; nothing is stored then.
    """
    require_write_transaction()
    checked = _validate(_without_unused_password(values))
    loaded = build_config(checked)
    if missing := PROVIDERS[loaded.config.sms.transport].find_setting_faults(loaded.config.sms):
        raise Invalid({name: [words] for name, words in missing})
    settings = dict(config.list_settings())
    for name, value in checked.items():
        if value is None:
            Setting.delete().where(Setting.name == name).execute()
            continue
        stored = _encrypt(name, value) if config.is_secret(settings[name]) else value
        Setting.insert(name=name, value=stored, updated_at=clock.now_ms()).on_conflict_replace().execute()
    return loaded


def build_config(values: Mapping[str, Any]) -> LoadedConfig:
    """Return the configuration that would result from storing `values`, without storing them.

    A value of None means that the stored setting is deleted. Raises Invalid with every error by dotted name, also if
    the server of a secret changes and the secret is not given again. The error then belongs to the secret, or, if a
    page cannot set it, to the first changed setting of the server.
    """
    values = _without_unused_password(values)
    after = {name: value for name, value in {**load(), **values}.items() if value is not None}
    try:
        loaded = config.get_loaded().with_pages(after)
    except ConfigError as error:
        raise _to_invalid(error) from None
    before, errors = config.get_loaded().config, {}
    for secret, server in _BOUND.items():
        moved = [name for name in server if config.get_value(loaded.config, name) != config.get_value(before, name)]
        is_kept = config.get_value(before, secret) and config.get_value(loaded.config, secret)
        if moved and is_kept and not values.get(secret):
            errors[secret if can_set(secret) else moved[0]] = [gettext("was entered for another server")]
    if errors:
        raise Invalid(errors)
    return loaded


def _without_unused_password(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values that also delete the password of the relay, if its login is to be one with OAuth 2.0.

    A password that is kept for later could be sent to the server of another login.
    """
    login = values["email.relay.login"] if "email.relay.login" in values else config.current().email.relay.login
    is_unused = login not in (None, "password") and can_set("email.relay.password")
    return {**values, "email.relay.password": None} if is_unused else dict(values)


def _validate(values: Mapping[str, Any]) -> dict[str, Any]:
    settings, errors, checked = dict(config.list_settings()), {}, {}
    for name, value in values.items():
        if not can_set(name):
            errors[name] = [gettext("cannot be set on a page")]
            continue
        try:
            checked[name] = (
                None
                if value is None
                else msgspec.to_builtins(msgspec.convert(value, settings[name].type, strict=False))
            )
        except msgspec.ValidationError as error:
            errors[name] = [str(error)]
    if errors:
        raise Invalid(errors)
    return checked


def _to_invalid(error: ConfigError) -> Invalid:
    """Return a configuration error as Invalid, with each message under the setting that it names, else under `base`."""
    faults: dict[str, list[str]] = {}
    settings = dict(config.list_settings())
    for fault in str(error).split("; "):
        name, _, message = fault.partition(":")
        setting = name.partition(" ")[0]
        faults.setdefault(setting if setting in settings else "base", []).append(message.strip() or fault)
    return Invalid(faults)


def _encrypt(name: str, value: Any) -> dict[str, str]:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    sealed = crypto.seal(crypto.derive_key(_PURPOSE), name, text.encode())
    return {"sealed": base64.b64encode(sealed).decode()}


def _decrypt(name: str, value: Any, is_json: bool) -> Any:
    sealed = base64.b64decode(value["sealed"]) if isinstance(value, dict) else b""
    plain = crypto.unseal(crypto.derive_key(_PURPOSE), name, sealed)
    if plain is None:
        log.error("settings: secret cannot be decrypted with this installation's key, set it again name=%s", name)
        return None
    return msgspec.json.decode(plain) if is_json else plain.decode()


def write_heartbeat() -> None:
    """Write the current time into the row `heartbeat`, to test that the database can be written.

    `get_heartbeat` returns it after a restart. Raises the error of the storage if writing fails.
    """
    require_write_transaction()
    run(
        "INSERT INTO setting (name, value, updated_at) VALUES ('heartbeat', '\"\"', ?1) "
        "ON CONFLICT (name) DO UPDATE SET updated_at = ?1",
        (clock.now_ms(),),
    )


def get_heartbeat() -> int | None:
    """Return the last time at which `write_heartbeat` was called, in Unix milliseconds, or None."""
    heartbeat: int | None = scalar("SELECT updated_at FROM setting WHERE name = 'heartbeat'")
    return heartbeat
