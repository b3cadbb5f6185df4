"""Spark sessions: a warm server for development, found by runs; servers elsewhere; settings."""

import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from dagster_bus.core.clock import system_clock
from dagster_bus.spark.processes import birth_of
from dagster_bus.spark.server import SparkServer
from dagster_bus.spark.session import session_config
from dagster_bus.spark.warm import SWITCH, ServerFolder, ServerState, choose
from dagster_bus.spec.load import load_spec
from tests.conftest import STORES, new_store_url
from tests.support.dagster_dev import wait_for
from tests.support.project import write_topics

ROOT = Path(__file__).parents[2]
LISTENING = "0A"  # as the kernel writes it
REFUSING = 'expect: {seemly: "n % 19 <> 0 OR n = 0"}'
ODD = "a=b: #1! \\ é"
RULES = """\
    from pyspark.sql import functions as F
    from tests.support.pipelines import noting

    def times(n):
        return n * {factor}

    def rows(events):
        noting(events)
        return events.select(F.udf(times, "bigint")("n").alias("n"), "_event")
    """


@dataclass(frozen=True, slots=True)
class Place:
    """A project in a folder, and what is called there."""

    file: Path
    said: str = ""
    """What starting its server said."""

    @property
    def folder(self) -> Path:
        return self.file.parent

    @property
    def state(self) -> ServerState:
        state = ServerFolder.of(self.folder).read()
        assert state is not None
        return state

    @property
    def config(self) -> dict[str, str]:
        return session_config(load_spec(self.file).spec.spark)

    def spark(self, *words: str, **environ: str) -> "subprocess.CompletedProcess[str]":
        command = [*DAGSTER_BUS, "-f", str(self.file), "spark", *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=240, env=self._env(environ)
        )

    def call(self, module: str, *words: str, **environ: str) -> list[Any]:
        """The lines of JSON that a module of the tests says."""
        done = subprocess.run(
            [sys.executable, "-m", f"tests.support.{module}", str(self.file), *words],
            capture_output=True,
            text=True,
            timeout=240,
            env=self._env(environ),
        )
        assert done.returncode == 0, done.stderr[-3_000:]
        return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

    def _env(self, environ: dict[str, str]) -> dict[str, str]:
        paths = os.pathsep.join([str(ROOT), str(self.folder)])
        return {**os.environ, "PYTHONPATH": paths, **environ}

    def variant(self, name: str, old: str, new: str) -> "Place":
        """The same project by another file."""
        text = self.file.read_text(encoding="utf-8")
        assert old in text
        file = self.folder / name
        file.write_text(text.replace(old, new), encoding="utf-8")
        return Place(file)


DAGSTER_BUS = [sys.executable, "-c", "from dagster_bus.cli.main import main; main()"]


def new_place(folder: Path, **replacements: str) -> Place:
    conf = "{spark.ui.enabled: false, spark.sql.shuffle.partitions: 2}"
    odd = ODD.replace("\\", "\\\\")
    more = f'{{spark.ui.enabled: false, spark.sql.shuffle.partitions: 3, spark.odd: "{odd}"}}'
    file = write_topics(
        folder, **{conf: more, "tests.support.pipelines:keep": "rules:rows", **replacements}
    )
    write_rules(folder, 2)
    return Place(file)


def write_rules(folder: Path, factor: int) -> None:
    text = dedent(RULES).replace("{factor}", str(factor))
    (folder / "rules.py").write_text(text, encoding="utf-8")


def package_repository(folder: Path) -> str:
    """A repository on disk with one package, as there is no network."""
    at = folder / "org/example/nothing/1.0"
    at.mkdir(parents=True)
    (at / "nothing-1.0.pom").write_text(
        "<project><modelVersion>4.0.0</modelVersion><groupId>org.example</groupId>"
        "<artifactId>nothing</artifactId><version>1.0</version></project>"
    )
    with zipfile.ZipFile(at / "nothing-1.0.jar", "w") as jar:
        jar.writestr("nothing.txt", "")
    return folder.as_uri()


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A project whose server runs, with a package."""
    folder = tmp_path_factory.mktemp("warm")
    repository = package_repository(folder / "repository")
    place = new_place(
        folder,
        **{
            "master: local[2]": "master: local[2]\n  packages: [org.example:nothing:1.0]",
            "spark.odd": f'spark.jars.ivy: "{folder}/ivy", '
            f'spark.jars.repositories: "{repository}", spark.odd',
        },
    )
    started = place.spark("start")
    try:
        assert started.returncode == 0, started.stderr
        yield Place(place.file, said=started.stdout + started.stderr)
    finally:
        place.spark("stop")


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Place]:
    """A project whose server never ran."""
    place = new_place(tmp_path)
    yield place
    SparkServer(place.folder, {}).stop()


@pytest.fixture
def sleeper() -> Iterator["subprocess.Popen[bytes]"]:
    """Some process that is no Spark."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def remember(place: Place, process: "subprocess.Popen[bytes]", birth: str | None = None) -> None:
    """Have a project believe that a process is its server."""
    found = birth_of(process.pid) or ""
    state = ServerState(
        process.pid, birth or found, 1, "token", system_clock(), True, {}, sys.prefix, "4.3.0"
    )
    folder = ServerFolder.of(place.folder)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.write(state)


