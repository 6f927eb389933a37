"""Who takes the mail of which domain: large mailbox providers serve many, and count what comes for all of them.

A limit or a refusal about rate holds for a group, so that the others go on.
"""

# Domains that one provider serves; any other domain is a group of its own
_DOMAINS = {
    "google": "gmail.com googlemail.com",
    "microsoft": (
        "outlook.com hotmail.com live.com msn.com windowslive.com passport.com hotmail.co.uk hotmail.fr hotmail.de "
        "hotmail.it hotmail.es hotmail.nl hotmail.be hotmail.se hotmail.ca hotmail.com.br hotmail.com.ar hotmail.co.jp "
        "live.co.uk live.fr live.de live.it live.nl live.be live.se live.dk live.no live.ca live.com.au live.com.mx "
        "outlook.de outlook.fr outlook.es outlook.it outlook.be outlook.at outlook.dk outlook.pt outlook.jp outlook.in "
        "outlook.ie outlook.com.br outlook.com.au"
    ),
    "yahoo": (
        "yahoo.com ymail.com rocketmail.com myyahoo.com aol.com aim.com netscape.net verizon.net yahoo.co.uk yahoo.fr "
        "yahoo.de yahoo.it yahoo.es yahoo.ca yahoo.ie yahoo.se yahoo.no yahoo.dk yahoo.pl yahoo.ro yahoo.gr yahoo.at "
        "yahoo.be yahoo.in yahoo.co.in yahoo.co.id yahoo.co.th yahoo.co.nz yahoo.com.au yahoo.com.br yahoo.com.ar "
        "yahoo.com.mx yahoo.com.hk yahoo.com.sg yahoo.com.tw yahoo.com.ph yahoo.com.vn yahoo.com.tr aol.co.uk aol.de "
        "aol.fr aol.it"
    ),
    "apple": "icloud.com me.com mac.com",
    "gmx": "gmx.de gmx.net gmx.at gmx.ch gmx.com gmx.eu gmx.info gmx.org gmx.co.uk gmx.fr gmx.us web.de mail.com",
    "telekom": "t-online.de magenta.de",
    "proton": "proton.me protonmail.com protonmail.ch pm.me",
    "mail.ru": "mail.ru bk.ru inbox.ru list.ru internet.ru",
    "yandex": "yandex.ru yandex.com yandex.by yandex.kz yandex.ua ya.ru",
    "orange": "orange.fr wanadoo.fr",
    "sfr": "sfr.fr neuf.fr cegetel.net club-internet.fr",
    "libero": "libero.it virgilio.it iol.it inwind.it blu.it giallo.it",
    "seznam": "seznam.cz email.cz post.cz spoluzaci.cz",
    "wp": "wp.pl o2.pl tlen.pl",
    "onet": "onet.pl onet.eu op.pl poczta.onet.pl vp.pl",
    "tencent": "qq.com foxmail.com vip.qq.com",
    "netease": "163.com 126.com yeah.net vip.163.com",
    "zoho": "zoho.com zohomail.com zoho.eu zoho.in",
    "fastmail": "fastmail.com fastmail.fm",
    "bt": "btinternet.com btopenworld.com talk21.com",
}
LARGE = frozenset(_DOMAINS)
_GROUP_OF = {domain: name for name, domains in _DOMAINS.items() for domain in domains.split()}


def group_of(address: str) -> str:
    """Return the group whose servers take this address's mail."""
    domain = domain_of(address)
    return _GROUP_OF.get(domain, domain)


def domain_of(address: str) -> str:
    """Return the domain of an address."""
    return address[address.rfind("@") + 1 :].lower()


def is_shared(domain: str) -> bool:
    """Return whether a domain is a mailbox provider's own, where people have addresses and no say."""
    return domain in _GROUP_OF


def domains_of(group: str) -> tuple[str, ...]:
    """Return the domains of a group; a domain of nobody's is its own group."""
    return tuple(_DOMAINS.get(group, group).split())
