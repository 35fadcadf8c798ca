"""How docstrings are read for the site: a griffe extension, named in mkdocs.yml.

Docstrings are plain text in Markdown, as `help()` shows them. For the site, indented code becomes highlighted Python.
A name in backticks that the reference has becomes a link to it: a member of the same class, a name of `perseid.client`
and its like, or a dotted name.
"""

from __future__ import annotations

import re
from itertools import groupby
from textwrap import dedent
from typing import Any

from griffe import Alias, Class, Extension, Module, Object

NAMESPACES = ("perseid.client", "perseid.client.blocking", "perseid.testing.cluster", "perseid.spark")
"""Where a name in backticks is looked for."""
TOLD_BY_MODULES = {
    "client.stream": "Consumer",
    "client.consumer": "PushConsumer",
    "client.producer": "Producer",
    "client.pull": "PullConsumer",
    "client.pop": "PopConsumer",
    "client.lite": "LiteConsumer",
    "client.ordered": "OrderedProducer",
    "client.transactions": "TransactionProducer",
    "client.serializers": "Serializer",
    "client.hooks": "Hook",
    "client.tracing": "Tracer",
    "client.metrics": "ProducerMetrics",
    "client.otel": "OpenTelemetry",
    "client.errors": "ClientError",
    "testing.cluster": "VirtualCluster",
    "testing.virtual": "VirtualBroker",
}
"""Modules whose docstring says how a class is used: it is shown with that of the class."""
GAP = "\n\n"
CODE_BLOCK = re.compile(r"(?:\A|(?<=\n\n))((?: {4}.*\n|\n)* {4}.*)(?=\n|\Z)")
NAME = re.compile(r"(?<![`\w])`([A-Za-z_][\w.]*)(\(\))?`(?!`)")


def highlighted(text: str) -> str:
    """Indented blocks as fenced Python; those with arrows are drawings."""

    def fenced(found: re.Match[str]) -> str:
        parts = groupby(dedent(found[1]).strip("\n").split(GAP), lambda part: "text" if "-->" in part else "python")
        return GAP.join(f"```{language}\n{GAP.join(blocks)}\n```" for language, blocks in parts)

    return CODE_BLOCK.sub(fenced, text)


def linked(text: str, owner: Object, known: dict[str, str]) -> str:
    """Names in backticks as links; those that no page has stay code (`optional`)."""
    scope = owner if isinstance(owner, Class) else owner.parent

    def link(found: re.Match[str]) -> str:
        name = found[1]
        first = name.partition(".")[0]
        if isinstance(scope, Class) and first in scope.members:
            path = f"{scope.path}.{name}"
        elif first in known:
            path = known[first] + name.removeprefix(first)
        elif name.startswith("perseid."):
            main = TOLD_BY_MODULES.get(name.removeprefix("perseid."))
            path = f"{name}.{main}" if main else name
        else:
            return found[0]
        return f'<autoref identifier="{path}" optional><code>{name}{found[2] or ""}</code></autoref>'

    return NAME.sub(link, text)


class Docstrings(Extension):
    """Rewrites the docstrings of a package once all of it is loaded."""

    def on_package(self, *, pkg: Module, **_: Any) -> None:
        """Of the public names, and of all docstrings that stand beside them."""
        known: dict[str, str] = {}
        for namespace in NAMESPACES:
            module = pkg.get_member(namespace.removeprefix(f"{pkg.path}."))
            for name, member in module.members.items():
                if not name.startswith("_") and not (member.is_alias and module.exports and name not in module.exports):
                    known.setdefault(name, member.target_path if isinstance(member, Alias) else member.path)
        for path, name in TOLD_BY_MODULES.items():
            module, member = pkg.get_member(path), pkg.get_member(f"{path}.{name}")
            assert module.docstring is not None and member.docstring is not None, f"{path} has no docstring"
            member.docstring.value += f"\n\n{module.docstring.value}"
        self._rewrite(pkg, known)

    def _rewrite(self, owner: Object, known: dict[str, str]) -> None:
        if owner.docstring is not None:
            pieces = re.split(r"(```\w+\n.*?```)", highlighted(owner.docstring.value), flags=re.DOTALL)
            owner.docstring.value = "".join(
                piece if piece.startswith("```") else linked(piece, owner, known) for piece in pieces
            )
        for member in owner.members.values():
            if isinstance(member, Object):
                self._rewrite(member, known)
