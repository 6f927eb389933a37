"""Which column is what: guessed from names, with the exports of other products recognised by theirs."""

import re
from typing import NamedTuple

from appliance.imports.cells import unaccented

# Where a column may go, beside `data.<key>`; "" leaves it out
TARGETS = (
    "email", "phone", "name", "first_name", "last_name", "source", "country_code", "tracking", "tags", "data",
    "status", "subscribed_email", "subscribed_phone", "opted_out_by", "verified", "unsubscribed", "bounced", "reason",
    "note", "opt_in_at", "opt_out_at", "channels", "lists", "",
)  # fmt: skip
# Without accents, as `cells.unaccented` writes names
_NAMES = {
    "email": "email e_mail mail email_address e_mail_address emailaddress address_email correo correo_electronico "
             "courriel adresse_email adresse_e_mail adresse_mail e_mail_adresse email_adresse emailadresse mailadresse "
             "e_mail_1_value email_1 primary_email email_id direccion_de_correo direccion_de_correo_electronico "
             "direccion_email",
    "phone": "phone phone_number mobile mobile_phone telephone tel sms cell telefon telefono handy mobile_number "
             "mobile_no phone_no tel_no cell_phone contact_number primary_phone phone_1_value whatsapp sms_number "
             "telefonnummer telefon_nr telefonnr rufnummer mobil mobilnummer mobiltelefon handynummer portable "
             "telephone_portable tel_portable numero_de_telephone movil celular telefono_movil numero_de_telefono",
    "name": "name full_name fullname nom_complet nombre_completo nombre_y_apellidos",
    "first_name": "first_name firstname fname given_name vorname prenom nombre forename",
    "last_name": "last_name lastname lname surname family_name nachname familienname nom nom_de_famille apellido "
                 "apellidos",
    "source": "source",
    "country_code": "country_code country country_iso country_name land landercode pays pais paese kraj code_pays "
                    "codigo_de_pais",
    "tracking": "tracking",
    "tags": "tags tag labels schlagworte schlagworter etiquettes etiquetas", "data": "data attributes custom_fields",
    "status": "status subscription_status email_status email_marketing_status email_marketing_consent",
    "subscribed_email": "subscribed_email subscribed opt_in optin email_opt_in accepts_email_marketing "
                        "accepts_marketing newsletter newsletter_opt_in newsletter_subscription newsletter_subscriber "
                        "marketing_opt_in email_marketing email_consent email_permission abonniert "
                        "newsletter_abonniert abonne suscrito boletin",
    "subscribed_phone": "subscribed_phone sms_opt_in accepts_sms_marketing sms_marketing_consent sms_consent "
                        "sms_marketing sms_permission",
    "opted_out_by": "opted_out_by", "verified": "verified email_verified",
    "unsubscribed": "unsubscribed unsub_time unsubscribed_at do_not_email donotemail do_not_contact donotcontact dnc "
                    "dnc_reason do_not_contact_reason opted_out opt_out optout abgemeldet abgemeldet_am desinscrit "
                    "desabonne baja",
    "bounced": "bounced clean_time cleaned bounced_at",
}  # fmt: skip
_KNOWN = {name: target for target, names in _NAMES.items() for name in names.split()}
# Of our own export: the service knows these itself
_OWN = """
    id account_id uuid list_ids lists created_at updated_at last_interacted_at channels channels_attributes
    sendable_email sendable_phone verification_status enrichment_status email_sent_count email_open_count
    email_click_count email_soft_bounce_count sms_sent_count email_last_sent_at email_last_opened_at
    email_last_clicked_at opt_in_at opt_out_at suppression suppression_reason kept_opt_out
"""
_OURS = frozenset(_OWN.split())


# More than one column may go there
_SEVERAL = ("phone", "tags", "unsubscribed", "bounced")


class Product(NamedTuple):
    """An export of another product: the columns that tell it, and what its own columns mean."""

    name: str
    needs: frozenset[str]
    map: dict[str, str]


def _product(name: str, needs: str, left_out: str = "", **targets: str) -> Product:
    mapped = dict.fromkeys(left_out.split(), "") | targets
    return Product(name, frozenset(needs.split()), mapped)


OWN = "campanero"
# What stands only in files of another installation of ours
_BACK = ("opt_in_at", "opt_out_at", "channels", "lists")
PRODUCTS = (
    _product(OWN, "id uuid subscribed_email subscribed_phone channels lists data", **{x: x for x in _BACK}),
    _product("listmonk", "uuid email name attributes status", "uuid created_at updated_at"),
    _product(
        "mailchimp", "email_address leid euid",
        "member_rating optin_ip confirm_time confirm_ip latitude longitude gmtoff dstoff last_changed leid "
        "euid unsub_campaign_title unsub_campaign_id unsub_reason unsub_reason_other clean_campaign_title "
        "clean_campaign_id",
        cc="country_code", phone_number="phone", unsub_time="unsubscribed", clean_time="bounced",
        optin_time="opt_in_at",
    ),
    _product("keila", "email first_name last_name data status"),
    _product("keila", "email first_name last_name data"),
    _product(
        "mautic", "firstname lastname points email",
        "id points owner_id is_published date_added date_modified date_identified last_active stage ownerusername "
        "createdbyuser modifiedbyuser",
    ),
)  # fmt: skip


def plain(name: str) -> str:
    """Return a column's name in the form that names are compared in, which is also its key in `data`."""
    return re.sub(r"[^\w]+", "_", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip())).strip("_").lower()


def recognise(names: list[str]) -> str | None:
    """Return which product wrote columns of these names, or None."""
    have = {_flat(name) for name in names}
    return next((one.name for one in PRODUCTS if one.needs <= have), None)


def _flat(name: str) -> str:
    """Compare without the break that a capital makes, as `firstname` and `MEMBER_RATING` are written."""
    return re.sub(r"[^\w]+", "_", name.strip()).strip("_").lower()


def guess(names: list[str], resource: str = "contacts") -> list[str]:
    """Return where each column goes; the first of two that mean the same address or name wins."""
    have = {_flat(name) for name in names}
    product = next((one for one in PRODUCTS if one.needs <= have), None)
    found: list[str] = []
    for name in names:
        target = _target(name, product)
        if resource == "suppressions":
            target = _suppression(name, target)
        single = target and not target.startswith("data") and target not in _SEVERAL
        found.append(f"data.{plain(name)}"[:255] if single and target in found else target)
    return found


def _target(name: str, product: Product | None) -> str:
    flat, split = _flat(name), plain(name)
    if product is not None and flat in product.map:
        return product.map[flat]
    if name.strip().startswith("data.") and len(name.strip()) > 5:
        return name.strip()
    if flat in _OURS:
        return ""
    known = _KNOWN.get(unaccented(flat)) or _KNOWN.get(unaccented(split))
    if known is not None:
        return known
    return f"data.{split}" if split else ""


def _suppression(name: str, target: str) -> str:
    flat = _flat(name)
    if flat in ("address", "value", "recipient"):
        return "email"
    return flat if flat in ("reason", "note") else target if target in ("email", "phone") else ""
