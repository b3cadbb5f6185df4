"""`topics.yaml` as a component of a `dg` project, and what `dg scaffold defs` writes for it."""

from pathlib import Path

from dagster import (
    Component,
    ComponentLoadContext,
    ComponentTypeSpec,
    Definitions,
    Model,
    Resolvable,
    Scaffolder,
    ScaffoldRequest,
    scaffold_with,
)
from dagster.components import scaffold_component
from pydantic import Field

from dagster_bus.errors import UsageError
from dagster_bus.orchestration.definitions import load_definitions
from dagster_bus.templates import folder_starter, write_files

DEFAULT = "topics.yaml"


class BusScaffolder(Scaffolder):
    """Writes the component's file and, beside it, a commented `topics.yaml` to start from."""

    def scaffold(self, request: ScaffoldRequest) -> None:
        try:
            write_files(request.target_path, folder_starter(_module(request)))
        except UsageError as error:
            raise SystemExit(f"Error: {error}") from None  # dg shows tracebacks of other errors
        scaffold_component(request, {"topics_yaml": DEFAULT})


@scaffold_with(BusScaffolder)
class BusComponent(Component, Model, Resolvable):
    """An event bus: the topics of a topics.yaml, and the groups that read them with their tables,
    sensors, jobs, checks and dead letters.

    To replace resources or the executor, subclass it and override `definitions`."""

    topics_yaml: str = Field(
        default=DEFAULT,
        description="The file that declares topics and groups; a relative path counts from the "
        "component's folder.",
    )

    @classmethod
    def get_spec(cls) -> ComponentTypeSpec:
        produces = ["asset", "asset_check", "job", "resource", "schedule", "sensor"]
        return ComponentTypeSpec(tags=["events", "spark"], produces=produces)

    def build_defs(self, context: ComponentLoadContext) -> Definitions:
        folder = context.path if context.path.is_dir() else context.path.parent
        file = folder / self.topics_yaml
        if not file.exists():
            raise UsageError(
                f"topics_yaml: there is no file {file} (paths count from the component's folder)"
            )
        return self.definitions(file)

    def definitions(self, topics_yaml: Path) -> Definitions:
        """What the file declares. Override it to call `load_definitions` in another way."""
        return load_definitions(topics_yaml)


def _module(request: ScaffoldRequest) -> str:
    """The name by which Python imports the component's folder."""
    root = request.project_root or Path()
    sources = root / "src" if (root / "src").exists() else root
    parts = request.target_path.absolute().relative_to(sources.absolute()).parts
    if unusable := [part for part in parts if not (part.isascii() and part.isidentifier())]:
        raise UsageError(
            f"Python cannot import pipelines from a folder called {unusable[0]!r} (use letters, "
            "digits and underscores, as in shop_bus)"
        )
    return ".".join(parts)
