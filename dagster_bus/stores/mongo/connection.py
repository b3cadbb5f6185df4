"""One MongoDB database: opening it, its sessions and transactions, and how long it may take.

A transaction is done again if it had no effect. Whether a commit went through is asked until it is
known: the server remembers each transaction by its session and number, also after a change of
primary, so asking again commits nothing twice. The work is done anew only if the server says that
the transaction is not there.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

import pymongo
from bson.errors import BSONError
from bson.timestamp import Timestamp
from pymongo import MongoClient, ReadPreference
from pymongo.client_session import ClientSession
from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    PyMongoError,
    ServerSelectionTimeoutError,
)
from pymongo.read_concern import ReadConcern
from pymongo.write_concern import WriteConcern

from dagster_bus.core.closing import Closing
from dagster_bus.errors import InvalidEvent, StoreError, StoreUnusable, UsageError
from dagster_bus.stores.mongo import errors
from dagster_bus.stores.mongo.abandoned import AbandonedTransactions, application_name
from dagster_bus.stores.mongo.address import parse_address
from dagster_bus.stores.mongo.documents import Document
from dagster_bus.stores.mongo.pace import Pace
from dagster_bus.stores.mongo.schema import prepare

OPENING_S = 5.0
"""How long a server may take to answer at all, unless the address says so itself."""

OPERATION_S = 30.0
"""How long any verb may take. A change of primary takes some ten seconds of it."""

PROBE_S = 2.0
ASK_AGAIN_S = 0.05

DURABLE = WriteConcern("majority", j=True)
COMMITTED = ReadConcern("majority")
SNAPSHOT = ReadConcern("snapshot")

T = TypeVar("T")


class MongoConnection(Closing):
    """A database shared by the threads of a process."""

    def __init__(self, url: str, *, create: bool) -> None:
        self._address = parse_address(url)
        self._client = self._connect()
        self._closed = False
        self._pace = Pace()
        self._seen: Timestamp | None = None
        self._seen_lock = threading.Lock()
        self.database = self._client.get_database(
            self._address.database,
            read_concern=COMMITTED,
            write_concern=DURABLE,
            read_preference=ReadPreference.PRIMARY,
        )
        try:
            self._require_replica_set()
            with self.bounded():
                prepare(self.database, self._address.shown, create=create)
        except BaseException:
            self.close()
            raise

    @contextmanager
    def bounded(self, seconds: float = OPERATION_S) -> Iterator[None]:
        """A block that takes so long at most, and whose errors are the bus's own."""
        self.require_open()
        try:
            with pymongo.timeout(max(seconds, 0.001)):  # 0 would be without end
                yield
        except BulkWriteError as error:  # it repeats whole documents: they are not for logs
            raise errors.in_words(error, self._address.shown) from None
        except PyMongoError as error:
            raise errors.in_words(error, self._address.shown) from error
        except (BSONError, OverflowError) as error:
            raise InvalidEvent(f"MongoDB cannot keep that: {error}") from error

    def require_open(self) -> None:
        if self._closed:
            raise StoreError(f"the store {self._address.shown} was closed; open it again")

    def session(self) -> ClientSession:
        """A session that sees what this store has written, also if there is a new primary."""
        self.require_open()
        session = self._client.start_session(causal_consistency=True)
        if self._seen is not None:
            session.advance_operation_time(self._seen)
        return session

    @contextmanager
    def reading(self) -> Iterator[ClientSession]:
        with self.bounded(), self.session() as session:
            yield session

    @contextmanager
    def snapshot(self) -> Iterator[ClientSession]:
        """A session that sees the database at one moment."""
        with self.bounded(), self._client.start_session(snapshot=True) as session:
            yield session

    def transact(self, work: Callable[[ClientSession], T]) -> T:
        """Do the work in a transaction, durably or not at all. It may be called several times."""
        deadline = time.monotonic() + OPERATION_S
        abandoned = AbandonedTransactions(self._client, self._address.database)
        with self.session() as session:
            while True:
                self._pace.wait()
                try:
                    with self.bounded(deadline - time.monotonic()):
                        result = _try(session, work)
                    self._commit(session)
                except _NoEffect as error:
                    self._pace.slow_down()
                    abandoned.end_some()
                    if time.monotonic() > deadline:
                        raise errors.in_words(error.cause, self._address.shown) from error.cause
                else:
                    self._pace.speed_up()
                    return result

    def _commit(self, session: ClientSession) -> None:
        """Commit, and if the answer is lost ask again: for that there is time anew."""
        deadline = time.monotonic() + OPERATION_S
        while True:
            try:
                with self.bounded(deadline - time.monotonic()):
                    _commit_once(session)
            except _NotKnown as error:
                if time.monotonic() > deadline:
                    raise errors.outcome_unknown(self._address.shown) from error.cause
                time.sleep(ASK_AGAIN_S)
            else:
                self._note(session.operation_time)
                return

    def _note(self, when: Timestamp | None) -> None:
        with self._seen_lock:
            if when is not None and (self._seen is None or when > self._seen):
                self._seen = when

    def _connect(self) -> MongoClient[Document]:
        waits: dict[str, Any] = {}
        if "serverselectiontimeoutms" not in self._address.options:
            waits = {"serverSelectionTimeoutMS": round(OPENING_S * 1000)}
        try:
            return MongoClient(
                self._address.url,
                appname=application_name(self._address.database),
                retryWrites=True,
                retryReads=True,
                **waits,
            )
        except (ConfigurationError, ValueError) as error:
            raise UsageError(f"the store {self._address.shown} cannot be opened: {error}") from None

    def _require_replica_set(self) -> None:
        found = self._hello()
        if found.get("isreplicaset"):
            raise StoreUnusable(f"{self._address.shown} {errors.NEEDS_INITIATION}")
        if "setName" not in found and found.get("msg") != "isdbgrid":
            raise StoreUnusable(f"{self._address.shown} {errors.NEEDS_A_SET}")

    @property
    def _patience_s(self) -> float:
        patience_s: float = self._client.options.server_selection_timeout
        return patience_s

    def _hello(self) -> Document:
        """What the primary says of itself, or the one server that is there instead."""
        try:
            with pymongo.timeout(self._patience_s):
                return self._client.admin.command("hello")
        except PyMongoError as error:
            found = None
            if isinstance(error, ServerSelectionTimeoutError):
                found = self._ask_directly()
            if found is None or "setName" in found:
                raise errors.in_words(error, self._address.shown) from error
            return found

    def _ask_directly(self) -> Document | None:
        """What the one server of the address says of itself, whatever set it should belong to."""
        with suppress(PyMongoError):
            client: MongoClient[Document] = MongoClient(
                self._address.url,
                directConnection=True,
                replicaSet=None,
                serverSelectionTimeoutMS=round(min(PROBE_S, self._patience_s) * 1000),
            )
            with client:
                return client.admin.command("hello")
        return None

    def close(self) -> None:
        self._closed = True
        self._client.close()


class _Interrupted(Exception):
    def __init__(self, cause: PyMongoError) -> None:
        self.cause = cause


class _NoEffect(_Interrupted):
    """The transaction is not there; it may be done again."""


class _NotKnown(_Interrupted):
    """The answer to a commit was lost."""


def _try(session: ClientSession, work: Callable[[ClientSession], T]) -> T:
    """The work in a transaction that is still to be committed."""
    session.start_transaction(SNAPSHOT, DURABLE, ReadPreference.PRIMARY)
    try:
        return work(session)
    except BaseException as error:
        session.abort_transaction()
        if isinstance(error, PyMongoError) and error.has_error_label(errors.TRANSIENT):
            raise _NoEffect(error) from None
        raise


def _commit_once(session: ClientSession) -> None:
    try:
        session.commit_transaction()
    except PyMongoError as error:
        if error.has_error_label(errors.UNKNOWN_COMMIT):
            raise _NotKnown(error) from None
        if error.has_error_label(errors.TRANSIENT):
            raise _NoEffect(error) from None
        raise
