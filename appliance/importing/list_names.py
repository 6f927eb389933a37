"""Lists that the rows of a file name: found by their names, made where there are none of them."""

from appliance.contacts import lists
from appliance.contacts.lists import ListCreate
from appliance.db.case_folding import name_key
from appliance.db.open import rows
from appliance.importing.people import Person

_PART = 500


class Named:
    """The lists that some people's rows name; when `dry`, those that are missing are left out."""

    def __init__(self, account_id: int, people: list[Person], dry: bool) -> None:
        names = {name_key(name): name for person in people for name in person.list_names()}
        self._ids: dict[str, int] = {}
        keys = list(names)
        for start in range(0, len(keys), _PART):
            part = keys[start : start + _PART]
            found = rows(
                f"SELECT name_key, id FROM contact_list WHERE account_id = ? AND name_key IN "
                f"({','.join('?' * len(part))})",
                (account_id, *part),
            )
            self._ids.update(found)
        for key in keys if not dry else ():
            if key not in self._ids:
                self._ids[key] = lists.create(account_id, ListCreate(names[key])).id

    def ids(self, person: Person) -> list[int]:
        """Return the lists that a person's row names."""
        return [self._ids[key] for name in person.list_names() if (key := name_key(name)) in self._ids]
