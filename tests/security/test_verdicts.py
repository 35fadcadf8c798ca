"""Decisions that are kept."""

from perseid.security.verdicts import MAX_VERDICTS, Verdicts


def test_they_are_forgotten_at_once_and_bounded() -> None:
    verdicts = Verdicts()
    verdicts.keep("a", "no")
    verdicts.keep("b", "")
    assert (verdicts.get("a"), verdicts.get("b"), verdicts.get("c")) == ("no", "", None)
    verdicts.forget()
    assert verdicts.get("a") is None
    for i in range(MAX_VERDICTS + 1):
        verdicts.keep(i, "")
    assert verdicts.get(0) is None and verdicts.get(MAX_VERDICTS) == ""
