"""Options objects as flags: a command takes dataclasses, and has a flag for each of their fields.

    @flattened
    def replay(table: Table, topic: Topic, options: ReplayOptions, run: JobOptions) -> None: ...

A field's annotation has typer's own `Option`, or the `Doc` of an API's options (`perseid.base.options`). The latter get
their flags from their types: `Mapping[str, str]` is NAME=VALUE and repeatable, `Sequence[str]` is repeatable, a
`Moment` is a time as people write it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple, Protocol, get_args, get_origin, get_type_hints

import typer

from perseid.base.options import Doc, Moment
from perseid.cli.values import moment, pairs


class Command(Protocol):
    """A command as typer takes it."""

    def __call__(self, *args: Any, **given: Any) -> None: ...


class _Flag(NamedTuple):
    """One field as a parameter of the command, and how the field's value is made of the parameter's."""

    parameter: inspect.Parameter
    convert: Callable[[Any], Any] | None = None


def flattened(command: Command) -> Command:
    """The command with the fields of its dataclasses in their place, for typer. Names must differ."""
    hints = get_type_hints(command, include_extras=True)
    objects: dict[str, tuple[type, list[_Flag]]] = {}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        kind = hints[parameter.name]
        if dataclasses.is_dataclass(kind) and isinstance(kind, type):
            flags = _flags(kind)
            objects[parameter.name] = kind, flags
            parameters += [flag.parameter for flag in flags]
        else:
            parameters.append(parameter.replace(annotation=kind, kind=inspect.Parameter.KEYWORD_ONLY))

    def run(**given: Any) -> None:
        for name, (kind, flags) in objects.items():
            values = {flag.parameter.name: given.pop(flag.parameter.name) for flag in flags}
            for flag in flags:
                if flag.convert is not None:
                    values[flag.parameter.name] = flag.convert(values[flag.parameter.name])
            given[name] = kind(**values)
        command(**given)

    run.__name__ = getattr(command, "__name__", "command")
    run.__doc__ = command.__doc__
    run.__module__ = command.__module__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


def _flags(kind: type) -> list[_Flag]:
    hints = get_type_hints(kind, include_extras=True)
    return [_flag(field, hints[field.name]) for field in dataclasses.fields(kind)]


def _flag(field: dataclasses.Field[Any], hint: Any) -> _Flag:
    default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
    docs = [each for each in getattr(hint, "__metadata__", ()) if isinstance(each, Doc)]
    if not docs:
        return _Flag(_parameter(field.name, hint, default))
    kind, (doc,) = get_args(hint)[0], docs
    written = (doc.flags or (f"--{field.name.replace('_', '-')}",))[0]
    option = typer.Option(*doc.flags, help=doc.text, min=doc.least)
    texts = Annotated[list[str] | None, option]
    if get_origin(kind) is Mapping:
        return _Flag(_parameter(field.name, texts, None), lambda given: pairs(given, written))
    if get_origin(kind) is Sequence:
        return _Flag(_parameter(field.name, texts, None), lambda given: tuple(given or ()))
    if kind in (Moment, Moment | None):
        text: Any = str if kind == Moment else str | None
        return _Flag(_parameter(field.name, Annotated[text, option], default), lambda given: moment(given, written))
    return _Flag(_parameter(field.name, Annotated[kind, option], default))


def _parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)
