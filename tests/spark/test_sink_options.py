"""The options and columns of the sink, without Spark."""

import pytest

from perseid.base.errors import PerseidError
from perseid.spark.sink_options import SinkError, columns, parse

GIVEN = {"nameserver": "h:1", "topic": "t"}


def test_aliases_and_defaults() -> None:
    assert parse({"kafka.bootstrap.servers": "h:1", "topic": "t"}) == parse({"namesrv": "h:1", "topic": "t"})
    options = parse(GIVEN)
    assert (options.partitioner, options.stamps, options.query_id) == ("roundRobin", True, None)
    assert parse({**GIVEN, "PARTITIONER": "KEY"}).partitioner == "key"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"nameserver": None}, "nameserver"),
        ({"topik": "t"}, "'topik' is unknown to the perseid sink: did you mean 'topic'"),
        ({"sequenceby": "a", "partitoner": "key"}, "did you mean 'partitioner'"),
        ({"topic": "a b"}, "topic 'a b'"),
        ({"partitioner": "hash"}, "partitioner='hash' is unknown"),
        ({"partitioner": "colum"}, "did you mean 'column'"),
        ({"partitioner": "column"}, "partitionColumn"),
        ({"partitionColumn": "a"}, "partitioner=column"),
        ({"batchId": "3"}, "queryId"),
        ({"queryId": "a b"}, "queryId='a b'"),
        ({"queryId": "x" * 65}, "1 to 64"),
        ({"stamps": "yes"}, "stamps='yes' is neither true nor false"),
        ({"batchBytes": "9999999"}, "batchBytes"),
        ({"deadlineMs": "0"}, "deadlineMs='0'"),
        ({"kafka.bootstrap.servers": "other:1"}, "another name of it"),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(changed: dict[str, str | None], said: str) -> None:
    with pytest.raises(PerseidError, match=said):
        parse({name: value for name, value in {**GIVEN, **changed}.items() if value is not None})


def test_columns_by_any_of_their_names() -> None:
    options = parse({**GIVEN, "sequenceBy": "n"})
    fields = [("Body", "string"), ("keys", "array<string>"), ("TAG", "string"), ("orderingkey", "binary"), ("n", "int")]
    assert columns(options, fields) == {"value": "Body", "key": "keys", "tag": "TAG", "orderingKey": "orderingkey"}


@pytest.mark.parametrize(
    ("options", "fields", "said"),
    [
        ({}, {"val": "binary"}, "'val' has no meaning for the perseid sink: did you mean 'value'"),
        ({}, {"tag": "string"}, "needs a column value"),
        ({}, {"value": "bigint"}, "'value' is bigint; the perseid sink takes string or binary"),
        ({}, {"value": "binary", "body": "binary"}, "two names of the same"),
        ({}, {"value": "binary", "delay": "string"}, "'delay' is string"),
        ({}, {"value": "binary", "properties": "map<string,int>"}, "map<string,string>"),
        ({"topic": None}, {"value": "binary"}, "say where to"),
        ({"partitioner": "key"}, {"value": "binary"}, "needs a column key"),
        (
            {"partitioner": "column", "partitionColumn": "icao"},
            {"value": "binary", "icoa": "int"},
            "did you mean 'icoa'",
        ),
        ({"partitioner": "column", "partitionColumn": "d"}, {"value": "binary", "d": "double"}, "'d' is double"),
        ({"sequenceBy": "n,m"}, {"value": "binary", "n": "int"}, "sequenceBy: there is no column 'm'"),
        ({}, {"value": "binary", "offset": "bigint"}, "'offset' has no meaning"),
    ],
)
def test_columns_that_cannot_be_sent_are_refused(
    options: dict[str, str | None], fields: dict[str, str], said: str
) -> None:
    given = {name: value for name, value in {**GIVEN, **options}.items() if value is not None}
    with pytest.raises(SinkError, match=said):
        columns(parse(given), fields.items())
