"""What the store on MongoDB says when it cannot be used: one clear message, in bounded time, and
never the password."""

import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo import MongoClient

from dagster_bus.core.topic import TopicConfig
from dagster_bus.errors import (
    BusError,
    InvalidEvent,
    StoreError,
    StoreNotFound,
    StoreUnavailable,
    StoreUnusable,
    UsageError,
)
from dagster_bus.stores import open_store
from tests.support.builders import append, new_batch
from tests.support.mongo import fresh_database_url
from tools.mongodb import ReplicaSet, Server, Standalone

PROJECT = Path(__file__).parents[2]
SECRET = "s3cret/p@ss"
QUOTED = "s3cret%2Fp%40ss"
NOBODY = "127.0.0.1:1"


@pytest.fixture
def url() -> str:
    return fresh_database_url()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReplicaSet]:
    """A set that asks for passwords, with a user who may write and one who may not."""
    folder = tmp_path_factory.mktemp("guarded")
    key = folder / "key"
    key.write_text("a" * 64)
    key.chmod(0o600)
    with ReplicaSet(folder, options=("--keyFile", str(key))) as replica_set:
        with MongoClient[dict[str, object]](replica_set.url("admin")) as client:
            client.admin.command("createUser", "root", pwd=SECRET, roles=["root"])
        with MongoClient[dict[str, object]](as_user(replica_set, "root", "admin")) as client:
            for name, role in (("writer", "readWrite"), ("reader", "read")):
                roles = [{"role": role, "db": "bus"}]
                client.admin.command("createUser", name, pwd=SECRET, roles=roles)
        yield replica_set


def as_user(replica_set: ReplicaSet, name: str, database: str, password: str = QUOTED) -> str:
    url = replica_set.url(database).replace("://", f"://{name}:{password}@")
    return f"{url}&authSource=admin"


def told(error: BaseException) -> str:
    """All that anybody may see of an error."""
    return "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mongodb://host:27017/?replicaSet=rs0", "names no database"),
        ("mongodb://host", "names no database"),
        ("mongodb:///bus", "not a MongoDB URL"),
        ("mongodb://host:99999/bus", "not a MongoDB URL"),
        ("mongodb://user:s3cret/p@ss@host/bus", "not a MongoDB URL.*percent-encoded"),
        ("mongodb://user:s3cret@p@ss@host/bus", "not a MongoDB URL.*percent-encoded"),
        ("mongodb://host/bus.events", "not a MongoDB URL"),
        ("mongodb://host/bus?replicaset=rs0&retries=4", "option 'retries' .* is unknown or has"),
        ("mongodb://user:s3cret@host/bus?tls=perhaps", "option 'tls' .* is unknown or has"),
        ("mongodb+srv://user:s3cret@host/", "names no database"),
    ],
)
def test_a_wrong_address_is_explained_without_repeating_it(url: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        open_store(url)
    assert "s3cret" not in told(error.value)


def test_a_server_that_is_not_there_is_said_so_in_bounded_time() -> None:
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable, match=f"{NOBODY}/bus cannot be reached") as error:
        open_store(f"mongodb://user:{QUOTED}@{NOBODY}/bus?replicaSet=rs0")
    assert time.monotonic() - begun < 15
    assert "s3cret" not in told(error.value)


def test_the_address_may_say_how_long_to_wait_for_a_server() -> None:
    begun = time.monotonic()
    with pytest.raises(StoreUnavailable):
        open_store(f"mongodb://{NOBODY}/bus?serverSelectionTimeoutMS=100")
    assert time.monotonic() - begun < 4


def test_a_standalone_server_is_refused_and_a_way_out_is_shown(tmp_path: Path) -> None:
    with Standalone(tmp_path) as server:
        for options in ("", "?replicaSet=rs0"):
            with pytest.raises(StoreUnusable, match=r"standalone .*--replSet.*rs\.initiate\(\)"):
                open_store(server.url("bus") + options)


def test_a_set_that_was_never_initiated_is_said_so(tmp_path: Path) -> None:
    with Server(tmp_path, ("--replSet", "rs0")) as server:
        server.start()
        server.wait_until_up()
        with pytest.raises(StoreUnusable, match=r"never initiated: run rs\.initiate\(\)"):
            open_store(f"mongodb://{server.address}/bus")


def test_a_wrong_password_is_refused_and_not_repeated(guarded: ReplicaSet) -> None:
    open_store(as_user(guarded, "writer", "bus")).close()
    with pytest.raises(StoreUnusable, match="refused the user name or the password") as error:
        open_store(as_user(guarded, "writer", "bus", f"{QUOTED}-wrong"))
    assert "s3cret" not in told(error.value)


def test_a_user_who_may_not_write_can_read_and_is_told_what_is_missing(guarded: ReplicaSet) -> None:
    with open_store(as_user(guarded, "writer", "bus")) as store:
        store.declare([TopicConfig("orders")])
    with open_store(as_user(guarded, "reader", "bus")) as store:
        assert store.topics() == [TopicConfig("orders")]
        with pytest.raises(StoreUnusable, match=r"not allowed .*readWrite") as error:
            append(store, new_batch("orders"))
    assert "s3cret" not in told(error.value)
    with pytest.raises(StoreUnusable, match=r"not allowed .*readWrite"):
        open_store(as_user(guarded, "reader", "elsewhere"))


def test_a_store_that_is_not_there_is_said_so_and_not_made(url: str) -> None:
    for _ in range(2):
        with pytest.raises(StoreNotFound, match="the first publish makes it"):
            open_store(url, create=False)


def test_a_closed_store_says_so(url: str) -> None:
    store = open_store(url)
    listener = store.listen()
    store.close()
    store.close()
    for use in (store.topics, store.listen, lambda: append(store, new_batch("orders"))):
        with pytest.raises(StoreError, match="was closed"):
            use()
    assert listener.wait(1) is True, "it has nothing to wait for any more"


def test_an_event_that_no_document_has_room_for_is_refused(url: str) -> None:
    with open_store(url) as store:
        store.declare([TopicConfig("orders")])
        large = '"' + "x" * (16 << 20) + '"'
        with pytest.raises(InvalidEvent, match="larger than the 16 MiB") as error:
            append(store, new_batch("orders", [0, 0], ["1", large]))
        assert "xxx" not in told(error.value)
        assert append(store, new_batch("orders"))[0].offset == 1


def test_a_missing_driver_is_named() -> None:
    code = (
        "import sys; sys.modules['pymongo'] = None\n"
        "from dagster_bus.stores import open_store\n"
        "open_store('mongodb://host/bus')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.stderr.splitlines()[-1].endswith("pip install 'dagster-bus[mongo]'")


def test_every_error_is_one_of_the_bus(url: str) -> None:
    """Also one that nobody has thought of."""
    with open_store(url) as store:
        store.declare([TopicConfig("orders")])
        with pytest.raises(BusError):
            append(store, new_batch("orders", schema_versions=[1 << 70]))
