"""The configuration from its five layers: option, environment, file, page, default (the first one wins)."""

import os
import stat
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import NoneType
from typing import Any, get_origin
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import FieldInfo, fields

from appliance.core import addresses
from appliance.core.errors import ConfigError
from appliance.settings.schema import Config

PREFIX = "CAMPANERO_"
# Read elsewhere: these are not settings of the file.
REHEARSALS = ("CAMPANERO_TEST_CLOCK", "CAMPANERO_TEST_HOSTS")
OTHER_VARIABLES = {*REHEARSALS, "CAMPANERO_CONFIG"}
LOOPBACK = {"127.0.0.1", "localhost", "::1"}
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


class Loaded(msgspec.Struct, frozen=True):
    """A configuration with the layer that each setting came from, and warnings worth a line in the log."""

    config: Config
    sources: dict[str, str]
    warnings: list[str]
    options: dict[str, Any] = {}
    file: Path | None = None

    def with_pages(self, page: Mapping[str, Any]) -> "Loaded":
        """Join the layers again, with what pages set meanwhile; raises ConfigError, and then nothing has changed."""
        return load(self.options, None, self.file, page)


def parse_seconds(duration: str) -> float:
    """Return a duration like `600s` or `72h` in seconds."""
    return float(duration[:-1]) * _UNITS[duration[-1]]


def list_settings(kind: type[msgspec.Struct] = Config, prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Walk every setting as (dotted name, declaration) in the order of the file."""
    for info in fields(kind):
        name = prefix + info.encode_name
        if isinstance(info.type, type) and issubclass(info.type, msgspec.Struct):
            yield from list_settings(info.type, name + ".")
        else:
            yield name, info


def get_value(config: Config, name: str) -> Any:
    """Return the value of a setting by its dotted name."""
    value: Any = config
    for part in name.split("."):
        value = getattr(value, "from_" if part == "from" else part)
    return value


def is_secret(info: FieldInfo) -> bool:
    """Return whether a setting is never shown."""
    return bool(_extra(info).get("secret"))


def help_text(info: FieldInfo) -> str:
    """Return a setting's line of help."""
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
) -> Loaded:
    """Join the layers; raises ConfigError with one line for each faulty setting.

    `options` and `page` are keyed by dotted name; without `file`, `campanero.toml` in the data directory is read if
    it is there.
    """
    options, page = dict(options or {}), dict(page or {})
    environment = os.environ if environment is None else environment
    known = dict(list_settings())
    from_environment, warnings = _environment(environment, known)
    data_dir = options.get("data_dir") or from_environment.get("data_dir") or Config().data_dir
    from_file = _file(file, Path(data_dir) / "campanero.toml", known)
    layers = (("option", options), ("environment", from_environment), ("file", from_file), ("page", page))
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name in known:
        for source, layer in layers:
            if layer.get(name) is not None:
                values[name], sources[name] = layer[name], source
                break
        else:
            sources[name] = "default"
    config = _build(values, sources)
    _check(config, environment)
    return Loaded(config, sources, warnings + _advice(config), options, file)


def _environment(environment: Mapping[str, str], known: Mapping[str, FieldInfo]) -> tuple[dict[str, Any], list[str]]:
    found: dict[str, Any] = {}
    warnings = []
    for variable, text in environment.items():
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
            continue
        name = variable[len(PREFIX) :].lower().replace("__", ".")
        if name not in known:
            warnings.append(f"unknown environment variable {variable} is ignored")
        elif get_origin(_plain(known[name].type)) is list:
            found[name] = [part.strip() for part in text.split(",") if part.strip()]
        else:
            found[name] = text
    return found, warnings


def _plain(kind: Any) -> Any:
    return getattr(kind, "__origin__", kind) if hasattr(kind, "__metadata__") else kind


def _file(given: Path | None, usual: Path, known: Mapping[str, FieldInfo]) -> dict[str, Any]:
    path = given or usual
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if given is not None:
            raise ConfigError(f"{given}: no such file") from None
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
    unknown = [name for name in flat if name not in known]
    if unknown:
        raise ConfigError(f"{path}: unknown setting {', '.join(unknown)}")
    return flat


