"""Keep the account, the order in progress and the certificate of an ACME CA, and give listeners their certificate.

All of it is one sealed file in the data directory, which backups contain. The certificate and its key are also a file
in the clear (mode 0600), because OpenSSL reads only files; it is not backed up, and rewritten at each start.
"""

import fcntl
import logging
import os
import secrets
from collections.abc import Collection
from datetime import timedelta
from pathlib import Path

import msgspec

from appliance.certificates import challenges
from appliance.core import crypto, data_dir
from appliance.settings import config
from appliance.settings.schema import Config

log = logging.getLogger("campanero.certificates")
FOLDER = "certificates"
_STATE_FILE, _PEM_FILE = "acme.sealed", "certificate.pem"
_HOST_PREFIX = "host-"
_PURPOSE = "acme"
_PLACEHOLDER_LIFETIME = timedelta(days=365)
_MAX_STATE_BYTES = 1_048_576


class PendingOrder(msgspec.Struct):
    """An order at the CA that has no certificate yet, with the key of the certificate (PEM)."""

    url: str
    names: list[str]
    key: str


class State(msgspec.Struct):
    """The stored state of the account, the order and the certificate.

    Times are in milliseconds, keys and certificates in PEM. `directory` is the CA of the account and the order,
    `issued_by` that of the certificate. `scope` is the names and the CA of the last attempt: for another scope, waits
    after failures do not count. `renewal_at` is the time that the CA suggests for the renewal, 0 if none, and `ask_at`
    the time of the next request for a suggestion.
    """

    directory: str = ""
    account_key: str = ""
    account_url: str = ""
    order: PendingOrder | None = None
    certificate: str = ""
    key: str = ""
    issued_by: str = ""
    issued_at: int = 0
    renewal_at: int = 0
    ask_at: int = 0
    scope: str = ""
    next_attempt_at: int = 0
    failure_count: int = 0
    error: str = ""
    notified_expiry: int = 0


def load(directory: Path, host: str = "") -> State:
    """Return the stored state, or an empty one if there is none or the key of the installation does not open it.

    `host` is the public host of an account, which has a certificate of its own, so that no certificate shows the
    visitors of one account the names of others. Without it, the state is that of the installation's certificate.
    """
    path = _state_path(directory, host)
    try:
        with path.open("rb") as file:
            sealed = file.read(_MAX_STATE_BYTES)
    except FileNotFoundError:
        return State()
    plain = crypto.unseal(crypto.derive_key(_PURPOSE), _PURPOSE, sealed)
    try:
        return msgspec.json.decode(plain or b"", type=State)
    except msgspec.MsgspecError:
        log.error("certificates: %s cannot be read with this secret.key; a new account is created", path)
        return State()


def save(directory: Path, state: State, host: str = "") -> None:
    """Store the state durably, so that a kill leaves the previous or the new one. Raises OSError.

    `host` is as in `load`.
    """
    path = _state_path(directory, host)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    _replace_file(path, crypto.seal(crypto.derive_key(_PURPOSE), _PURPOSE, msgspec.json.encode(state)))


def _state_path(directory: Path, host: str) -> Path:
    return directory / FOLDER / (f"{_HOST_PREFIX}{host}.sealed" if host else _STATE_FILE)


def remove_other_hosts(directory: Path, hosts: Collection[str]) -> None:
    """Delete the states of hosts that no account has any more."""
    for path in (directory / FOLDER).glob(f"{_HOST_PREFIX}*.sealed"):
        if path.name.removeprefix(_HOST_PREFIX).removesuffix(".sealed") not in hosts:
            path.unlink(missing_ok=True)


def pem_path(directory: Path) -> Path:
    """Return the file with the certificate and key that listeners with the setting `auto` use."""
    return directory / _PEM_FILE


def write_pem(directory: Path, state: State) -> None:
    """Write the certificate and its key for the listeners, which read the file again within seconds."""
    _replace_file(pem_path(directory), (state.certificate.rstrip() + "\n" + state.key).encode())


def prepare(settings: Config) -> None:
    """Write the file for the listeners before they start: the certificate, or a self-signed one until there is one.

    An expired certificate is replaced as well, because a web listener rejects it. Raises OSError.
    """
    if not uses_auto(settings):
        return
    directory = Path(settings.data_dir)
    state, path = load(directory), pem_path(directory)
    if state.certificate and not is_expired(state):
        write_pem(directory, state)
        return
    pem = challenges.build_self_signed(wanted_names(settings), [], _PLACEHOLDER_LIFETIME)
    _replace_file(path, pem)
    log.warning("certificates: there is no certificate yet, serving a self-signed one until the CA issues it")


def is_expired(state: State) -> bool:
    """Return whether the certificate is no longer valid, or cannot be read."""
    facts = read_facts(state)
    return facts is None or bool(facts.validity_error)


def read_facts(state: State) -> crypto.CertificateInfo | None:
    """Return the validity and names of the stored certificate, or None if there is none."""
    if not state.certificate:
        return None
    return crypto.parse_certificate("tls.certificate", "the certificate", state.certificate.encode())


def auto_settings(settings: Config) -> list[str]:
    """Return the names of the certificate settings that are `auto`."""
    return [name for name in config.list_certificate_settings() if config.get_value(settings, name) == config.AUTO]


def uses_auto(settings: Config) -> bool:
    """Return whether a listener gets its certificate from the CA."""
    return bool(auto_settings(settings))


def wanted_names(settings: Config) -> list[str]:
    """Return the host names of the certificate: that of `base_url`, and those of mail if a mail listener uses it."""
    names = [config.base_host(settings)]
    if any(name != "tls.certificate" for name in auto_settings(settings)):
        names += [name.lower() for name in (settings.email.direct.helo, settings.submission.host) if name]
    return list(dict.fromkeys(names))


def load_served(settings: Config, setting: str, is_web: bool = False) -> crypto.ServedCertificate | None:
    """Return the certificate that a listener serves, or None if its setting is empty.

    `setting` is the name of the setting with the certificate, such as `inbound.tls_certificate`; its key is in the
    setting with `key` in place of `certificate`. Every listener uses this function, and gives the result to the
    `CertificateWatcher` of the server, so that a new certificate is served without a restart. Raises OSError.
    """
    certificate = config.get_value(settings, setting)
    key = config.get_value(settings, setting.removesuffix("certificate") + "key")
    if certificate == config.AUTO:
        certificate, key = str(pem_path(Path(settings.data_dir))), ""
    return crypto.ServedCertificate(setting, certificate, key, is_web) if certificate else None


def _replace_file(path: Path, content: bytes) -> None:
    """Replace a file (mode 0600) at once, after its content is on disk."""
    data_dir.remove_unfinished_files(path.parent)
    part = path.with_name(f"{data_dir.PART_PREFIX}{os.getpid()}-{secrets.token_hex(4)}{data_dir.PART_SUFFIX}")
    descriptor = os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # `remove_unfinished_files` leaves a locked file
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    data_dir.sync_to_disk(path.parent)
