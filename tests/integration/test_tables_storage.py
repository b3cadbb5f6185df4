"""Tables in object stores: one set of options for Spark and for the committer.

Spark's own client of S3 is in Java packages that no wheel carries. Here Spark writes to and reads
from addresses of S3 with all options, Hadoop has a folder in the place of the bucket, and the files
are brought from there to a real S3 server; all that follows is done for real.
"""

import os
import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import DataFrame, SparkSession

from dagster_bus.errors import LeaseLost, TableError
from dagster_bus.spark.tables import (
    Sink,
    Table,
    describe_windows,
    maintain,
    open_sink,
    read_table,
    tables_at,
)
from dagster_bus.spark.tables.storage import (
    Storage,
    committer_path,
    secrets_kept,
    spark_options,
    spark_path,
    storage_options,
    told,
)
from dagster_bus.spark.tables.table import Written
from tests.support.dagster_dev import free_ports
from tests.support.tables import A, B, delivery, numbers

OPTIONS = {
    "aws_access_key_id": "AKIA-ME",
    "aws_secret_access_key": "not-for-anybody",
    "aws_region": "eu-central-1",
    "aws_endpoint_url": "http://127.0.0.1:1",
}


def test_one_set_of_options_serves_spark_and_the_committer() -> None:
    options = {**OPTIONS, "compression": "zstd", "AWS_SESSION_TOKEN": "for-an-hour"}
    assert storage_options(options) == {
        **OPTIONS,
        "aws_session_token": "for-an-hour",
        "aws_allow_http": "true",
    }
    assert spark_options(options) == {
        "compression": "zstd",
        "fs.s3a.access.key": "AKIA-ME",
        "fs.s3a.secret.key": "not-for-anybody",
        "fs.s3a.session.token": "for-an-hour",
        "fs.s3a.aws.credentials.provider": (
            "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"
        ),
        "fs.s3a.endpoint": "http://127.0.0.1:1",
        "fs.s3a.endpoint.region": "eu-central-1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.impl.disable.cache": "true",
        "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    }
    hosted = {"aws_endpoint_url": "https://s3", "aws_virtual_hosted_style_request": "true"}
    assert storage_options(hosted) == hosted
    assert spark_options(hosted)["fs.s3a.path.style.access"] == "false"
    assert spark_options(hosted)["fs.s3a.connection.ssl.enabled"] == "true"
    assert "fs.s3a.impl.disable.cache" not in spark_options({"header": "true"})


@pytest.mark.parametrize(
    ("path", "spark", "committer"),
    [
        ("s3://bucket/a", "s3a://bucket/a", "s3://bucket/a"),
        ("s3a://bucket/a", "s3a://bucket/a", "s3://bucket/a"),
        ("gs://bucket/a", "gs://bucket/a", "gs://bucket/a"),
        ("/data/a b", "/data/a b", "/data/a b"),
        ("file:///data/a%20b", "/data/a b", "/data/a b"),
    ],
)
def test_a_path_is_spelled_as_each_of_them_wants_it(path: str, spark: str, committer: str) -> None:
    assert (spark_path(path), committer_path(path)) == (spark, committer)


def test_secrets_are_not_told() -> None:
    table = Table("s3://bucket/a", options=OPTIONS)
    assert "not-for-anybody" not in repr(table)
    assert told("no: AKIA-ME/not-for-anybody at eu-central-1", OPTIONS) == (
        "no: ***/*** at eu-central-1"
    )
    with (
        pytest.raises(TableError, match=r"ValueError: \*\*\* is wrong") as caught,
        secrets_kept(table),
    ):
        raise ValueError("not-for-anybody is wrong")
    assert caught.value.__cause__ is None
    with pytest.raises(ValueError, match="all is open"), secrets_kept(table):
        raise ValueError("all is open")


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    """How to reach a real S3 server with an empty bucket."""
    beside = Path(sys.executable).with_name("moto_server")
    program = str(beside) if beside.exists() else shutil.which("moto_server")
    assert program, "there is no S3 server here: pip install 'dagster-bus[dev]'"
    (port,) = free_ports(1)
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    server = subprocess.Popen(
        [program, "-H", "127.0.0.1", "-p", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        endpoint = f"http://127.0.0.1:{port}"
        make_bucket(endpoint)
        yield {**OPTIONS, "aws_region": "us-east-1", "aws_endpoint_url": endpoint}
    finally:
        server.kill()
        server.wait()


def make_bucket(endpoint: str) -> None:
    for _ in range(300):
        try:
            request = urllib.request.Request(f"{endpoint}/bucket", method="PUT")
            with urllib.request.urlopen(request, timeout=5):
                return
        except urllib.error.URLError:
            time.sleep(0.1)
    pytest.fail("the S3 server does not answer")


@pytest.fixture
def bucket(tmp_path: Path) -> Path:
    """The folder that Spark has for the bucket."""
    return tmp_path / "bucket"


@pytest.fixture
def table(s3: dict[str, str], bucket: Path) -> Table:
    bucket.mkdir()
    overload = "org.apache.hadoop.fs.viewfs.ViewFileSystemOverloadScheme"
    elsewhere = {
        "fs.s3a.impl": overload,
        "fs.viewfs.overload.scheme.target.s3a.impl": "org.apache.hadoop.fs.LocalFileSystem",
        "fs.viewfs.mounttable.bucket.link./orders": bucket.as_uri(),
    }
    return Table("s3://bucket/orders", options={**s3, **elsewhere})


def written_by_spark(sink: Sink, table: Table, bucket: Path, rows: DataFrame) -> Written:
    """What a delivery writes, brought to where the committer looks for it."""
    before = {*bucket.rglob("*.*")}
    columns = sink.write(rows).columns
    files = [file for file in {*bucket.rglob("*.*")} - before if file.suffix != ".crc"]
    assert all(file.suffix == ".parquet" for file in files), "no _SUCCESS among them"
    for file in files:
        name = file.relative_to(bucket)
        target = f"{table.options['aws_endpoint_url']}/bucket/orders/{name}"
        put = urllib.request.Request(target, data=file.read_bytes(), method="PUT")
        put.add_header("Content-Type", "application/octet-stream")
        with urllib.request.urlopen(put, timeout=5):
            pass
    (folder,) = {str(file.parent.relative_to(bucket)) for file in files}
    found = Storage(table).parquet_files(folder)
    return Written(columns, found, sum(each.rows for each in found))


def test_deliveries_are_committed_once_and_fenced_in_s3(
    spark: SparkSession, table: Table, bucket: Path
) -> None:
    def write(sink: Sink, first: int, count: int = 1) -> Written:
        return written_by_spark(sink, table, bucket, numbers(spark, first, count))

    first, second = delivery("d1", A), delivery("d2", B)
    sinks = [open_sink(table, each) for each in (first, second)]
    written = [write(sinks[0], 1, 2), write(sinks[1], 3)]
    assert [each.rows for each in written] == [2, 1]
    for sink, each in zip(sinks, written, strict=True):
        sink.commit(each)
    sinks[0].commit(written[0])
    assert open_sink(table, replace(first, token=2)).committed()
    third = delivery("d3", A)
    late = open_sink(table, third)
    lost = write(late, 9)
    successor = open_sink(table, replace(third, token=2))
    with pytest.raises(LeaseLost, match="was taken over"):
        late.commit(lost)
    successor.commit(write(successor, 4))
    assert seen(table) == {(A, 1), (A, 2), (A, 4), (B, 3)}
    read = read_table(spark, table, [A])
    assert read is not None
    assert sorted(row.n for row in read.collect()) == [1, 2, 4]
    done = maintain(table, busy=["d3"])
    assert done.removed == 0
    assert [(each.window, each.files, each.rows) for each in describe_windows(table)] == [
        (A, 1, 3),
        (B, 1, 1),
    ]
    assert seen(table) == {(A, 1), (A, 2), (A, 4), (B, 3)}
    assert tables_at(table) == [table]


def seen(table: Table) -> set[tuple[str, int]]:
    """What an independent reader finds."""
    found = pl.read_delta(table.path, storage_options=storage_options(table.options))
    return set(found.select("_window", "n").rows())


def test_a_store_that_refuses_is_told_of_without_its_secrets() -> None:
    nobody = {**OPTIONS, "aws_endpoint_url": "http://127.0.0.1:9", "aws_secret_access_key": "127.0"}
    with pytest.raises(Exception, match="bucket") as caught:
        open_sink(Table("s3://bucket/orders", options=nobody), delivery("d1"))
    assert "127.0" not in str(caught.value)
