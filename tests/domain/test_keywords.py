"""SMS keywords: opting out, opting in again, help, and texts that a user must judge."""

import pytest

from appliance.sending.sms import keywords

MORE = ("ALTO", "BAJA", "PARAR", "STOPP")
STOP = (
    "STOP", "stop", "Stop.", " STOP! ", "STOP 🙂", "“STOP”", "S.T.O.P", "ＳＴＯＰ", "STOP\u200b", "stop stop",
    "STOPALL", "stop all", "STOP-ALL", "UNSUBSCRIBE", "Cancel", "END", "end.", "QUIT", "revoke", "OPTOUT", "opt out",
    "OPT-OUT", "remove", "ARRET", "Arrêt", "TD", "t.d.", "alto", "Baja!", "PARAR", "Stopp",
)  # fmt: skip
REFUSALS = (
    "please stop", "STOP, thank you", "stop texting me", "Stop sending me messages!", "remove me",
    "please remove me from your list", "take me off this list", "can you unsubscribe me?", "I want to unsubscribe",
    "don't text me again", "Don’t contact me", "do not send me any more texts", "no more texts please", "opt me out",
    "I don't want your messages anymore", "leave me alone", "I revoke my consent", "Bitte keine SMS mehr",
    "Hört auf!", "melden Sie mich ab", "no más mensajes", "no me escriban más", "quiero darme de baja",
    "ne m'écrivez plus", "plus de SMS svp", "désabonnez-moi",
)  # fmt: skip
PERHAPS = (
    "please stop by", "Don't stop texting me", "stop sending me the wrong size", "cancel my order", "wrong number",
    "I told you to STOP this nonsense and now my lawyer writes", "STOP. Sent from my phone",
)  # fmt: skip
OTHER = ("", "🙂", "thanks", "the end", "yes please", "START NOW", "helpful", "info please", "what time do you open?",
         "stopwatch", "quitting time?", "1", "ok")  # fmt: skip


@pytest.mark.parametrize("text", STOP)
def test_keywords_opt_out(text: str) -> None:
    """A text that is only a keyword, built-in or configured, opts out, whatever its case, accents and punctuation."""
    assert keywords.match_keyword(text, MORE).meaning == "stop"


@pytest.mark.parametrize(
    ("text", "meaning", "word"),
    [
        ("Start", "start", "START"), ("UNSTOP!", "start", "UNSTOP"), ("yes", "yes", "YES"), ("HELP", "help", "HELP"),
        ("info?", "help", "INFO"), ("stopp", "perhaps", None), ("alto", "other", None),
        ("opt-out", "stop", "OPT OUT"), ("optout", "stop", "OPT OUT"),
    ],
)  # fmt: skip
def test_keywords_have_one_canonical_name(text: str, meaning: str, word: str | None) -> None:
    """Each spelling maps to one keyword; additional keywords have no effect unless they are configured."""
    assert keywords.match_keyword(text) == (meaning, word)


@pytest.mark.parametrize("text", REFUSALS)
def test_clear_refusals_opt_out(text: str) -> None:
    """A text that only asks for no more messages, in other words than a keyword, counts as a refusal."""
    assert keywords.match_keyword(text, MORE).meaning == "refusal"


@pytest.mark.parametrize("text", PERHAPS)
def test_ambiguous_refusals_are_left_for_review(text: str) -> None:
    """A text that contains such words among others is marked `perhaps` and does not opt out."""
    assert keywords.match_keyword(text, MORE).meaning == "perhaps"


@pytest.mark.parametrize("text", OTHER)
def test_other_texts_have_no_keyword(text: str) -> None:
    """Texts whose words only resemble keywords have no meaning."""
    assert keywords.match_keyword(text, MORE).meaning == "other"


def test_long_hostile_texts_are_classified() -> None:
    """Thousands of repeated keywords, words of refusals or combining characters are classified without an error."""
    for word in ("stop ", "all ", "text ", "please ", "i want to stop getting all ", "\u0301", "ﷺ"):
        assert keywords.match_keyword(word * 4_000).meaning in ("perhaps", "other", "stop")
