"""Keeping a lease while the work goes on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from dagster_bus.core.delivery import Delivery
from dagster_bus.core.groups import Group
from dagster_bus.errors import DeliveryError, StoreError

BEATS_PER_LEASE = 4


class Keeper:
    """Renews a lease from a thread of its own until it is stopped or the lease is lost."""

    def __init__(self, group: Group, held: Delivery) -> None:
        self._group = group
        self._held = held
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
        self._group.renew(self._held)

    def _beat(self) -> None:
        pause_s = self._group.config.lease_ms / 1000 / BEATS_PER_LEASE
        while not self._stop.wait(pause_s):
            try:
                self._group.renew(self._held)
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
