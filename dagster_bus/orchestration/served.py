"""A group as its sensor sees it: what it starts, and whether that speaks for itself."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Served:
    group: str
    job: str
    """The job that is started for each delivery."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of its runs."""
    settles_itself: bool = True
    """Whether a run leases and settles its delivery. A job of the user's own knows nothing of that:
    then its outcome counts."""
