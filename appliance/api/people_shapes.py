"""Shapes of the people of a team, of keys, and of what was done with them."""

from typing import Any, cast

from msgspec import Struct

from appliance.accounts import keys
from appliance.accounts.users import Role
from appliance.api.shapes import Moment
from appliance.core.clock import iso
from appliance.storage import models


class User(Struct):
    """A person who signs in; `disabled_at` says since when they do no more."""

    id: int
    account_id: int
    email: str
    name: str
    role: Role
    otp: bool
    disabled_at: Moment | None
    last_login_at: Moment | None
    created_at: Moment
    updated_at: Moment


class UserWithPassword(User):
    """A person who was just added; `password` is shown this once, and null where it was sent."""

    password: str | None


class ApiKey(Struct):
    """A key for programs: what it reaches, and its last characters to tell it by."""

    id: int
    account_id: int
    name: str
    hint: str
    scope: str
    test: bool
    created_by: int | None
    last_used_at: Moment | None
    created_at: Moment


class ApiKeyWithSecret(ApiKey):
    """A key that was just made; it is shown this once."""

    key: str


class AuditEntry(Struct):
    """Something that was done: by whom (`user:7`, `key:3`, `cli`, `system`), to what (`campaign:3`), from where."""

    id: int
    account_id: int
    actor: str
    actor_name: str | None
    action: str
    subject: str | None
    data: dict[str, Any]
    ip: str | None
    created_at: Moment


def _person(row: models.User) -> dict[str, Any]:
    return {
        "id": row.id, "account_id": row.account_id, "email": row.email, "name": row.name,
        "role": cast(Role, row.role), "otp": row.otp_secret is not None, "disabled_at": iso(row.disabled_at),
        "last_login_at": iso(row.last_login_at), "created_at": str(iso(row.created_at)),
        "updated_at": str(iso(row.updated_at)),
    }  # fmt: skip


def user(row: models.User) -> User:
    """Shape a person."""
    return User(**_person(row))


def with_password(row: models.User, password: str | None) -> UserWithPassword:
    """Shape a person with the password that was made for them."""
    return UserWithPassword(**_person(row), password=password)


def _key(row: models.ApiKey) -> dict[str, Any]:
    return {
        "id": row.id, "account_id": row.account_id, "name": row.name, "hint": row.hint, "scope": row.scope,
        "test": row.test, "created_by": row.created_by_id, "last_used_at": iso(keys.last_used(row)),
        "created_at": str(iso(row.created_at)),
    }  # fmt: skip


def key(row: models.ApiKey) -> ApiKey:
    """Shape a key."""
    return ApiKey(**_key(row))


def with_secret(row: models.ApiKey, secret: str) -> ApiKeyWithSecret:
    """Shape a key with what opens, which nobody will see again."""
    return ApiKeyWithSecret(**_key(row), key=secret)


def entry(row: models.Audit, names: dict[str, str]) -> AuditEntry:
    """Shape a row of the audit, with what its actor is called."""
    return AuditEntry(
        row.id, row.account_id, row.actor, names.get(row.actor), row.action, row.subject, row.data, row.ip,
        str(iso(row.created_at)),
    )  # fmt: skip
