"""A Delta table that takes each delivery once.

A delivery's commit names it, so that a repetition is recognised. The commit also carries the
lease's fencing token under a name of its own: a worker that takes a delivery over writes its token
into the log first, and any commit that a former holder bases on an older state of the table is then
refused by Delta itself.
"""

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from dagster_bus.core.delivery import Delivery
from dagster_bus.errors import LeaseLost, TableError
from dagster_bus.spark.tables.columns import WINDOW
from dagster_bus.spark.tables.delta_log import DeltaLog
from dagster_bus.spark.tables.storage import told
from dagster_bus.spark.tables.table import Table, Written

TRIES = 20
"""How often a commit is tried on top of what others have committed meanwhile."""

NOTHING = Written(StructType(), (), 0)


class DeltaSink:
    """One delivery's way into one table. Making it fences former holders of the delivery off."""

    def __init__(self, table: Table, delivery: Delivery) -> None:
        self._place = table
        self._delivery = delivery
        self._delta = DeltaLog(table)
        self._fence_name = f"{delivery.id}:fence"
        self._table = self._open()
        if delivery.token > 1 and not self.committed():
            self._fence_off()

    def committed(self) -> bool:
        """Whether the table holds this delivery's rows already."""
        return self._table is not None and self._version(self._table, self._delivery.id) is not None

    def brought(self) -> Written | None:
        """The files of the delivery's commit. They stay until it is settled, also if the table has
        others in their place by then."""
        if self._table is None:
            return None
        token = self._version(self._table, self._delivery.id)
        return None if token is None else self._delta.written(self._table, self._spool(token))

    def write(self, rows: DataFrame) -> Written:
        """Have Spark write the rows, under a folder that only this lease uses."""
        return self._delta.write(self._table, rows, self._spool(self._delivery.token))

    def commit(self, written: Written) -> None:
        """Make the rows visible, once. Raises LeaseLost if another worker fenced this one off."""
        if self._table is None:
            self._delta.create(written.columns)
            self._table = self._open()
        if not self.committed():
            self._log(written, self._delivery.id, self._fence_name)

    def _spool(self, token: int) -> str:
        """The folder of one lease on the delivery."""
        return f"{WINDOW}={self._delivery.window}/{self._delivery.id}-{token}"

    def _fence_off(self) -> None:
        """Write this lease's token into the log. A table that does not exist yet is made for it,
        without columns: its first rows bring them."""
        if self._table is None:
            self._table = self._delta.create(StructType())
        self._log(NOTHING, self._fence_name)
        self._table = self._open()

    def _log(self, written: Written, *names: str) -> None:
        """Add to the table's log, under names that no other commit may have touched meanwhile.

        If one has, it is either this delivery's own, by another worker, or a later fence. Other
        commits may be in the way too (one that adds a column, or replaces a window); this one then
        follows them."""
        versions = dict.fromkeys(names, self._delivery.token)
        for tries_left in reversed(range(TRIES)):
            assert self._table is not None  # noqa: S101  (whoever logs has opened or made it)
            try:
                self._delta.append(
                    self._table, self._delivery.window, written, versions, self._delivery.group
                )
                return
            except CommitFailedError as error:
                self._table = self._open()
                if self.committed():
                    return
                if not tries_left:
                    raise TableError(
                        f"the table {self._place.path} did not take delivery {self._delivery.id}, "
                        f"as others kept changing it; it is tried again later "
                        f"({told(error, self._place.options)})"
                    ) from None

    def _open(self) -> DeltaTable | None:
        """The table as it is now. Raises LeaseLost if its log has the fence of a later lease."""
        table = self._delta.open()
        fence = None if table is None else self._version(table, self._fence_name)
        if fence is not None and fence > self._delivery.token:
            raise LeaseLost(
                f"delivery {self._delivery.id} was taken over: the table {self._place.path} is "
                f"fenced with token {fence}, and this worker has {self._delivery.token}"
            )
        return table

    def _version(self, table: DeltaTable, name: str) -> int | None:
        return table.transaction_version(name)
