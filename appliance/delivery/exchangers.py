"""Whose machines a mail server is one of: what is limited, refused or spared holds for all mail that an organisation
takes, whatever the domains of the recipients are.
"""

# By the end of a server's name; large providers have the names that `groups` gives to their domains
_ENDS = {
    "google": "google.com googlemail.com psmtp.com",
    "microsoft": "outlook.com hotmail.com office365.us outlook.cn",
    "yahoo": "yahoodns.net yahoo.com aol.com",
    "apple": "icloud.com apple.com",
    "gmx": "gmx.net gmx.com web.de mail.com",
    "ionos": "kundenserver.de ionos.com ionos.co.uk perfora.net ui-dns.com",
    "telekom": "t-online.de",
    "proton": "protonmail.ch proton.me",
    "mail.ru": "mail.ru",
    "yandex": "yandex.ru yandex.net yandex.com",
    "orange": "orange.fr",
    "sfr": "sfr.fr sfr.net",
    "libero": "libero.it",
    "seznam": "seznam.cz",
    "wp": "wp.pl",
    "onet": "onet.pl",
    "tencent": "qq.com exmail.qq.com",
    "netease": "163.com 126.com netease.com",
    "zoho": "zoho.com zoho.eu zoho.in zohomail.com",
    "fastmail": "messagingengine.com",
    "bt": "btinternet.com bt.com",
    "mimecast": "mimecast.com mimecast.co.za",
    "proofpoint": "pphosted.com ppe-hosted.com gpphosted.com",
    "symantec": "messagelabs.com",
    "cisco": "iphmx.com",
    "trendmicro": "trendmicro.com trendmicro.eu",
    "sophos": "sophos.com hydra.sophos.com",
    "amazon": "amazonaws.com amazonses.com",
    "strato": "rzone.de strato.de",
    "hetzner": "your-server.de",
    "godaddy": "secureserver.net",
    "rackspace": "emailsrvr.com",
    "comcast": "comcast.net",
}
_ORGANISATION = {end: name for name, ends in _ENDS.items() for end in ends.split()}
# Labels under which countries give names away: there it takes one more to name somebody
_SHARED = frozenset(
    ("ac", "co", "com", "edu", "gob", "go", "gouv", "gov", "gv", "ltd", "me", "mil", "ne", "net", "nhs", "nom", "or",
     "org", "plc", "sch")
)  # fmt: skip


def organisation(host: str) -> str:
    """Return the name of whoever runs a mail server: a provider that is known, or the domain it stands in."""
    labels = host.lower().rstrip(".").split(".")
    for first in range(len(labels)):
        known = _ORGANISATION.get(".".join(labels[first:]))
        if known is not None:
            return known
    if len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in _SHARED:
        return ".".join(labels[-3:])
    return ".".join(labels[-2:])
