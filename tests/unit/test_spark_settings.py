"""The settings of Spark sessions and servers, and how processes are told apart."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dagster_bus.spark import processes
from dagster_bus.spark.daemon import Watch
from dagster_bus.spark.launching import as_properties, environment, server_settings, worker_python
from dagster_bus.spark.server import last_lines
from dagster_bus.spark.session import REDACTION, SECRETS, is_local, session_config
from dagster_bus.spark.warm import ServerFolder, ServerState, fingerprints, pyspark_version
from dagster_bus.spec.models import SparkSpec

STATE = ServerState(1, "birth", 15002, "secret", 0, True, {}, sys.prefix, pyspark_version())


def test_the_files_settings_win_and_are_spelled_as_spark_spells_them() -> None:
    config = session_config(
        SparkSpec(conf={"spark.ui.enabled": False, "spark.sql.session.timeZone": "CET", "a": 2})
    )
    assert config["spark.master"] == "local[*]"
    assert (config["spark.ui.enabled"], config["a"]) == ("false", "2")
    assert config["spark.sql.session.timeZone"] == "CET"
    assert config["spark.driver.bindAddress"] == "127.0.0.1"
    assert config[REDACTION] == SECRETS


def test_packages_join_those_among_the_settings() -> None:
    spec = SparkSpec(packages=["g:a:1", "g:b:2"])
    assert session_config(spec)["spark.jars.packages"] == "g:a:1,g:b:2"
    both = spec.model_copy(update={"conf": {"spark.jars.packages": "g:c:3"}})
    assert session_config(both)["spark.jars.packages"] == "g:c:3,g:a:1,g:b:2"


@pytest.mark.parametrize(
    "spec",
    [SparkSpec(remote="sc://spark:15002"), SparkSpec(conf={"spark.remote": "sc://spark:15002"})],
)
def test_a_server_elsewhere_has_no_master_and_no_address_of_this_machine(spec: SparkSpec) -> None:
    config = session_config(spec)
    assert config["spark.remote"] == "sc://spark:15002"
    assert not {"spark.master", "spark.driver.host"} & config.keys()
    assert not is_local(config)


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*]", True), ("spark://host:7077", False), ("yarn", False)],
)
def test_only_a_local_master_is_on_this_machine(master: str, local: bool) -> None:
    assert is_local(session_config(SparkSpec(master=master))) is local


def test_what_differs_is_named_without_its_value() -> None:
    state = replace(STATE, settings=fingerprints({"a": "1", "b": "hidden", "c": "3"}))
    assert state.differences({"a": "1", "b": "hidden", "c": "3"}) == []
    assert state.differences({"a": "1", "b": "other", "d": "4"}) == ["b", "c", "d"]
    assert "hidden" not in str(state)


def test_another_pyspark_or_python_is_a_difference() -> None:
    other = ServerState(1, "birth", 1, "secret", 0, True, {}, "/other", "4.1.0")
    assert other.differences({}) == [
        f"PySpark (4.1.0 there, {pyspark_version()} here)",
        f"Python (/other there, {sys.prefix} here)",
    ]


def test_a_server_keeps_to_loopback_whatever_the_file_says() -> None:
    settings = server_settings({"spark.connect.grpc.binding.address": "0.0.0.0"}, 15002)
    assert settings["spark.connect.grpc.binding.address"] == "127.0.0.1"
    assert settings["spark.connect.grpc.binding.port"] == "15002"


def test_settings_are_written_as_java_reads_them() -> None:
    assert as_properties({"a b": "c=d\\e\n#"}) == "a\\ b=c\\=d\\\\e\\n\\#\n"


def test_workers_find_the_project_first(tmp_path: Path) -> None:
    environ = {"PYTHONPATH": "/mine", "SPARK_REMOTE": "sc://x", "KEPT": "1"}
    made = environment(tmp_path, tmp_path, "secret", ServerFolder(tmp_path / ".bus"), environ)
    assert made["PYTHONPATH"].split(os.pathsep)[:2] == [str(tmp_path), "/mine"]
    assert made["PYSPARK_PYTHON"] == str(tmp_path / ".bus" / "spark-python")
    assert "SPARK_REMOTE" not in made
    assert made["KEPT"] == "1"


def test_only_the_forking_of_workers_is_ours(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(worker_python("echo"))
    python.chmod(0o700)
    for asked, run in [
        (["-m", "pyspark.daemon", "pyspark.worker"], "-m dagster_bus.spark.daemon pyspark.worker"),
        (["-m", "pyspark.worker", "a b"], "-m pyspark.worker a b"),
        (["-c", "pyspark.daemon"], "-c pyspark.daemon"),
    ]:
        assert subprocess.check_output([python, *asked], text=True).strip() == run


def test_the_end_of_a_log_is_shown_without_stack_frames(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("one\ntwo\n\tat java.lang.Thread.run\n\nCaused by: three\n")
    assert last_lines(log, 2) == "  two\n  Caused by: three"


@pytest.mark.parametrize("look", [processes._from_proc, processes._from_ps])
def test_a_process_is_known_by_its_birth_until_it_ends(look: object) -> None:
    assert callable(look)
    with subprocess.Popen(["sleep", "60"]) as process:
        birth = look(process.pid)
        assert birth
        assert look(process.pid) == birth
        assert look(os.getpid()) not in (None, birth)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert look(process.pid) is None, "it has ended, and nobody has asked about it"
    assert look(process.pid) is None


def test_a_process_that_does_not_listen_is_ended_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GENTLE_S", 0.2)
    code = "import signal; signal.signal(15, signal.SIG_IGN); print(1, flush=True); signal.pause()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as deaf:
        assert deaf.stdout is not None
        deaf.stdout.readline()
        birth = processes.birth_of(deaf.pid)
        assert birth is not None
        assert not processes.end(deaf.pid, "another life")
        assert processes.birth_of(deaf.pid) == birth
        assert processes.end(deaf.pid, birth)
        assert processes.birth_of(deaf.pid) is None


def test_workers_are_needed_until_their_session_ends_or_they_idle_for_long(tmp_path: Path) -> None:
    marker = tmp_path / "session"
    watch = Watch(marker)
    assert not watch.is_over()
    marker.touch()
    assert watch.is_over()
    with subprocess.Popen(["sleep", "60"]) as worker:
        busy = Watch(None, idle_s=0)
        assert not busy.is_over()
        worker.kill()


def test_a_process_without_workers_idles() -> None:
    code = (
        "import time; from dagster_bus.spark.daemon import Watch; w = Watch(None, idle_s=0.0); "
        "time.sleep(0.01); print(w.is_over())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "True\n"
