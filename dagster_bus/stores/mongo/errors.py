"""What MongoDB's errors mean for the user, in words."""

from typing import Any

from pymongo.errors import (
    BulkWriteError,
    ConfigurationError,
    ConnectionFailure,
    DocumentTooLarge,
    InvalidOperation,
    OperationFailure,
    PyMongoError,
    WTimeoutError,
)

from dagster_bus.errors import (
    BusError,
    InvalidEvent,
    StoreError,
    StoreUnavailable,
    StoreUnusable,
    UsageError,
)

TRANSIENT = "TransientTransactionError"
UNKNOWN_COMMIT = "UnknownTransactionCommitResult"

NEEDS_A_SET = (
    "is a standalone MongoDB server, and the bus needs a replica set (of one node at least) for "
    "its transactions: start mongod with --replSet rs0, and run rs.initiate() in mongosh once"
)
NEEDS_INITIATION = "is a replica set that was never initiated: run rs.initiate() in mongosh once"

_WRITE_CONFLICT = 112
_WRITE_NOT_CONFIRMED = 64
DUPLICATE_KEY = 11000
_DOCUMENT_TOO_LARGE = 10334
_TRANSACTION_TOO_LARGE = 388
_ADVICE = {
    13: "its user is not allowed to do that; grant it the role readWrite on this database",
    18: "it refused the user name or the password",
    8000: "it refused the user name or the password",
    20: "it cannot do transactions; the bus needs a replica set",
    263: "it cannot do transactions; the bus needs a replica set",
    14031: "the disk is full",
}
_PASSING = {
    24: "it was busy for too long",
    43: "it lost the place of a reader",
    50: "it took too long to answer",
    _WRITE_NOT_CONFIRMED: "its members did not confirm the write in time; see rs.status()",
    91: "it is shutting down",
    100: "too few of its members are up to keep a write; see rs.status()",
    _WRITE_CONFLICT: "too many others wrote to the same partition at the same time",
    189: "it has no primary at the moment; see rs.status()",
    237: "it lost the place of a reader",
    239: "it no longer knows the state that was being read",
    246: "it does not know the state yet that was being read",
    10107: "it has no primary at the moment; see rs.status()",
    11600: "it is shutting down",
    11602: "it has no primary at the moment; see rs.status()",
    13435: "it has no primary at the moment; see rs.status()",
    13436: "it has no primary at the moment; see rs.status()",
}


def in_words(error: PyMongoError, shown: str) -> BusError:
    """An error of the driver as one of the bus, for the store at an address."""
    code, reason = cause(error)
    if code == _TRANSACTION_TOO_LARGE:
        return UsageError(
            "these events are too many for one transaction of this MongoDB: publish fewer at once"
        )
    if isinstance(error, DocumentTooLarge) or code == _DOCUMENT_TOO_LARGE or "too large" in reason:
        return InvalidEvent(
            "an event is larger than the 16 MiB that MongoDB keeps in one document: put its data "
            "elsewhere and publish its address"
        )
    if isinstance(error, ConnectionFailure | ConfigurationError):
        return StoreUnavailable(
            f"the store {shown} cannot be reached ({reason}); check that MongoDB runs "
            "there, and that hosts and replicaSet in the address are right"
        )
    if code in _PASSING:
        return StoreUnavailable(f"the store {shown} failed: {_PASSING[code]}. Try again later")
    if isinstance(error, InvalidOperation):
        return StoreError(f"the store {shown} was closed, or is used in a wrong way: {error}")
    if code == DUPLICATE_KEY:
        return StoreUnusable(f"the store {shown} is damaged: {reason}")
    if code in _ADVICE:
        return StoreUnusable(f"the store {shown} failed: {_ADVICE[code]}")
    return StoreError(f"the store {shown} failed: {reason}")


def outcome_unknown(shown: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the store {shown} was lost while it wrote: it is not known whether the last write was "
        "kept. Look before you repeat it, or publish again with the same idempotency key"
    )


def cause(error: PyMongoError) -> tuple[int | None, str]:
    """The server's number for what happened and its words, also if it tells of one document of
    many; without what the driver appends of its own state."""
    if isinstance(error, BulkWriteError):
        details: dict[str, Any] = dict(error.details or {})
        for each in [*details.get("writeErrors", []), *details.get("writeConcernErrors", [])]:
            return each.get("code"), str(each.get("errmsg"))
    text = str(error)
    for tail in (" (configured timeouts", ", Timeout:", ", full error:", ", Topology Description:"):
        text = text.partition(tail)[0]
    if isinstance(error, WTimeoutError):
        return _WRITE_NOT_CONFIRMED, text
    return error.code if isinstance(error, OperationFailure) else None, text
