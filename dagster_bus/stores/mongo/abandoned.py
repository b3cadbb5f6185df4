"""Transactions whose process is gone.

A server keeps a transaction open for a minute or more when its client dies in the middle, and all
that while nobody else can publish to its partitions. So whoever is held up looks for transactions
of this bus that have done nothing from one look to the next, and ends them. If one belongs to a
process that was only asleep, it is told that its transaction is not there, and does it again.
"""

import time

import pymongo
from pymongo import MongoClient
from pymongo.errors import PyMongoError

from dagster_bus.stores.mongo.documents import Document

PATIENCE_S = 0.5
"""How long to be held up before the first look."""

IDLE_S = 1.5
"""Between two looks. Hardly a client takes that long from one step of a transaction to the next. So
a worker that is held up is free again well before its lease is over."""


def application_name(database: str) -> str:
    """By which the sessions of a bus are known; a server takes no more bytes."""
    return f"dagster-bus:{database}".encode()[:128].decode(errors="ignore")


class AbandonedTransactions:
    """What one transaction that is held up has seen of the others."""

    def __init__(self, client: MongoClient[Document], database: str) -> None:
        self._client = client
        self._name = application_name(database)
        self._seen: dict[bytes, Document] = {}
        self._next_look_s = time.monotonic() + PATIENCE_S

    def end_some(self) -> None:
        """End those that have done nothing since the last look, if it is time for one. That it
        cannot be done, for lack of a right to, is no error: they end by themselves later."""
        if time.monotonic() < self._next_look_s:
            return
        self._next_look_s = time.monotonic() + IDLE_S
        try:
            self._look()
        except PyMongoError:
            self._seen = {}

    def _look(self) -> None:
        with pymongo.timeout(IDLE_S):
            found = {bytes(each["lsid"]["id"]): each for each in self._idle()}
            idle = [
                {"id": each["lsid"]["id"]}
                for id, each in found.items()
                if id in self._seen and _steps(each) == _steps(self._seen[id])
            ]
            if idle:
                self._client.admin.command("killSessions", idle)
        self._seen = found

    def _idle(self) -> list[Document]:
        """Open transactions of this bus in which nothing runs at the moment."""
        wanted = {"active": False, "appName": self._name, "transaction": {"$exists": True}}
        looked: list[Document] = [
            {"$currentOp": {"allUsers": False, "idleSessions": True}},
            {"$match": wanted},
        ]
        return list(self._client.admin.aggregate(looked))


def _steps(session: Document) -> tuple[int, int]:
    """Which transaction of a session it is, and how long its steps took together."""
    transaction = session["transaction"]
    return transaction["parameters"]["txnNumber"], transaction["timeActiveMicros"]
