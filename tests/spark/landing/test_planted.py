"""A model that does not find planted defects is not strong enough: each is noticed within so many histories."""

import pytest

from .planted import FOUND, WITHIN, Defect, notices

PLANTED = [(form, defect, seed) for form, found in FOUND.items() for defect, seed in found.items()]


def test_there_are_enough_of_them() -> None:
    assert len({defect for _, defect, _ in PLANTED}) >= 20


@pytest.mark.once
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("form", "defect", "seed"), PLANTED)
def test_a_planted_defect_is_noticed(form: str, defect: Defect, seed: int) -> None:
    assert notices(defect, form, seed) is not None, f"{defect.__name__}: not by {WITHIN} histories from {seed} on"
