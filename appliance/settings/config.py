"""Load the configuration from five layers: command-line option, environment, file, settings page, default.

A setting takes its value from the first layer that has a value.
"""

import json
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any, NamedTuple, get_args, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import FieldInfo, fields

from appliance.core import addresses
from appliance.core.errors import ConfigError
from appliance.settings import copies, transports
from appliance.settings.schema import Config

PREFIX = "CAMPANERO_"
# Environment variables with the prefix that are not settings; other modules read them.
TEST_VARIABLES = ("CAMPANERO_TEST_CLOCK", "CAMPANERO_TEST_HOSTS", "CAMPANERO_TEST_CATALOGUES")
# The last three are those of commands for scripts (appliance/remote/profiles.py).
OTHER_VARIABLES = {*TEST_VARIABLES, "CAMPANERO_CONFIG", "CAMPANERO_URL", "CAMPANERO_KEY", "CAMPANERO_PROFILE"}
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
# The value of a setting for a certificate that an ACME CA issues.
AUTO = "auto"
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class LoadedConfig(msgspec.Struct, frozen=True):
    """A configuration, the name of the layer that each setting came from (`sources`), and warnings for the log.

    `options` and `file` are the arguments of `load`, for loading the configuration again.
    """

    config: Config
    sources: dict[str, str]
    warnings: list[str]
    options: dict[str, Any] = {}
    file: Path | None = None

    def with_pages(self, page: Mapping[str, Any]) -> "LoadedConfig":
        """Load the configuration again with `page`, by dotted name, as the only values from settings pages.

        Raises ConfigError, whose text names each invalid setting.
        """
        return load(self.options, None, self.file, page)


# The parts of a limit: `schema.LimitText` is its pattern.
_RATE = re.compile(r"(?<![0-9.])([0-9.]+)(/s|/h| connections?)")


class RateLimit(NamedTuple):
    """A rate limit: evenly spaced messages per second, messages in any 60 minutes, and concurrent connections.

    0 means unlimited.
    """

    per_second: float = 0
    per_hour: int = 0
    connections: int = 0


def parse_limit(entry: str) -> tuple[str, RateLimit]:
    """Return (lower-case name, limit) of an entry: `example.org 5/s 200/h 2 connections`; a missing part is 0."""
    name, _, rates = entry.partition(" ")
    numbers_by_unit = {unit.strip()[:2]: float(number) for number, unit in _RATE.findall(rates)}
    return name.lower(), RateLimit(
        numbers_by_unit.get("/s", 0), int(numbers_by_unit.get("/h", 0)), int(numbers_by_unit.get("co", 0))
    )


def parse_seconds(duration: str) -> float:
    """Return the seconds of a duration such as `600s` or `72h`, which must be valid."""
    return float(duration[:-1]) * _UNITS[duration[-1]]


