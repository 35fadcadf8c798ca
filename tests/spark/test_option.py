"""Each option says what it does, once, and has the names that it is known by."""

from dataclasses import fields

import pytest

from perseid.base.config import camel
from perseid.spark import keys, options, sink_options, tls
from perseid.spark.log import options as log_options
from perseid.spark.option import SparkOption, aliases, names

ONE = SparkOption("group", "A group.", aliases=("groupIdPrefix", "producerGroup"))
ALL = [*options.OPTIONS, *sink_options.OPTIONS, *log_options.OPTIONS, *keys.OPTIONS, *tls.OPTIONS]


def test_an_option_is_known_by_all_its_names() -> None:
    assert names([ONE]) == ("group", "groupIdPrefix", "producerGroup")
    assert aliases([ONE]) == {"groupidprefix": "group", "producergroup": "group"}


@pytest.mark.parametrize("found", [options.NAMES, sink_options.NAMES, log_options.NAMES], ids=["source", "sink", "log"])
def test_no_name_is_there_twice(found: tuple[str, ...]) -> None:
    assert len({name.lower() for name in found}) == len(found)


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_an_option_says_what_it_does(one: SparkOption) -> None:
    assert len(one.effect) > 15 and one.effect.endswith(".") and "  " not in one.effect


def test_defaults_are_those_of_the_parsed_options() -> None:
    parsed = {camel(field.name): field.default for field in fields(sink_options.SinkOptions)}
    told = {one.name: one.default for one in sink_options.OPTIONS}
    for name in ("batchMessages", "batchBytes", "timeoutMs", "deadlineMs", "group", "partitioner"):
        assert told[name] == str(parsed[name])
