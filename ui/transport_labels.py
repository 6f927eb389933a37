"""The names of transports and rules as pages show them."""

from typing import NamedTuple

from appliance.accounts import transports as stored_transports
from appliance.core.i18n import format_list, gettext, gettext_noop
from appliance.sending.delivery import mx_routes
from appliance.sending.messages import delivery_status
from appliance.sending.messages.transport_choice import list_transport_statuses
from appliance.sending.transports import TRANSPORTS
from appliance.settings import transports
from appliance.settings.schema import Email, Route
from appliance.settings.transports import DEFAULT
from ui import formats

# The label of each kind of transport; that of a provider is its name.
KIND_LABELS = {
    "capture": gettext_noop("Test inbox"), "relay": gettext_noop("Relay"), "direct": gettext_noop("Direct sending"),
    "http": gettext_noop("HTTP gateway"), "twilio": "Twilio",
    **{transport.name: transport.label for transport in TRANSPORTS.values()},
}  # fmt: skip
# Recipients' mailbox providers whose name is not the one that is stored.
_PROVIDER_NAMES = {"gmx": "GMX", "bt": "BT", "sfr": "SFR", "wp": "WP", "mail.ru": "Mail.ru"}
TRAFFIC_LABELS = {
    "all": gettext_noop("All email"), "marketing": gettext_noop("Marketing email"),
    "transactional": gettext_noop("Transactional email"),
}  # fmt: skip


class TransportLine(NamedTuple):
    """A transport in the list of the settings; `state` is (tone, label), `note` says why it is not open."""

    key: str
    name: str
    kind: str
    details: str
    state: tuple[str, str]
    note: str
    is_default: bool


class RuleLine(NamedTuple):
    """A rule in the list of the settings: its condition, and the transports that send the messages that match it."""

    number: int
    condition: str
    transports: str
    standby: str
    digest: str


def get_kind_label(kind: str) -> str:
    """Return the label of a kind of transport; the names of services are the same in all languages."""
    label = KIND_LABELS.get(kind, kind)
    return label if kind in TRANSPORTS else gettext(label)


def get_provider_label(provider: str) -> str:
    """Return the label of the `provider` of a message: the name of a further transport, or the label of its kind."""
    return stored_transports.get_label(provider) or get_kind_label(provider)


def get_transport_label(key: str, email: Email) -> str:
    """Return the label of a transport in a rule; `default` is the default transport."""
    if key == DEFAULT:
        return gettext("Default (%(kind)s)", kind=get_kind_label(email.transport))
    return get_provider_label(key)


def list_transports(email: Email) -> list[TransportLine]:
    """Return all transports with their present state, the default one first; none while email is captured."""
    if email.transport == transports.CAPTURE:
        return []
    lines = []
    for item in list_transport_statuses(email, delivery_status.get_send_status()):
        is_default = item.name is None
        state, note = ("done", gettext("Open")), ""
        if item.text is not None:
            state = ("failed", gettext("Paused"))
            note = gettext("%(reason)s Next attempt %(time)s.", reason=formats.sentence(item.text),
                           time=formats.when(item.until))  # fmt: skip
        elif item.is_warm_up_full:
            state, note = ("paused", gettext("Warming up")), gettext("Today’s messages of its warm-up are sent.")
        host = transports.build_settings(item.key, email).relay.host if item.kind == "relay" else ""
        label = get_transport_label(DEFAULT if is_default else item.key, email)
        lines.append(
            TransportLine(item.key, label, get_kind_label(item.kind), host, state, note, is_default)
        )  # fmt: skip
    return lines


def describe_rules(email: Email) -> list[RuleLine]:
    """Return the rules as the settings list them."""
    return [_describe_rule(number, route, email) for number, route in enumerate(email.routes, 1)]


def _describe_rule(number: int, route: Route, email: Email) -> RuleLine:
    conditions = [gettext(TRAFFIC_LABELS[route.traffic])]
    if route.domains:
        conditions.append(gettext("from %(names)s", names=format_list(route.domains)))
    if route.recipients:
        names = [get_recipient_label(name) for name in route.recipients]
        conditions.append(gettext("to %(names)s", names=format_list(names)))
    total = sum(route.shares.values())
    weighted = [(key, share) for key, share in route.shares.items() if share]
    shares = [
        get_transport_label(key, email)
        if len(weighted) == 1
        else f"{get_transport_label(key, email)} {formats.share(share / total)}"
        for key, share in weighted
    ]
    standby = [get_transport_label(key, email) for key, share in route.shares.items() if not share]
    return RuleLine(
        number, " ".join(conditions), format_list(shares), format_list(standby), stored_transports.hash_route(route)
    )


def get_recipient_label(name: str) -> str:
    """Return the name of a mailbox provider or domain as people write it."""
    is_provider = name in mx_routes.LARGE_GROUPS
    return _PROVIDER_NAMES.get(name, name.capitalize()) if is_provider else name


FILTERS = {"transport_label": get_provider_label}
