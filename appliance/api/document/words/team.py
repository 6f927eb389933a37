"""Words about the people of a team, about keys, and about what was done."""

_PERSON = {
    "email": "the address they sign in with, in lower case; nobody else of this installation has it",
    "name": "what the others call them",
    "role": "what they may do: a viewer looks, an author writes, an editor sends too, admins and owners do it all",
    "otp": "whether signing in takes a code beside the password",
    "disabled_at": "since when they sign in no more; null: they do",
    "last_login_at": "when they signed in last; null: never",
}
_KEY = {
    "name": "what uses it",
    "hint": "its last four characters, to tell it by",
    "scope": "`full`, `read`, `send`, or single scopes with commas between, as `contacts:write,events:write`",
    "test": "whether it is for tests: all it sends is captured, and counted nowhere",
    "created_by": "who made it; null: the command line, or somebody who is gone",
    "last_used_at": "when it was used last; null: never",
}

WORDS: dict[str, dict[str, str]] = {
    "User": _PERSON,
    "UserWithPassword": {"password": "the password that was made; null where one was sent"},
    "UserWrite": {
        "email": _PERSON["email"],
        "name": "what the others call them; absent: the part before the `@`",
        "role": _PERSON["role"],
        "password": "of at least 10 characters; absent: one is made and answered, this once",
    },
    "UserPatch": {
        "name": _PERSON["name"],
        "role": _PERSON["role"],
        "disabled": "whether they sign in no more",
        "password": "a new one, of at least 10 characters; every sign-in of theirs ends",
        "otp": "false takes the second factor from somebody who lost it; a new one they set up themselves",
    },
    "OwnPatch": {
        "name": _PERSON["name"],
        "password": "a new one, of at least 10 characters; every sign-in of one's own ends, this one too",
        "current_password": "the present one, without which there is no new one",
    },
    "SignIn": {
        "kind": "`browser`, or `token` of a program",
        "current": "whether it is the one that asks",
        "ip": "where it signed in from, whole; null: not known",
        "user_agent": "what it said of itself when it signed in",
        "last_seen_at": "when it was used last, to five minutes",
        "expires_at": "when it ends by itself; a browser's moves on as it is used, 30 days at most",
        "created_at": "when it signed in",
    },
    "ApiKey": _KEY,
    "ApiKeyWithSecret": {"key": "what stands behind `Bearer`, shown this once"},
    "KeyWrite": {"name": _KEY["name"], "scope": _KEY["scope"], "test": _KEY["test"]},
    "AuditEntry": {
        "actor": "who did it: `user:7`, `key:3`, `cli`, `recipient`, or `system`",
        "actor_name": "what that person or key is called; null: nothing",
        "action": "what was done, as `campaign_send`",
        "subject": "what it was done to, as `campaign:3`; null: to nothing in particular",
        "data": "what else is known of it: names and numbers, never a secret or an address",
        "ip": "where it came from, whole; null: nowhere, or it is not known",
        "created_at": "when it was done",
    },
}
