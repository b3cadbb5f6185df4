"""Says in one line what this machine lacks, and how to get it. Runs on Python 3.6 and later.

python check_machine.py [--java]
"""

import os
import re
import shutil
import subprocess
import sys

OLDEST_PYTHON = (3, 11)
OLDEST_JAVA = 17
HOW_TO_GET_JAVA = (
    "install it (Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install "
    "openjdk@17) or point JAVA_HOME at one"
)


def main() -> "str | None":
    if sys.version_info < OLDEST_PYTHON:
        found = ".".join(str(part) for part in sys.version_info[:2])
        return (
            f"Python 3.11 or newer is needed, and {sys.executable} is Python {found}: "
            "install a newer one and run make PYTHON=/path/to/python3.11"
        )
    return java_problem() if "--java" in sys.argv else None


def java_problem() -> "str | None":
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(f"{home}/bin/java" if home else "java")
    if java is None:
        return f"Java 17 or newer is needed by Spark and was not found: {HOW_TO_GET_JAVA}"
    said = subprocess.run(  # noqa: S603  (whatever java is)
        [java, "-version"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    ).stdout.decode(errors="replace")
    found = re.search(r'version "(?:1\.)?(\d+)', said)
    if not found:
        return f"{java} does not say its version: {HOW_TO_GET_JAVA}"
    if int(found.group(1)) < OLDEST_JAVA:
        return (
            f"Java 17 or newer is needed by Spark, and {java} is Java {found.group(1)}: "
            f"{HOW_TO_GET_JAVA}"
        )
    return None


if __name__ == "__main__":
    sys.exit(main())
