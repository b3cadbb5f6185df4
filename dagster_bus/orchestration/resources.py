"""The bus as a Dagster resource."""

from dagster import ConfigurableResource

from dagster_bus.opening import Bus


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
