"""The bus as it is installed: its wheel, in an environment that knows nothing of this folder."""

import os
import site
import subprocess
import sys
from pathlib import Path

from tests.support.spark_source import open_bus, publish

ROOT = Path(__file__).parents[2]

READ = """
import sys
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.driver.bindAddress", "127.0.0.1")
    .getOrCreate()
)
events = spark.read.format("dagster_bus").option("store", sys.argv[1]).option("topics", "orders.*")
print("count", events.load().count())
assert "dagster_bus" not in sys.modules, "nobody has told Spark of it"
import dagster_bus
print("from", dagster_bus.__file__)
"""


def run(*command: str | Path, cwd: Path) -> str:
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**environ, "PYSPARK_PYTHON": str(command[0]), "SPARK_LOCAL_IP": "127.0.0.1"},
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3_000:]
    return done.stdout


def test_an_installed_wheel_brings_the_source_into_every_session_without_a_call(
    tmp_path: Path,
) -> None:
    pip = (sys.executable, "-m", "pip")
    run(*pip, "wheel", "--quiet", "--no-deps", "-w", tmp_path, ROOT, cwd=tmp_path)
    (wheel,) = tmp_path.glob("*.whl")
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "env", cwd=tmp_path)
    python = tmp_path / "env/bin/python"
    quiet = ("--quiet", "--no-deps", "--disable-pip-version-check")
    run(*pip, "--python", python, "install", *quiet, wheel, cwd=tmp_path)
    (packages,) = (tmp_path / "env/lib").glob("python*/site-packages")
    (packages / "others.pth").write_text("\n".join(site.getsitepackages()))

    url = f"sqlite:///{tmp_path}/bus.db"
    with open_bus(url) as bus:
        publish(bus, "orders.created", range(7))
    told = run(python, "-c", READ, url, cwd=tmp_path)
    assert "count 7\n" in told
    assert f"from {packages}/dagster_bus/" in told
    run(python.with_name("dagster-bus"), "init", tmp_path / "project", cwd=tmp_path)
    assert (tmp_path / "project/topics.yaml").exists(), "its templates came along"
