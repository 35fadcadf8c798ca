"""Tests that are near to a change by their words: for where nobody knows which test executes what."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from .draw import Mutant

COMMON = {"self", "none", "not", "return", "and", "for", "init"}
NAMED, IMPORTED, SAME_PACKAGE = 10, 5, 3
"""What it counts for that a test file has its module's name, imports it, or stands in the folder of its package."""
ENOUGH = 1.5
"""So many uses of a word count half of what any number does."""
MOST = 6


def words_of(text: str) -> Counter[str]:
    """The parts of its names, in small letters."""
    return Counter(re.findall(r"[a-z0-9]+", text.replace("_", " ").lower()))


def likeness(of: Mapping[str, int], words: Mapping[str, float]) -> float:
    """How much of these words there is."""
    return sum(weight * of[word] / (of[word] + ENOUGH) for word, weight in words.items() if word in of)


class Nearby:
    """The test files of a tree."""

    def __init__(self, folder: Path, packages: list[str]) -> None:
        paths = [path for name in packages for path in sorted((folder / "tests" / name).rglob("test_*.py"))]
        self._texts = {str(path.relative_to(folder)): path.read_text() for path in paths}
        self._words = {name: words_of(text) for name, text in self._texts.items()}
        self._files_with = Counter(word for words in self._words.values() for word in words)

    def words(self, mutant: Mutant) -> dict[str, float]:
        """Those of its module, its function and its line, each by how few files have it."""
        found = words_of(f"{Path(mutant.path).stem} {mutant.where} {mutant.text}").keys() - COMMON
        return {
            word: math.log((len(self._texts) + 1) / (self._files_with[word] + 0.5))
            for word in sorted(found)
            if word in self._files_with and len(word) > 2
        }

    def nearest(self, mutant: Mutant) -> list[str]:
        """MOST files: those of its module's name, that import it, that use its words."""
        words = self.words(mutant)
        score = {name: self._score(name, mutant) + likeness(self._words[name], words) for name in self._texts}
        return sorted(score, key=lambda name: (-score[name], name))[:MOST]

    def _score(self, name: str, mutant: Mutant) -> float:
        module = Path(mutant.path).with_suffix("")
        words = [_singular(word) for word in module.name.split("_") if word]
        package, text = ".".join(module.parts[:-1]), self._texts[name]
        imported = rf"{re.escape(package)}\.{module.name}\b|from {re.escape(package)} import [^\n]*\b{module.name}\b"
        named = {_singular(word) for word in Path(name).stem.split("_")}
        return (
            NAMED * (named.issuperset(words))
            + IMPORTED * (re.search(imported, text) is not None)
            + SAME_PACKAGE * (name.split("/")[1] == module.parts[1])
        )


def _singular(word: str) -> str:
    return word.lower().rstrip("s")
