"""The bus as a Dagster resource."""

from collections.abc import Iterator
from contextlib import contextmanager

from dagster import ConfigurableResource

from dagster_bus.opening import Bus
from dagster_bus.orchestration.handed import HandedOver, RunContext, hand_over
from dagster_bus.spec.kept import kept_spec


class BusResource(ConfigurableResource[Bus]):
    """Opens the bus that a `topics.yaml` declares.

    Nothing is opened while definitions load; each tick, run or asset opens the bus when it needs
    it:

        with bus.open() as opened:
            opened.publish("orders.created", {"order_id": "A-1"})
    """

    topics_yaml: str

    def open(self) -> Bus:
        """The bus, to be closed by the caller."""
        return Bus.open(self.topics_yaml)

    @contextmanager
    def delivery(self, context: RunContext) -> Iterator[HandedOver]:
        """What a group has started this run for:

        with bus.delivery(context) as delivery:
            for event in delivery.events():
                print(event.payload)
        """
        loaded = kept_spec(self.topics_yaml)
        with Bus.declared(loaded) as opened:
            yield hand_over(loaded, opened, context.run)
