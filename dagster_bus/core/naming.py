"""What topics and groups are called in Dagster, in plain text: paths of assets, jobs and sensors.

Dagster's names have letters, digits and underscores; ours have `-` for `_`, and dots between the
segments of topics."""


def definition_name(name: str) -> str:
    """A group's name as Dagster wants it. Group names have no underscores, so none collide."""
    return name.replace("-", "_")


def job_name(group: str) -> str:
    return f"{definition_name(group)}_job"


def sensor_name(group: str) -> str:
    return f"{definition_name(group)}_sensor"


def topic_path(topic: str) -> list[str]:
    return [definition_name(segment) for segment in topic.split(".")]


def table_path(group: str) -> list[str]:
    return [definition_name(group)]


def dead_letters_path(group: str) -> list[str]:
    return [definition_name(group), "dead_letters"]
