"""What short words mean that people write back: leave, come back, help; and what is left for a person to judge."""

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
    """The whole message counts, whatever its case, accents, punctuation and width, also in words of one's own."""
    assert keywords.match_keyword(text, MORE).meaning == "stop"


@pytest.mark.parametrize(
    ("text", "meaning", "word"),
    [
        ("Start", "start", "START"), ("UNSTOP!", "start", "UNSTOP"), ("yes", "yes", "YES"), ("HELP", "help", "HELP"),
        ("info?", "help", "INFO"), ("stopp", "perhaps", None), ("alto", "other", None),
        ("opt-out", "stop", "OPT OUT"), ("optout", "stop", "OPT OUT"),
    ],
)  # fmt: skip
def test_words_and_their_names(text: str, meaning: str, word: str | None) -> None:
    """Each keyword is named in one way, and words of one's own mean nothing where they are not set."""
    assert keywords.match_keyword(text) == (meaning, word)


@pytest.mark.parametrize("text", REFUSALS)
def test_clear_refusals_opt_out(text: str) -> None:
    """Who refuses in other words, and says nothing else, is taken at them."""
    assert keywords.match_keyword(text, MORE).meaning == "refusal"


@pytest.mark.parametrize("text", PERHAPS)
def test_a_person_looks_at_what_may_be_a_refusal(text: str) -> None:
    """Where such words stand among others nobody is opted out by them, and a person has to look."""
    assert keywords.match_keyword(text, MORE).meaning == "perhaps"


@pytest.mark.parametrize("text", OTHER)
def test_everything_else_is_a_message(text: str) -> None:
    """Words that only look alike mean nothing."""
    assert keywords.match_keyword(text, MORE).meaning == "other"


def test_hostile_texts_are_read_in_no_time() -> None:
    """A long message of the words that patterns are made of is read at once, and never by guessing."""
    for word in ("stop ", "all ", "text ", "please ", "i want to stop getting all ", "\u0301", "ﷺ"):
        assert keywords.match_keyword(word * 4_000).meaning in ("perhaps", "other", "stop")
