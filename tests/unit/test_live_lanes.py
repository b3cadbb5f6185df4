"""Jobs in lanes: of each lane one at a time, in order, whatever else happens."""

from collections import defaultdict

from hypothesis import given
from hypothesis import strategies as st

from dagster_bus.core.event import Event
from dagster_bus.core.group_config import Order
from dagster_bus.core.ranges import place_of
from dagster_bus.live.jobs import Job
from dagster_bus.live.lanes import Lanes, lanes_by, lanes_by_topic


def event(offset: int, key: str | None = None, partition: int = 0, topic: str = "orders") -> Event:
    return Event(
        id=str(offset),
        ts=1,
        topic=topic,
        partition=partition,
        offset=offset,
        key=key,
        source=None,
        schema_version=1,
        attributes_json="{}",
        priority=2,
        idempotency_key=None,
        ttl_s=None,
        payload_json=str(offset),
        payload_sha256=None,
    )


def jobs(*keys: str | None, delivery: str = "d") -> list[Job]:
    return [job(event(n, key), delivery) for n, key in enumerate(keys, 1)]


def job(about: Event, delivery: str = "d") -> Job:
    return Job(about, place_of(about), 1, delivery)


def offsets(taken: list[Job]) -> list[int]:
    return [job.event.offset for job in taken]


def test_without_an_order_every_job_may_be_taken_at_once() -> None:
    lanes = Lanes(lanes_by(Order.NONE))
    lanes.put(jobs("a", "a", "a"))
    assert offsets(lanes.take(10)) == [1, 2, 3]


def test_a_key_has_one_job_out_and_the_next_when_that_is_over() -> None:
    lanes = Lanes(lanes_by(Order.KEY))
    lanes.put(jobs("a", "a", "b", None, None))
    taken = lanes.take(10)
    assert offsets(taken) == [1, 3, 4, 5], "events without a key wait for no other"
    assert lanes.take(10) == []
    lanes.release(taken[0])
    assert offsets(lanes.take(10)) == [2]


def test_partitions_and_topics_can_be_lanes_too() -> None:
    events = [event(1), event(2), event(1, partition=1), event(1, topic="stock")]
    by_partition, by_topic = Lanes(lanes_by(Order.PARTITION)), Lanes(lanes_by_topic)
    for lanes in (by_partition, by_topic):
        lanes.put(map(job, events))
    assert [job.event for job in by_partition.take(9)] == [events[0], events[2], events[3]]
    assert [job.event for job in by_topic.take(9)] == [events[0], events[3]]


def test_one_hand_may_take_several_jobs_of_a_lane_in_a_row() -> None:
    lanes = Lanes(lanes_by(Order.PARTITION), in_a_row=True)
    lanes.put(jobs("a", "b", "c", "d"))
    taken = lanes.take(3)
    assert offsets(taken) == [1, 2, 3]
    lanes.put_back(taken[1:])
    assert offsets(lanes.take(9)) == [2, 3, 4]


def test_what_is_behind_a_job_is_the_rest_of_its_lane_and_its_delivery() -> None:
    lanes = Lanes(lanes_by(Order.KEY))
    lanes.put(jobs("a", "a", "b", "a"))
    lanes.put(jobs("a", delivery="redriven"))
    first, _ = lanes.take(2)
    assert offsets(lanes.take_behind(first)) == [2, 4]
    assert len(lanes) == 1
    lanes.release(first)
    assert [job.delivery for job in lanes.take(9)] == ["redriven"]


def test_a_job_without_an_order_has_nothing_behind_it() -> None:
    lanes = Lanes(lanes_by(Order.NONE))
    lanes.put(jobs("a", "a"))
    (first,) = lanes.take(1)
    assert lanes.take_behind(first) == []


def test_draining_leaves_the_lanes_of_jobs_that_are_out() -> None:
    for in_a_row in (False, True):
        lanes = Lanes(lanes_by(Order.KEY), in_a_row=in_a_row)
        lanes.put(jobs("a", "a", "b"))
        (first,) = lanes.take(1)
        assert offsets(lanes.drain()) == [3]
        lanes.release(first)
        assert offsets(lanes.drain()) == [2]
        assert len(lanes) == 0


def test_all_jobs_of_a_delivery_can_be_dropped() -> None:
    lanes = Lanes(lanes_by(Order.KEY))
    lanes.put(jobs("a", "b", delivery="lost"))
    lanes.put(jobs("a", delivery="kept"))
    assert len(lanes.drop("lost")) == 2
    assert [job.delivery for job in lanes.take(9)] == ["kept"]


@given(
    keys=st.lists(st.sampled_from(["a", "b", "c", None]), max_size=40),
    steps=st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["release", "back"])), max_size=60),
    in_a_row=st.booleans(),
)
def test_every_job_is_taken_once_and_each_lane_in_order(
    keys: list[str | None], steps: list[tuple[int, str]], in_a_row: bool
) -> None:
    lanes = Lanes(lanes_by(Order.KEY), in_a_row=in_a_row)
    lanes.put(jobs(*keys))
    done: list[Job] = []
    for most, step in [*steps, *[(5, "release")] * (len(keys) + 1)]:
        taken = lanes.take(most)
        named = [job.event.key for job in taken if job.event.key is not None]
        assert in_a_row or len(named) == len(set(named))
        if step == "back":
            lanes.put_back(taken[1:])
            taken = taken[:1]
        for job in taken:
            lanes.release(job)
        done += taken
    assert (len(lanes), sorted(offsets(done))) == (0, list(range(1, len(keys) + 1)))
    by_key: defaultdict[str | None, list[int]] = defaultdict(list)
    for job in done:
        by_key[job.event.key].append(job.event.offset)
    assert all(own == sorted(own) for key, own in by_key.items() if key is not None)
