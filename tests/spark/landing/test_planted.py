"""A model that does not find planted defects is not strong enough: each is noticed within so many histories, or by a
case of its own."""

from pathlib import Path

import pytest

from . import planted
from .landing import Failure
from .planted import FOUND, WITHIN, Defect, notices
from .planted_cases import CASES

PLANTED = [(form, defect, seed) for form, found in FOUND.items() for defect, seed in found.items()]


def test_there_are_enough_of_them_and_each_is_noticed_somewhere() -> None:
    noticed = {defect.__name__ for _, defect, _ in PLANTED} | {defect.__name__ for defect in CASES}
    takes_a_patch = ["patch", "return"]
    defects = {name for name, one in vars(planted).items() if [*getattr(one, "__annotations__", ())] == takes_a_patch}
    assert noticed == defects and len(noticed) >= 20


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("form", "defect", "seed"), PLANTED)
def test_a_planted_defect_is_noticed(form: str, defect: Defect, seed: int) -> None:
    assert notices(defect, form, seed) is not None, f"{defect.__name__}: not by {WITHIN} histories from {seed} on"


@pytest.mark.slow
@pytest.mark.once
@pytest.mark.parametrize("defect", CASES)
def test_a_planted_defect_breaks_its_case(defect: Defect, tmp_path: Path) -> None:
    case = CASES[defect]
    case(tmp_path / "sound")
    with pytest.MonkeyPatch.context() as patch:
        defect(patch)
        with pytest.raises(Failure) as failure:
            case(tmp_path / "planted")
    print(f"{defect.__name__}: {failure.value}")
