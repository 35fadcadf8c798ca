"""The pages of docs/reference that are made from the sources are what the sources say."""

from tidy import settings_reference


def test_the_settings_are_what_the_options_say() -> None:
    assert settings_reference.DOCUMENT.read_text() == settings_reference.whole(), (
        f"write it anew: {settings_reference.COMMAND}"
    )
