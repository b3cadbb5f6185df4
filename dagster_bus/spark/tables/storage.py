"""Where a table lies, for the two who write there: Spark, and the committer.

One set of options serves both. Those that begin as object stores' options do (`aws_…`, `azure_…`,
`google_…`) say how to reach the store: the committer takes them as they are, and for S3 they are
translated for Spark. All other options are for Spark's writer.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pa_fs
import pyarrow.parquet as pq
from deltalake.fs import DeltaStorageHandler

from dagster_bus.errors import TableError
from dagster_bus.spark.tables.table import DataFile, Table

OF_STORAGE = ("aws_", "azure_", "google_")
FOR_SPARK = {
    "aws_access_key_id": "fs.s3a.access.key",
    "aws_secret_access_key": "fs.s3a.secret.key",
    "aws_session_token": "fs.s3a.session.token",
    "aws_endpoint_url": "fs.s3a.endpoint",
    "aws_region": "fs.s3a.endpoint.region",
}
WITH_SESSION_TOKEN = "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider"  # noqa: S105
SECRET = ("key", "token", "secret", "password", "sas", "credential", "account")
HIDDEN = "***"
TIDY = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "false"}
"""No empty files that only say that a write has succeeded."""


def storage_options(options: Mapping[str, str]) -> dict[str, str]:
    """What the committer needs to reach the table."""
    chosen = {name.lower(): text for name, text in options.items() if _is_of_storage(name)}
    if chosen.get("aws_endpoint_url", "").startswith("http://"):
        chosen.setdefault("aws_allow_http", "true")
    return chosen


def spark_options(options: Mapping[str, str]) -> dict[str, str]:
    """The same for Spark, and what is meant for its writers and readers."""
    chosen = {name: text for name, text in options.items() if not _is_of_storage(name)}
    storage = storage_options(options)
    chosen.update({FOR_SPARK[name]: text for name, text in storage.items() if name in FOR_SPARK})
    if "aws_session_token" in storage:
        chosen["fs.s3a.aws.credentials.provider"] = WITH_SESSION_TOKEN
    if endpoint := storage.get("aws_endpoint_url"):
        hosted = storage.get("aws_virtual_hosted_style_request", "false").lower() == "true"
        chosen["fs.s3a.path.style.access"] = "false" if hosted else "true"
        chosen["fs.s3a.connection.ssl.enabled"] = str(endpoint.startswith("https://")).lower()
    if any(name.startswith("fs.s3a.") for name in chosen):
        chosen["fs.s3a.impl.disable.cache"] = "true"  # else the first table's keys serve them all
    return {**TIDY, **chosen}


def spark_path(path: str) -> str:
    """A table's path in Spark's spelling; s3:// is s3a:// there."""
    return local_folder(path) or _with_scheme(path, "s3", "s3a")


def committer_path(path: str) -> str:
    """A table's path in the committer's spelling."""
    return local_folder(path) or _with_scheme(path, "s3a", "s3")


def local_folder(path: str) -> str | None:
    """The folder of this machine's file system that a path means, if it means one."""
    if "://" not in path:
        return path
    parts = urlsplit(path)
    return unquote(parts.path) if parts.scheme == "file" else None


def told(error: object, options: Mapping[str, str]) -> str:
    """What an error says, without secrets."""
    text = str(error)
    for name, value in options.items():
        if value and _is_of_storage(name) and any(word in name.lower() for word in SECRET):
            text = text.replace(value, HIDDEN)
    return text


@contextmanager
def secrets_kept(table: Table) -> Iterator[None]:
    """Errors that repeat a secret of the table's options are told without it."""
    try:
        yield
    except Exception as error:
        clean = told(error, table.options)
        if clean == str(error):
            raise
        raise TableError(f"{type(error).__name__}: {clean}") from None


class Storage:
    """A table's files, wherever they lie."""

    def __init__(self, table: Table) -> None:
        self._folder = local_folder(table.path)
        options = storage_options(table.options)
        self._handler = DeltaStorageHandler(committer_path(table.path), options)
        self._files = pa_fs.PyFileSystem(self._handler)

    def parquet_files(self, folder: str) -> tuple[DataFile, ...]:
        """What Spark has written to a folder."""
        chosen = pa_fs.FileSelector(folder, recursive=False, allow_not_found=True)
        found = [
            info
            for info in self._files.get_file_info(chosen)
            if info.is_file
            and info.base_name.endswith(".parquet")
            and info.base_name[0] not in "._"
        ]
        return tuple(self._data_file(info) for info in sorted(found, key=lambda info: info.path))

    def folders(self) -> list[str]:
        """The names of the folders in the table's."""
        found = self._files.get_file_info(pa_fs.FileSelector("", recursive=False))
        return sorted(info.base_name for info in found if info.type == pa_fs.FileType.Directory)

    def remove(self, paths: list[str]) -> None:
        """Remove files, and folders that are empty then."""
        for path in paths:
            try:
                self._handler.delete_file(path)
            except FileNotFoundError:
                continue  # somebody else was faster
        if self._folder is not None:
            root = Path(self._folder)
            for path in paths:
                _remove_empty((root / path).parent, root)

    def _data_file(self, info: Any) -> DataFile:
        with self._files.open_input_file(info.path) as file:
            rows = pq.read_metadata(file).num_rows
        return DataFile(info.path, info.size, info.mtime_ns // 1_000_000, rows)


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove a folder inside a window's, and those above it up to there, while they are empty."""
    while folder.parent != root:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent


def _with_scheme(path: str, old: str, new: str) -> str:
    rest = path.removeprefix(f"{old}://")
    return path if rest == path else f"{new}://{rest}"


def _is_of_storage(name: str) -> bool:
    return name.lower().startswith(OF_STORAGE)
