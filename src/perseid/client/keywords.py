"""Options as keywords: `Producer("host:9876", linger_ms=5)` is `Producer(…, options=ProducerOptions(linger_ms=5))`.

mypy names a wrong keyword, as the constructors take `**keywords: Unpack[ProducerKeywords]`. What an option does is told
at the field of the same name in `perseid.client.options`; a test holds both to the same names and types.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, TypeVar

from perseid.base.config import nearest
from perseid.client.hooks import Hook
from perseid.client.options import FlowLimits

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

O = TypeVar("O", bound="DataclassInstance")  # noqa: E741 - options


class PushKeywords(TypedDict, total=False):
    """The options of a `PushConsumer` or a `Consumer`: `PushOptions`."""

    concurrency: int
    max_reconsume_times: int
    suspend_ms: int
    consume_timeout_ms: int
    dedupe: bool
    limits: FlowLimits
    pull_batch: int
    pull_interval_ms: int
    offsets_folder: Path | None
    hooks: Sequence[Hook]


class PullKeywords(TypedDict, total=False):
    """The options of a `PullConsumer`: `PullOptions`."""

    buffer_messages: int
    buffer_bytes: int
    hold_ms: int
    dedupe: bool
    hooks: Sequence[Hook]


class PopKeywords(TypedDict, total=False):
    """The options of a `PopConsumer` or a `LiteConsumer`: `PopOptions`."""

    ordered: bool
    hooks: Sequence[Hook]


class ProducerKeywords(TypedDict, total=False):
    """The options of a `Producer` or a `TransactionProducer`: `ProducerOptions`."""

    timeout_ms: int
    retries: int
    retry_when_not_stored_ok: bool
    compress_above_bytes: int
    compress_level: int
    max_body_bytes: int
    default_queues: int
    avoid_slow_brokers: bool
    linger_ms: float
    max_batch_messages: int
    max_batch_bytes: int
    buffer_messages: int
    buffer_bytes: int
    hooks: Sequence[Hook]


class OrderedProducerKeywords(TypedDict, total=False):
    """The options of an `OrderedProducer`: `OrderedProducerOptions`."""

    deadline_ms: int
    timeout_ms: int
    max_batch_messages: int
    max_batch_bytes: int
    buffer_messages: int
    buffer_bytes: int
    max_body_bytes: int
    default_queues: int
    hooks: Sequence[Hook]


def with_keywords(options: O, keywords: Mapping[str, object], client: type) -> O:
    """The options of a client, with those that its constructor was given as keywords; TypeError for a wrong name."""
    if not keywords:
        return options
    own = [field.name for field in fields(options)]
    for name in keywords:
        if name not in own:
            known = [*own, *(one for one in inspect.signature(client).parameters if one != "keywords")]
            like = nearest(name, known)
            hint = f"did you mean {like!r}?" if like else f"it takes {', '.join(sorted(known))}"
            raise TypeError(f"{client.__name__}() got an unexpected keyword argument {name!r}: {hint}")
    return replace(options, **keywords)