def list_settings(kind: type[msgspec.Struct] = Config, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Yield every setting as (dotted name, declaration) in the order of `config.example.toml`."""
    for info in fields(kind):
        name = prefix + info.encode_name
        if isinstance(info.type, type) and issubclass(info.type, msgspec.Struct):
            yield from list_settings(info.type, name + ".")
        else:
            yield name, info


@cache
def _settings_by_name() -> Mapping[str, FieldInfo]:
    return MappingProxyType(dict(list_settings()))


def describe_settings(loaded: "LoadedConfig") -> Iterator[str]:
    """Yield a line for each setting: `name = value  # source`, with `***` for a secret that is set."""
    for name, info in list_settings():
        value = msgspec.to_builtins(get_value(loaded.config, name))
        displayed = "***" if is_secret(info) and value else json.dumps(value, ensure_ascii=False)
        yield f"{name} = {displayed}  # {loaded.sources[name]}"


def get_value(config: Config, name: str) -> Any:
    """Return the value of a setting by its dotted name."""
    value: Any = config
    for part in name.split("."):
        value = getattr(value, "from_" if part == "from" else part)
    return value


def is_secret(info: FieldInfo) -> bool:
    """Return whether a setting is a secret, whose value is never shown."""
    return bool(_extra(info).get("secret"))


def help_text(info: FieldInfo) -> str:
    """Return the help line of a setting, or an empty text if the setting has none."""
    return next((m.description for m in _metas(info) if m.description), "")


def _metas(info: FieldInfo) -> list[msgspec.Meta]:
    return [m for m in getattr(info.type, "__metadata__", ()) if isinstance(m, msgspec.Meta)]


def _extra(info: FieldInfo) -> dict[str, Any]:
    return {key: value for meta in _metas(info) for key, value in (meta.extra or {}).items()}


def load(
    options: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    file: Path | None = None,
    page: Mapping[str, Any] | None = None,
) -> LoadedConfig:
    """Merge the layers into a configuration. Raises ConfigError, whose text names each invalid setting.

    `options` and `page` map dotted names to values; a value of None counts as missing. `environment` is `os.environ` by
    default. Without `file`, `campanero.toml` in the data directory is read if it exists.
    """
    options, page = dict(options or {}), dict(page or {})
    environment = os.environ if environment is None else environment
    settings = _settings_by_name()
    from_environment, warnings = _read_environment(environment, settings)
    data_dir = options.get("data_dir") or from_environment.get("data_dir") or Config().data_dir
    from_file = _read_file(file, Path(data_dir) / "campanero.toml", settings)
    layers = (("option", options), ("environment", from_environment), ("file", from_file), ("page", page))
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name in settings:
        for source, layer in layers:
            if layer.get(name) is not None:
                values[name], sources[name] = layer[name], source
                break
        else:
            sources[name] = "default"
    config = _build_config(values, sources)
    _check(config, environment)
    return LoadedConfig(config, sources, warnings + _find_warnings(config), options, file)


def _read_environment(
    environment: Mapping[str, str], settings: Mapping[str, FieldInfo]
) -> tuple[dict[str, Any], list[str]]:
    values: dict[str, Any] = {}
    warnings = []
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
            continue
        name = variable[len(PREFIX) :].lower().replace("__", ".")
        if name not in settings:
            warnings.append(f"unknown environment variable {variable} is ignored")
        elif is_structured(settings[name]):
            try:
                values[name] = msgspec.json.decode(text)
            except msgspec.DecodeError as error:
                raise ConfigError(f"{name} (environment): is not valid JSON: {error}") from None
        elif get_origin(_without_metadata(settings[name].type)) is list:
            values[name] = [part.strip() for part in text.split(",") if part.strip()]
        else:
            values[name] = text
    return values, warnings


def is_structured(info: FieldInfo) -> bool:
    """Return whether a setting is a list of tables, which the environment gives as JSON."""
    kind = _without_metadata(info.type)
    return get_origin(kind) is list and any(isinstance(item, type) and issubclass(item, msgspec.Struct)
                                            for item in get_args(kind))  # fmt: skip


def _without_metadata(kind: Any) -> Any:
    return getattr(kind, "__origin__", kind) if hasattr(kind, "__metadata__") else kind


def _read_file(chosen: Path | None, default: Path, settings: Mapping[str, FieldInfo]) -> dict[str, Any]:
    path = chosen or default
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if chosen is not None:
            raise ConfigError(f"{chosen}: no such file") from None
        return {}
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path}: is {'a directory' if stat.S_ISDIR(mode) else 'not a file'}")

    try:
        tree = tomllib.loads(path.read_text())
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: {error}") from None
    except RecursionError:
        raise ConfigError(f"{path}: values are nested too deeply") from None
    flat = dict(_flatten(tree))
    unknown = [name for name in flat if name not in settings]
    if unknown:
        raise ConfigError(f"{path}: unknown setting {', '.join(unknown)}")
    return flat


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _build_config(values: Mapping[str, Any], sources: Mapping[str, str]) -> Config:
    faults = []
    tree: dict[str, Any] = {}
    for name, info in _settings_by_name().items():
        if name not in values:
            continue
        try:
            value = msgspec.convert(values[name], info.type, strict=False)
        except msgspec.ValidationError as error:
            faults.append(f"{name} ({sources[name]}): {error}")
            continue
        node = tree
        *parents, last = name.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    if faults:
        raise ConfigError("; ".join(faults))
    return msgspec.convert(tree, Config, strict=False)


def _check(config: Config, environment: Mapping[str, str]) -> None:
    faults = []
    if not _is_listen_address(config.listen):
        faults.append(f"listen: {config.listen!r} is not HOST:PORT")
    url = urlsplit(base_url(config))
    if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
        faults.append(f"base_url: {config.base_url!r} is not an http(s) address")
    faults += find_missing_settings(config, config.email.transport)
    faults += transports.find_faults(config.email)
    faults += copies.find_faults(config.copies)
    try:
        addresses.parse_networks(tuple(config.network.trusted_proxies))
    except ValueError as error:
        faults.append(f"network.trusted_proxies: {error}")
    faults += _check_certificate_files("tls.", config.tls.certificate, config.tls.key)
    faults += _check_inbound(config) + _check_submission(config)
    faults += _check_acme(config)
    faults += _check_sms(config)
    faults += [
        f"{name}: only with a base_url on the loopback interface"
        for name in TEST_VARIABLES
        if environment.get(name) and url.hostname not in LOOPBACK
    ]
    if faults:
        raise ConfigError("; ".join(faults))


def get_mail_host(config: Config) -> str:
    """Return the name by which the SMTP servers of the service greet clients."""
    return config.email.direct.helo or urlsplit(base_url(config)).hostname or "localhost"


def get_submission_host(config: Config) -> str:
    """Return the name by which programs connect to SMTP submission."""
    return config.submission.host or urlsplit(base_url(config)).hostname or "localhost"


def find_missing_settings(config: Config, transport: str) -> list[str]:
    """Return `NAME: reason` for each setting that is empty although a transport of email needs it."""
    return [
        f"{name}: needed when email.transport is {transport}"
        for name in list_required(transport)
        if not get_value(config, name)
    ]


@cache
def list_required(transport: str) -> list[str]:
    """Return the names of the settings that a transport of email needs."""
    prefix = f"email.{transport}."
    return [name for name, info in list_settings() if name.startswith(prefix) and _extra(info).get("required")]


def _check_submission(config: Config) -> list[str]:
    """Return the errors of the settings of SMTP submission."""
    submission, faults = config.submission, []
    for name, address in (("listen", submission.listen), ("listen_tls", submission.listen_tls)):
        host, _, port = address.rpartition(":")
        if address and (not host or not port.isdecimal() or int(port) > 65535):
            faults.append(f"submission.{name}: {address!r} is not HOST:PORT")
    if (submission.listen or submission.listen_tls) and not get_submission_certificate(config).certificate:
        faults.append("submission.tls_certificate: needed, because passwords are accepted only over TLS")
    return faults + _check_certificate_files("submission.tls_", submission.tls_certificate, submission.tls_key)


class CertificateFiles(NamedTuple):
    """The files of a certificate and its key (empty: in the same file), and the setting that names the certificate."""

    setting: str
    certificate: str
    key: str


def get_submission_certificate(config: Config) -> CertificateFiles:
    """Return the certificate of SMTP submission: its own, else that of the web interface, else that of `inbound`.

    If none is set, both paths are empty.
    """
    for section, certificate, key in (
        ("submission.tls_certificate", config.submission.tls_certificate, config.submission.tls_key),
        ("tls.certificate", config.tls.certificate, config.tls.key),
        ("inbound.tls_certificate", config.inbound.tls_certificate, config.inbound.tls_key),
    ):
        if certificate:
            return CertificateFiles(section, certificate, key)
    return CertificateFiles("submission.tls_certificate", "", "")


def _check_inbound(config: Config) -> list[str]:
    """Return the errors of the settings of the SMTP listener for bounces, complaints and replies."""
    inbound, faults = config.inbound, []
    if inbound.listen and not _is_listen_address(inbound.listen):
        faults.append(f"inbound.listen: {inbound.listen!r} is not HOST:PORT")
    return faults + _check_certificate_files("inbound.tls_", inbound.tls_certificate, inbound.tls_key)


@cache
def list_certificate_settings() -> list[str]:
    """Return the names of the settings with the certificate of a listener, each of which may be `AUTO`."""
    return [name for name, _ in list_settings() if name.endswith("certificate")]


def _is_listen_address(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and int(port) <= 65535


def _check_acme(config: Config) -> list[str]:
    """Return the errors of the settings that a certificate from the CA needs, if a certificate setting is `auto`."""
    names = [name for name in list_certificate_settings() if get_value(config, name) == AUTO]
    if not names:
        return []
    acme, faults = config.acme, []
    if acme.http_listen and not _is_listen_address(acme.http_listen):
        faults.append(f"acme.http_listen: {acme.http_listen!r} is not HOST:PORT")
    if bool(acme.eab_key_id) != bool(acme.eab_hmac_key):
        missing = "acme.eab_hmac_key" if acme.eab_key_id else "acme.eab_key_id"
        faults.append(f"{missing}: needed with the other setting of the external account")
    if acme.email and not _MAIL_ADDRESS.fullmatch(acme.email):
        faults.append(f"acme.email: {acme.email!r} is not an email address")
    # Only a CA on this machine can reach a host name of this machine.
    is_local_ca = urlsplit(acme.directory).hostname in LOOPBACK
    if not is_https(config) or not _is_public_name(base_host(config), is_local_ca):
        faults.append(
            f"base_url: must be https:// and a public host name when {names[0]} is {AUTO}, not {base_url(config)!r}"
        )
    return faults


_MAIL_ADDRESS = re.compile(r"[^\s@,?&]+@[^\s@,?&]+")
_HOST_NAME = re.compile(r"(?=.{1,253}\Z)(?!-)[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63})*", re.IGNORECASE)


def _is_public_name(host: str, is_local_ca: bool) -> bool:
    """Return whether a CA may issue a certificate for a host: a name with a dot that is no IP address."""
    if not _HOST_NAME.fullmatch(host) or host.replace(".", "").isdecimal():
        return False
    return is_local_ca or ("." in host and not host.endswith(".localhost"))


def _check_certificate_files(prefix: str, certificate: str, key: str) -> list[str]:
    """Return the errors of the paths of a certificate and its key; both may be empty. `prefix` names their settings.

    A certificate that is `auto` needs no file and has no key.
    """
    if certificate == AUTO:
        return [f"{prefix}key: must be empty when {prefix}certificate is {AUTO}"] if key else []
    paths = (("certificate", certificate), ("key", key))
    faults = [f"{prefix}{name}: no file {path!r}" for name, path in paths if path and not Path(path).is_file()]
    if key and not certificate:
        faults.append(f"{prefix}certificate: needed when {prefix}key is set")
    return faults


def _check_sms(config: Config) -> list[str]:
    """Return the errors of the SMS sender and the stop words; other settings are checked by each SMS provider."""
    sms, faults = config.sms, []
    try:
        is_sender = not sms.twilio.from_ or addresses.parse_sms_sender(sms.twilio.from_) == sms.twilio.from_
    except ValueError:
        is_sender = False
    if not is_sender:
        faults.append(
            f"sms.twilio.from: {sms.twilio.from_!r} is not a phone number, short code, name or messaging service"
        )
    return faults + [
        f"sms.stop_words: {word!r} has no letter or digit" for word in sms.stop_words if not any(map(str.isalnum, word))
    ]


def _find_warnings(config: Config) -> list[str]:
    """Return a warning for each setting that is valid but probably does not work."""
    name, warnings = config.email.direct.helo or base_host(config), []
    if config.email.transport == "direct" and ("." not in name or name.replace(".", "").isdecimal()):
        warnings.append(
            f"email.direct.helo: mail servers reject the HELO name {name}; set the fully qualified name of this machine"
        )
    if config.tls.certificate and not is_https(config):
        warnings.append(
            f"base_url: {config.base_url} is not https, though tls.certificate is set: links to it do not work"
        )
    return warnings


def base_url(config: Config) -> str:
    """Return the base URL of all links, without a final slash.

    The base URL comes from the settings and never from a request (docs/decisions.md#17).
    """
    return (config.base_url or listen_url(config)).rstrip("/")


def listen_url(config: Config) -> str:
    """Return the URL of the address that the service listens on; https if the service has a certificate."""
    return f"{'https' if config.tls.certificate else 'http'}://{config.listen}"


def reachable_address(listen: str) -> tuple[str, int]:
    """Return the host and port at which this machine can connect to a listener at `listen` (HOST:PORT).

    If `listen` has a wildcard address, the host is the loopback address.
    """
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host), int(port)


def is_https(config: Config) -> bool:
    """Return whether the base URL is https: the service has a certificate, or a proxy in front of it terminates TLS."""
    return base_url(config).startswith("https://")


def base_host(config: Config) -> str:
    """Return the host name of `base_url`, without the port."""
    return urlsplit(base_url(config)).hostname or ""


_current: Config | None = None
_layers: LoadedConfig | None = None


def set_current(config: Config, layers: LoadedConfig | None = None) -> None:
    """Set the configuration of this process, at the start and after a change on a settings page.

    `layers` is the same configuration with the sources of its values, for `get_loaded`.
    """
    global _current, _layers
    _current, _layers = config, layers


def get_loaded() -> LoadedConfig:
    """Return the configuration of this process with its sources.

    Raises RuntimeError if `set_current` was not called yet, or last without `layers`.
    """
    if _layers is None:
        raise RuntimeError("the configuration was set without its layers")
    return _layers


def current() -> Config:
    """Return the configuration of this process. Raises RuntimeError if it is not set."""
    if _current is None:
        raise RuntimeError("the configuration is not loaded")
    return _current


def is_loaded() -> bool:
    """Return whether the configuration of this process is set."""
    return _current is not None


def format_example() -> str:
    """Return the text of `config.example.toml`: every setting with its default and its help line."""
    lines = [
        "# Every setting with its default. Order: option, environment (CAMPANERO_EMAIL__RELAY__HOST), this file,",
        "",
    ]
    lines[0:1] = [lines[0], "# the settings pages, these defaults. Save it as campanero.toml in the data directory."]
    section = ""
    for name, info in list_settings():
        head, _, key = name.rpartition(".")
        if head != section:
            section = head
            lines += ["", f"[{section}]"]
        default = info.default_factory() if info.default is msgspec.NODEFAULT else info.default
        lines.append(f"{key} = {_format_toml(default)}  # {help_text(info)}")
    return "\n".join(lines) + "\n"


def _format_toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, NoneType):
        raise TypeError("a setting needs a default")
    return (
        msgspec.json.encode(value).decode().replace(",", ", ")
        if isinstance(value, list)
        else (msgspec.json.encode(value).decode())
    )
