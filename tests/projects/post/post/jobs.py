"""The job of all groups but one: it writes down what it was given, and in which run."""

from pathlib import Path

from dagster import OpExecutionContext, in_process_executor, job, op

from dagster_bus import BusResource
from post.mishaps import stop_here


@op
def write_down(context: OpExecutionContext, bus: BusResource) -> None:
    with bus.delivery(context) as delivery:
        group, events = delivery.group, [*delivery.events()]
    stop_here(f"run-of-{group}")
    with Path(f"book-of-{group}").open("a") as book:
        book.writelines(f"{event.payload['n']} {context.run_id}\n" for event in events)


@job(executor_def=in_process_executor)
def deliver() -> None:
    write_down()