def children(pid: int) -> list[str]:
    """The Python processes that a server has for its sessions. Spark's starting script may leave a
    dead shell behind, which does not count."""
    listed = subprocess.run(
        ["ps", "-o", "args=", "--ppid", str(pid)], capture_output=True, text=True
    )
    return [line for line in listed.stdout.splitlines() if "<defunct>" not in line]


def test_starting_tells_how_long_it_took_and_how_to_stop(warm: Place) -> None:
    assert f"process {warm.state.pid} started; waiting until it answers" in warm.said
    assert re.search(rf"runs at sc://localhost:{warm.state.port}, .* it took \d+\.\d s", warm.said)
    assert "end it with: dagster-bus spark stop" in warm.said


def test_starting_again_is_harmless(warm: Place) -> None:
    before = warm.state
    again = warm.spark("start")
    assert (again.returncode, warm.state) == (0, before)
    assert again.stdout == f"a Spark server runs already: process {before.pid}, {before.url}\n"


def test_the_status_tells_process_address_and_since_when(warm: Place) -> None:
    told = json.loads(warm.spark("status", "--json").stdout)
    state = warm.state
    assert (told["running"], told["pid"], told["address"]) == (True, state.pid, state.url)
    assert 0 < system_clock() - told["since_ms"] < 600_000
    assert told["differs_in"] == []
    said = warm.spark("status").stdout
    assert f"a Spark server runs at {state.url}: process {state.pid}, since 20" in said


def test_only_the_owner_can_read_token_and_settings(warm: Place) -> None:
    folder = ServerFolder.of(warm.folder)
    for file in (folder.state_file, folder.settings):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    command = Path(f"/proc/{warm.state.pid}/cmdline").read_text()
    assert warm.state.token not in command


def test_the_server_listens_on_loopback_only(warm: Place) -> None:
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    port = f":{warm.state.port:04X}"
    sockets = [line.split() for line in listening.splitlines()]
    (local,) = [each[1] for each in sockets if each[1].endswith(port) and each[3] == LISTENING]
    assert local.endswith(f"0100007F{port}")


def test_a_server_with_other_settings_is_named_and_not_used(warm: Place) -> None:
    other = warm.variant("other.yaml", "partitions: 3", "partitions: 5")
    for words in (["start"], ["status"]):
        said = other.spark(*words)
        assert said.returncode == 0
        assert "started with other settings: spark.sql.shuffle.partitions; run" in said.stdout
    choice = choose(other.config, other.folder)
    assert choice.config == other.config
    assert "not used, as it differs in spark.sql.shuffle.partitions" in (choice.note or "")


def test_a_session_has_the_settings_and_packages_of_the_file(warm: Place) -> None:
    names = ["spark.sql.shuffle.partitions", "spark.sql.session.timeZone", "spark.odd"]
    (told,) = warm.call("sessions", *names, "spark.jars.packages", http_proxy="http://127.0.0.1:1")
    assert told["session"] == "pyspark.sql.connect.session"
    assert list(told["settings"].values()) == ["3", "UTC", ODD, "org.example:nothing:1.0"]
    assert told["jars"] == ["org.example_nothing-1.0.jar"]
    assert told["letters"] == [1, 2]
    assert told["mode left on"] is False


def test_deliveries_go_through_the_warm_server_with_the_code_of_the_moment(
    warm: Place, tmp_path: Path
) -> None:
    """And dead letters that are sent back. The server starts Python processes for each session,
    and would keep them for good."""
    for factor, store in enumerate(STORES, 2):
        write_rules(warm.folder, factor)  # edited while the server runs
        url = new_store_url(store, tmp_path)
        place = warm.variant(f"{store}.yaml", "sqlite:///bus.db", f'"{url}"')
        place = place.variant(f"{store}.yaml", "data/orders}", f"data/{store}}}\n    {REFUSING}")
        told, back = place.call("deliveries", "20", "back", http_proxy="http://127.0.0.1:1")
        assert (told["success"], told["processed"]) == (True, 19)
        assert told["rows"] == [factor * n for n in range(19)], "by the project's own function"
        assert told["session"] == "pyspark.sql.connect.session"
        assert told["said"] == [f"Spark: using the warm Spark server at {warm.state.url}."]
        assert (back["success"], back["processed"]) == (True, 20)
        assert back["rows"] == sorted([*told["rows"], factor]), "read from the letters"
    wait_for("end of the workers", lambda: not children(warm.state.pid), seconds=10)


def test_a_server_elsewhere_is_used_as_the_file_says(warm: Place, tmp_path: Path) -> None:
    remote = f'remote: "{warm.state.url_with_token}"'
    place = new_place(tmp_path, **{"master: local[2]": remote, "partitions: 3": "partitions: 7"})
    (told,) = place.call("sessions", "spark.sql.shuffle.partitions", "spark.sql.session.timeZone")
    assert told["session"] == "pyspark.sql.connect.session"
    assert list(told["settings"].values()) == ["7", "UTC"]


