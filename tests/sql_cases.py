"""Drawn SQL92 expressions and properties: mostly right, some wrong, for comparing with the original."""

from __future__ import annotations

import random
from typing import Any

from perseid.broker.consume import sql92
from perseid.core.conditions import NotComparable

NAMES = ["a", "b", "TAGS", "$x", "_y9", "missing"]
STRINGS = ["x", "y", "10", "ab", "true", "it''s", "", " ", "ü", "1e3"]
NUMBERS = ["0", "1", "5", "10", "9223372036854775807", "9223372036854775808", "7L", "1.5", "0.0", ".5", "5.", "1e3",
           "1E-2", "007", "1e400", "2.5e-3"]  # fmt: skip
VALUES = ["10", "9", "abc", "ab", "x", "true", "TRUE", "false", "1.5", "-3", "+4", " 7", "1e3", "NaN", "it's", "0x10",
          "9223372036854775808", "1d", "٣", "Infinity", "", "-0.0", "0"]  # fmt: skip
SIGNS = ["=", "<>", "<", "<=", ">", ">="]


class Draw:
    """Expressions of one seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def case(self) -> dict[str, object]:
        """An expression and the properties to ask it of."""
        draw = self._random
        expression = self._condition(draw.randrange(4))
        if draw.random() < 0.15:
            expression = self._broken(expression)
        properties = {name: draw.choice(VALUES) for name in NAMES[:-1] if draw.random() < 0.75}
        return {"expr": expression, "properties": properties}

    def _broken(self, text: str) -> str:
        draw = self._random
        words = text.split(" ")
        at = draw.randrange(len(words))
        kind = draw.randrange(4)
        if kind == 0:
            del words[at]
        elif kind == 1:
            words.insert(at, draw.choice(["AND", "(", ")", "NOT", "=", "IN", "NULL", "#", "'", "--", "IS", "BETWEEN"]))
        elif kind == 2:
            words[at] = words[at].lower()
        else:
            words.append(draw.choice(["x", "= 1", "/* c */", "-- c", ")", "LIKE 'x'"]))
        return " ".join(words)

    def _condition(self, depth: int) -> str:
        draw = self._random
        if depth > 0:
            kind = draw.randrange(5)
            if kind < 3:
                word = draw.choice(["AND", "OR", "and", "Or"])
                text = f"{self._condition(depth - 1)} {word} {self._condition(depth - 1)}"
                return f"( {text} )" if draw.random() < 0.5 else text
            if kind == 3:
                return f"NOT ( {self._condition(depth - 1)} )"
        negated = draw.choice(["", "", "NOT "])
        name, kind = draw.choice(NAMES), draw.randrange(9)
        if kind < 4:
            return f"{self._operand()} {draw.choice(SIGNS)} {self._operand()}"
        if kind == 4:
            return f"{name} {negated}BETWEEN {self._operand()} AND {self._operand()}"
        if kind == 5:
            items = " , ".join(self._string() for _ in range(draw.randint(1, 3)))
            return f"{self._operand() if draw.random() < 0.1 else name} {negated}IN ( {items} )"
        if kind == 6:
            return f"{self._operand()} IS {negated}NULL"
        if kind == 7:
            word = draw.choice(["CONTAINS", "STARTSWITH", "ENDSWITH", "contains"])
            return f"{name} {negated}{word} {self._string()}"
        return draw.choice(["TRUE", "FALSE", name, f"NOT {name}", f"- {name} > 3", f"{name} = TRUE", "NULL"])

    def _operand(self) -> str:
        draw = self._random
        kind = draw.randrange(10)
        if kind < 5:
            return draw.choice(NAMES)
        if kind < 8:
            return draw.choice(["", "", "", "- ", "+ "]) + draw.choice(NUMBERS)
        return draw.choice([self._string(), "TRUE", "FALSE", "NULL"])

    def _string(self) -> str:
        return f"'{self._random.choice(STRINGS)}'"


def result(case: dict[str, Any]) -> str:
    """What ours comes to, in the words in which the agent tells what Java's does."""
    try:
        expression = sql92.parse(case["expr"])
    except sql92.SqlError:
        return "refused"
    try:
        value: object = expression.result(case["properties"].get)
    except NotComparable:
        return "failed"
    return {True: "true", False: "false", None: "null"}.get(value, str(value))  # type: ignore[call-overload]