def _flatten(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _build(values: Mapping[str, Any], sources: Mapping[str, str]) -> Config:
    faults = []
    tree: dict[str, Any] = {}
    for name, info in list_settings():
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
    host, _, port = config.listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        faults.append(f"listen: {config.listen!r} is not HOST:PORT")
    url = urlsplit(base_url(config))
    if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
        faults.append(f"base_url: {config.base_url!r} is not an http(s) address")
    if config.email.transport == "relay" and not config.email.relay.host:
        faults.append("email.relay.host: needed when email.transport is relay")
    try:
        addresses.parse_networks(tuple(config.network.trusted_proxies))
    except ValueError as error:
        faults.append(f"network.trusted_proxies: {error}")
    faults += _pair("tls.", config.tls.certificate, config.tls.key)
    faults += _inbound(config)
    faults += _sms(config)
    faults += [
        f"{name}: only with a base_url on the loopback interface"
        for name in REHEARSALS
        if environment.get(name) and url.hostname not in LOOPBACK
    ]
    if faults:
        raise ConfigError("; ".join(faults))


def _inbound(config: Config) -> list[str]:
    """Return what is wrong with the listener for returned mail."""
    here, faults = config.inbound, []
    host, _, port = here.listen.rpartition(":")
    if here.listen and (not host or not port.isdecimal() or int(port) > 65535):
        faults.append(f"inbound.listen: {here.listen!r} is not HOST:PORT")
    return faults + _pair("inbound.tls_", here.tls_certificate, here.tls_key)


def _pair(prefix: str, certificate: str, key: str) -> list[str]:
    """Return what is wrong with the names of a certificate and its key."""
    named = (("certificate", certificate), ("key", key))
    faults = [f"{prefix}{name}: no file {path!r}" for name, path in named if path and not Path(path).is_file()]
    if key and not certificate:
        faults.append(f"{prefix}certificate: needed when {prefix}key is set")
    return faults


def _sms(config: Config) -> list[str]:
    """Return what is wrong with sender and words of SMS; what their provider lacks it says itself."""
    here, faults = config.sms, []
    try:
        is_sender = not here.twilio.from_ or addresses.parse_sms_sender(here.twilio.from_) == here.twilio.from_
    except ValueError:
        is_sender = False
    if not is_sender:
        faults.append(f"sms.twilio.from: {here.twilio.from_!r} is no number, short code, name or messaging service")
    return faults + [f"sms.stop_words: {one!r} is no word" for one in here.stop_words if not any(map(str.isalnum, one))]


def _advice(config: Config) -> list[str]:
    """Return what may be meant so and will not do."""
    name, found = config.email.direct.helo or base_host(config), []
    if config.email.transport == "direct" and ("." not in name or name.replace(".", "").isdecimal()):
        found.append(f"email.direct.helo: servers refuse whoever greets as {name}; set the full name of this machine")
    if config.tls.certificate and not is_https(config):
        found.append(f"base_url: {config.base_url} is not https, though tls.certificate is set: its links lead nowhere")
    return found


def base_url(config: Config) -> str:
    """Return the address of every link, without a slash at its end, never from a request (docs/decisions.md#17)."""
    return (config.base_url or listen_url(config)).rstrip("/")


def listen_url(config: Config) -> str:
    """Return the address we listen at."""
    return f"{'https' if config.tls.certificate else 'http'}://{config.listen}"


def reachable_address(listen: str) -> tuple[str, int]:
    """Return where somebody on this machine reaches what listens at HOST:PORT, which may be every address."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host), int(port)


def is_https(config: Config) -> bool:
    """Return whether people reach us over https: by a certificate of our own, or through a proxy that has one."""
    return base_url(config).startswith("https://")


def base_host(config: Config) -> str:
    """Return the host of `base_url`."""
    return urlsplit(base_url(config)).hostname or ""


_current: Config | None = None
_layers: Loaded | None = None


def set_current(config: Config, layers: Loaded | None = None) -> None:
    """Fix the configuration of this process, and what it was joined from: at start, and when a page changed it."""
    global _current, _layers
    _current, _layers = config, layers


def loaded() -> Loaded:
    """Return what the configuration of this process was joined from."""
    if _layers is None:
        raise RuntimeError("the configuration was not joined from layers")
    return _layers


def current() -> Config:
    """Return the configuration of this process."""
    if _current is None:
        raise RuntimeError("the configuration is not loaded")
    return _current


def write_example() -> str:
    """Write `config.example.toml`: every setting with its default and its line of help."""
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
        lines.append(f"{key} = {_toml(default)}  # {help_text(info)}")
    return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, NoneType):
        raise TypeError("a setting needs a default")
    return (
        msgspec.json.encode(value).decode().replace(",", ", ")
        if isinstance(value, list)
        else (msgspec.json.encode(value).decode())
    )
