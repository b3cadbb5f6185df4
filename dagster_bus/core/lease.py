"""Keeping a lease while the work goes on, and what its holder may ask and say meanwhile."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from dagster_bus.core.delivery import Delivery
from dagster_bus.core.event import Batch, Event, Message
from dagster_bus.core.groups import Group
from dagster_bus.core.reporting import Report
from dagster_bus.errors import DeliveryError, StoreError

BEATS_PER_LEASE = 4


class Keeper:
    """Renews a lease from a thread of its own until it is stopped or the lease is lost."""

    def __init__(self, group: Group, held: Delivery) -> None:
        self.held = held
        """The delivery as its holder last saw it: what it has reported on has left it."""
        self._group = group
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease-{held.id}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Renew now, so that a whole lease lies ahead; raises LeaseLost if it is over.

        A thread's last heartbeat says nothing of now: this process may have been asleep."""
        self._group.renew(self.held)

    def events(self) -> Iterator[Event]:
        """The events that are held, as they are to be delivered."""
        return self._group.events(self.held)

    def prepare(self, topic: str, messages: Sequence[Message]) -> Batch:
        """What is to be published together with the settling. Raises UsageError if it cannot be."""
        return self._group.prepare(topic, messages)

    def report(self, report: Report) -> Delivery:
        """Say how some events ended; returns what is left, which is done if nothing is."""
        self.held = self._group.report(self.held, report)
        return self.held

    def _beat(self) -> None:
        pause_s = self._group.config.lease_ms / 1000 / BEATS_PER_LEASE
        while not self._stop.wait(pause_s):
            try:
                self._group.renew(self.held)
            except DeliveryError:
                return
            except StoreError:
                continue  # the store may be back at the next beat; if not, the lease runs out


@contextmanager
def kept(group: Group, held: Delivery) -> Iterator[Keeper]:
    """Keep a lease alive for the length of a block."""
    keeper = Keeper(group, held)
    keeper.start()
    try:
        yield keeper
    finally:
        keeper.stop()
