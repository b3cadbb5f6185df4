"""A real browser, and the pictures that it takes."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect, sync_playwright

from tests.browser.gallery import gallery

__all__ = ["gallery"]

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
PATIENCE_MS = 120_000
"""The machine may be busy with other tests."""

IMAGES = Path(__file__).parents[2] / "docs" / "images"
ASKED_FOR = "DAGSTER_BUS_SCREENSHOTS"
"""Set by `make screenshots`: the pictures go into the documents. They are taken in any case."""

Shoot = Callable[..., None]


@pytest.fixture(scope="session")
def chromium() -> str:
    """Where the browser is; without one nothing else is started."""
    executable = next(filter(None, map(shutil.which, NAMES)), None)
    if executable is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium: install it (Debian, Ubuntu: apt-get install chromium)")
        pytest.skip("no Chromium here (Debian, Ubuntu: apt-get install chromium)")
    return executable


@pytest.fixture
def page(chromium: str) -> Iterator[Page]:
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=list(QUIET))
        opened = browser.new_page(
            viewport={"width": 1440, "height": 900}, reduced_motion="reduce", timezone_id="UTC"
        )
        opened.set_default_timeout(PATIENCE_MS)
        yield opened
        browser.close()


@pytest.fixture
def shoot(page: Page, tmp_path: Path) -> Shoot:
    """Takes a picture of what some parts of a page cover together, or of all that is seen."""

    def take(name: str, *parts: Locator, margin: int = 16) -> None:
        boxes = [box for part in parts for each in part.all() if (box := each.bounding_box())]
        folder = IMAGES if os.environ.get(ASKED_FOR) else tmp_path
        window = page.viewport_size
        assert window is not None
        left = max(min((box["x"] for box in boxes), default=0) - margin, 0)
        top = max(min((box["y"] for box in boxes), default=0) - margin, 0)
        ends_x = [box["x"] + box["width"] + margin for box in boxes] or [window["width"]]
        ends_y = [box["y"] + box["height"] + margin for box in boxes] or [window["height"]]
        page.screenshot(
            path=folder / f"{name}.png",
            clip={
                "x": left,
                "y": top,
                "width": min(max(ends_x), window["width"]) - left,
                "height": min(max(ends_y), window["height"]) - top,
            },
            animations="disabled",
            caret="hide",
        )

    return take
