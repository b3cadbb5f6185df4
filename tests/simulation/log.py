"""What was published in a simulated history, as everybody may know it."""

from collections import defaultdict
from collections.abc import Iterable

from dagster_bus.core.event import Event, Published
from dagster_bus.core.ranges import Place, Ranges
from dagster_bus.core.store import Store
from dagster_bus.core.topic import OffsetRange, TopicPartition


def places_of(ranges: Ranges) -> list[Place]:
    return [
        Place(part.topic, part.partition, offset)
        for part in ranges
        for offset in range(part.first, part.last + 1)
    ]


def place_of(event: Event) -> Place:
    return Place(event.topic, event.partition, event.offset)


class Log:
    """Every event, by its place and by its key."""

    def __init__(self, store: Store, partitions: Iterable[TopicPartition]) -> None:
        self._store = store
        self.events: dict[Place, Event] = {}
        self.ends = dict.fromkeys(partitions, 1)
        self._by_key: dict[tuple[str, int, str], list[Place]] = defaultdict(list)

    def note(self, published: Iterable[Published]) -> None:
        """Read back what was acknowledged: it stands where it was said to be, without a gap."""
        for each in sorted(published, key=lambda at: (at.topic, at.partition, at.offset)):
            at = TopicPartition(each.topic, each.partition)
            assert each.offset == self.ends[at], "offsets are dense"
            (event,) = self._store.read(OffsetRange(*at, each.offset, each.offset), 1)
            assert event.id == each.id
            place = Place(*at, each.offset)
            self.events[place] = event
            self.ends[at] = each.offset + 1
            if event.key is not None:
                self._by_key[(*at, event.key)].append(place)

    def before_in_partition(self, place: Place, first: int) -> list[Place]:
        """The events of a partition from an offset on that come before a place."""
        return [place._replace(offset=offset) for offset in range(first, place.offset)]

    def before_of_key(self, place: Place, first: int) -> list[Place]:
        """Those of them with the key of the event at the place; none if that has no key."""
        key = self.events[place].key
        if key is None:
            return []
        same = self._by_key[(place.topic, place.partition, key)]
        return [each for each in same if first <= each.offset < place.offset]


def size_of(event: Event) -> int:
    """The bytes that count for a batch: of key, attributes and payload."""
    texts = (event.key or "", event.attributes_json, event.payload_json)
    return sum(len(text.encode()) for text in texts)
