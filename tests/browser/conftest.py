"""A real browser."""

import os
import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, sync_playwright

NAMES = ("chromium", "chromium-browser", "google-chrome")
QUIET = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture
def page() -> Iterator[Page]:
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    if executable is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium: install it (Debian, Ubuntu: apt-get install chromium)")
        pytest.skip("no Chromium here (Debian, Ubuntu: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(QUIET))
        opened = browser.new_page(viewport={"width": 1440, "height": 900})
        opened.set_default_timeout(60_000)
        yield opened
        browser.close()