def test_a_wrong_token_is_refused(warm: Place) -> None:
    probe = subprocess.run(
        [sys.executable, "-m", "dagster_bus.spark.probe"],
        input=replace(warm.state, token="guessed").url_with_token,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert probe.returncode == 1
    assert "UNAUTHENTICATED" in probe.stderr


def test_runs_take_the_server_of_the_moment(
    warm: Place, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert choose(warm.config, warm.folder).config == {"spark.remote": warm.state.url_with_token}
    assert choose(warm.config, tmp_path).config == warm.config, "another project"
    cluster = {**warm.config, "spark.master": "spark://cluster:7077"}
    assert choose(cluster, warm.folder).config == cluster
    elsewhere = {"spark.remote": "sc://cluster:15002"}
    assert choose(elsewhere, warm.folder).config == elsewhere
    monkeypatch.setenv(SWITCH, "0")
    assert choose(warm.config, warm.folder).config == warm.config


def test_a_server_that_was_killed_is_noticed(
    project: Place, sleeper: "subprocess.Popen[bytes]"
) -> None:
    remember(project, sleeper)
    assert json.loads(project.spark("status", "--json").stdout)["running"] is True
    sleeper.kill()  # nobody waits for it: to the kernel it is still there
    gone = f"process {sleeper.pid} has ended without dagster-bus"
    assert gone in project.spark("status").stdout
    assert choose(project.config, project.folder).config == project.config
    again = project.spark("start", PATH="/nowhere", JAVA_HOME="")
    assert f"the last server (process {sleeper.pid}) is gone" in again.stderr
    assert project.spark("stop").stdout == "no Spark server runs\n"


def test_a_process_that_got_the_number_of_a_dead_server_is_left_alone(
    project: Place, sleeper: "subprocess.Popen[bytes]"
) -> None:
    remember(project, sleeper, birth="another life")
    stopped = project.spark("stop")
    assert stopped.returncode == 0
    assert f"process {sleeper.pid} was gone already" in stopped.stdout
    assert sleeper.poll() is None
    assert not ServerFolder.of(project.folder).state_file.exists()


def test_a_state_file_that_makes_no_sense_tells_of_no_server(project: Place) -> None:
    folder = ServerFolder.of(project.folder)
    folder.path.mkdir()
    for text in ("", "[]", '{"pid": 1}', '{"pid": '):
        folder.state_file.write_text(text)
        assert choose(project.config, project.folder).config == project.config
    assert "no Spark server runs" in project.spark("status").stdout


def test_without_java_the_start_says_what_to_install(project: Place) -> None:
    failed = project.spark("start", PATH="/nowhere", JAVA_HOME="")
    assert failed.returncode == 1
    assert failed.stderr.startswith("dagster-bus: Spark needs Java 17 or newer, and there is none")
    assert len(failed.stderr.splitlines()) == 1


def test_a_port_that_is_taken_is_refused(project: Place) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        failed = project.spark("start", "--port", str(port))
    assert failed.returncode == 1
    assert f"port {port} can't be used on 127.0.0.1 (Address already in use)" in failed.stderr
    assert "Traceback" not in failed.stderr


def test_a_server_that_dies_at_once_shows_the_end_of_its_log(project: Place) -> None:
    broken = project.variant("topics.yaml", "spark.ui.enabled", "spark.driver.memory: 1k, a")
    failed = broken.spark("start")
    assert failed.returncode == 1
    assert "the Spark server ended as soon as it had started; the end of its log" in failed.stderr
    assert "Too small maximum heap" in failed.stderr
    assert "Traceback" not in failed.stderr
    assert json.loads(broken.spark("status", "--json").stdout) == {"running": False}


def test_interrupting_the_start_leaves_no_process(project: Place) -> None:
    command = [*DAGSTER_BUS, "-f", str(project.file), "spark", "start"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as starting:
        assert starting.stderr is not None
        first = starting.stderr.readline()
        pid = int(first.split()[1])
        assert birth_of(pid) is not None
        starting.send_signal(signal.SIGINT)
        assert starting.wait(30) == 1
    assert birth_of(pid) is None
    assert not ServerFolder.of(project.folder).state_file.exists()


def test_a_master_that_runs_elsewhere_is_not_kept_warm(project: Place) -> None:
    cluster = project.variant("topics.yaml", "local[2]", "spark://cluster:7077")
    failed = cluster.spark("start")
    assert failed.returncode == 4
    assert "asks for spark://cluster:7077, which runs elsewhere" in failed.stderr


def test_stopping_ends_the_server(warm: Place) -> None:
    pid = warm.state.pid
    stopped = warm.spark("stop")
    assert (stopped.returncode, stopped.stdout) == (
        0, f"the Spark server, process {pid}, has ended\n",
    )  # fmt: skip
    assert birth_of(pid) is None
    assert warm.spark("stop").stdout == "no Spark server runs\n"
    assert choose(warm.config, warm.folder).config == warm.config
