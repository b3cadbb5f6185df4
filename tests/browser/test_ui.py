"""What a person sees in Dagster's UI."""

import re

import pytest
from playwright.sync_api import Page, expect

from tests.support.dagster_dev import materializations, runs_of, wait_for
from tests.support.shop import Shop

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("published")]


def test_the_lineage_leads_from_topic_to_table_to_dead_letters(shop: Shop, page: Page) -> None:
    page.goto(f"{shop.url}/locations/shop/asset-groups/plain/lineage")
    for name in ("good", "plain", "dead_letters"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible()
    expect(page.get_by_text("Delta Lake").first).to_be_visible()


def test_a_run_shows_its_delivery_and_its_rows(shop: Shop, page: Page) -> None:
    wait_for("materialization", lambda: materializations(shop.url, "plain"))
    (run,) = runs_of(shop.url, "plain")
    page.goto(f"{shop.url}/runs/{run['runId']}")
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()
    page.goto(f"{shop.url}/assets/plain")
    expect(page.get_by_text("good/0:1-", exact=False).first).to_be_visible()


def test_the_dead_letter_asset_shows_what_died_and_why(shop: Shop, page: Page) -> None:
    wait_for("dead letters", lambda: materializations(shop.url, "failing", "dead_letters"))
    page.goto(f"{shop.url}/assets/failing/dead_letters")
    expect(page.get_by_text("dead letters", exact=True).first).to_be_visible()
    expect(page.get_by_text(re.compile("boom")).first).to_be_visible()
