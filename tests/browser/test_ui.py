"""What a person sees and does in Dagster's UI. The tests look first, and change things later."""

import re
from textwrap import dedent

import pytest
from deltalake import DeltaTable
from playwright.sync_api import Locator, Page, expect

from dagster_bus.core.store import Tally
from dagster_bus.orchestration.names import REDRIVE
from tests.browser.conftest import Shoot
from tests.browser.gallery import DONE, GOOD, MISSPELT, MISSPELT_ORDERS, ORDERS, UNPAID, Gallery
from tests.support.dagster_dev import wait_for
from tests.support.graphql import materializations, runs_of

pytestmark = pytest.mark.timeout(600)

BOXES = ("topics", "enriched_orders", "daily_revenue")
ALL_OPEN = ",".join(f"global@global:{box}" for box in BOXES)

DRAWN = """() => {
    const number = (node, name) => Number(node.getAttribute(name));
    return {
        nodes: [...document.querySelectorAll("foreignObject:not(.group)")]
            .filter((node) => node.firstElementChild?.innerText)
            .map((node) => ({
                name: node.firstElementChild.innerText.trim().split("\\n")[0],
                left: number(node, "x"),
                right: number(node, "x") + number(node, "width"),
                top: number(node, "y"),
                bottom: number(node, "y") + number(node, "height"),
            })),
        edges: [...document.querySelectorAll("path[marker-end]")].map((edge) => {
            const places = edge.getAttribute("d").match(/-?[0-9.]+/g).map(Number);
            return [...places.slice(0, 2), ...places.slice(-2)];
        }),
    };
}"""
"""The nodes of the graph that is on the page, and between which points the arrows are."""

ARROWHEAD = 12
"""So far from a node an arrow's line may end."""


def edges_drawn(page: Page) -> list[tuple[str, str]]:
    """Which nodes the arrows lead from and to, by where they are on the page."""
    drawn = page.evaluate(DRAWN)

    def at(side: str, x: float, y: float) -> str:
        """The one node that has this point on that side."""
        (found,) = (
            str(node["name"])
            for node in drawn["nodes"]
            if abs(node[side] - x) <= ARROWHEAD and node["top"] <= y <= node["bottom"]
        )
        return found

    return sorted(
        (at("right", from_x, from_y), at("left", to_x, to_y))
        for from_x, from_y, to_x, to_y in drawn["edges"]
    )


def hide_navigation(page: Page) -> None:
    page.get_by_text("Hide navigation", exact=True).click()
    expect(page.get_by_text("Hide navigation", exact=True)).to_be_hidden()


def row_of(page: Page, key: str) -> Locator:
    """What an asset's page says under a key of its metadata."""
    name = page.get_by_role("cell", name=key, exact=True)
    return page.get_by_role("row").filter(has=name).last


def test_a_run_shows_its_delivery_and_its_rows(gallery: Gallery, page: Page) -> None:
    run, *failed = runs_of(gallery.url, "enriched-orders")
    page.goto(f"{gallery.url}/runs/{run['runId']}")
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()
    assert [each["status"] for each in failed] == ["FAILURE"]
    page.goto(f"{gallery.url}/assets/enriched_orders")
    expect(page.get_by_text("orders.created/0:1-", exact=False).first).to_be_visible()
    expect(row_of(page, "rows")).to_contain_text(str(len(GOOD)))
    expect(row_of(page, "published")).to_contain_text(str(len(GOOD)))


def test_dead_letters_tell_what_died_why_and_in_which_runs(
    gallery: Gallery, page: Page, shoot: Shoot
) -> None:
    page.set_viewport_size({"width": 1700, "height": 1500})
    page.goto(f"{gallery.url}/assets/enriched_orders/dead_letters")
    hide_navigation(page)
    dead = [*MISSPELT, *UNPAID]
    expect(row_of(page, "dead letters")).to_contain_text(str(len(dead)))
    why, newest = row_of(page, "why"), row_of(page, "newest")
    expect(why.get_by_text("no euro rate for currency EURO")).to_be_visible()
    expect(why.get_by_text("is_paid")).to_be_visible()
    records = newest.get_by_role("row").filter(has_text="orders.created/")
    expect(records).to_have_count(len(dead))
    for order in ORDERS[len(GOOD) :]:
        expect(records.filter(has_text=order["order_id"])).to_have_count(1)
    expect(records.filter(has_text="no euro rate")).to_have_count(len(MISSPELT))
    place = newest.get_by_role("columnheader").all_inner_texts().index("attempts")
    for record in records.all():
        expect(record.get_by_role("cell").nth(place)).to_have_text("2")
    corners = [page.get_by_text(text, exact=True) for text in ("Description", "Plots", "in full")]
    shoot("dead-letters", *corners)

    page.get_by_text("[Show Markdown]").click()
    story = page.get_by_role("dialog")
    expect(story.get_by_text(re.compile("^attempt 1,")).first).to_be_visible()
    story.get_by_role("link").first.click()
    expect(page.get_by_text("Failure", exact=True).first).to_be_visible()
    failed = runs_of(gallery.url, "enriched-orders")[-1]["runId"]
    assert page.url.endswith(f"/runs/{failed}")
    expect(page.get_by_text("no euro rate for currency EURO").first).to_be_visible()


def test_the_lineage_leads_from_topic_to_table_to_topic_to_table_and_to_dead_letters(
    gallery: Gallery, page: Page, shoot: Shoot
) -> None:
    page.set_viewport_size({"width": 1900, "height": 800})
    page.goto(f"{gallery.url}/asset-groups?expanded={ALL_OPEN}")
    hide_navigation(page)
    page.reload()  # now that there is room
    graph = page.locator("svg", has=page.locator("foreignObject.group"))
    for name in ("created", "enriched", "enriched_orders", "daily_revenue"):
        expect(graph.get_by_text(name, exact=True).first).to_be_visible()
    expect(graph.get_by_text("dead_letters", exact=True).first).to_be_visible()
    for kind in ("Delta Lake", "SQLite", "SQL"):
        expect(graph.get_by_text(kind, exact=True).first).to_be_visible()
    check = graph.locator("a[href='/assets/enriched_orders/dead_letters?view=checks']")
    expect(check.get_by_role("img", name="close")).to_be_visible()
    expect(graph.get_by_text("Loading")).to_have_count(0)
    assert edges_drawn(page) == [
        ("created", "enriched_orders"),
        ("daily_revenue", "dead_letters"),
        ("enriched", "daily_revenue"),
        ("enriched_orders", "dead_letters"),
        ("enriched_orders", "enriched"),
    ]
    shoot("lineage", graph.locator("foreignObject.group"))


def test_a_window_that_is_materialized_by_clicking_is_made_anew_from_the_log(
    gallery: Gallery, page: Page, shoot: Shoot
) -> None:
    right = gallery.table("daily_revenue")
    assert right["order_id"].to_list() == DONE
    window = right["_window"][0]
    table = DeltaTable(str(gallery.folder / "data/daily_revenue"))
    table.delete("country = 'US'")
    table.update(updates={"amount_eur": "amount_eur * 2"})
    assert not gallery.table("daily_revenue").equals(right)

    page.goto(f"{gallery.url}/assets/daily_revenue")
    page.get_by_role("button", name=re.compile("Materialize")).first.click()
    dialog = page.get_by_role("dialog")
    partitions = dialog.get_by_role("textbox").first
    partitions.fill(window)
    partitions.press("Enter")
    launch = dialog.get_by_role("button", name="Launch 1 run")
    expect(launch).to_be_enabled()
    shoot("materialize", dialog, margin=0)
    launch.click()
    page.get_by_role("link", name="View", exact=True).click()
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()
    run_id = page.url.rpartition("/")[2]

    assert gallery.table("daily_revenue").equals(right), "each order once, and as it was"
    done = materializations(gallery.url, "daily_revenue")[0]
    assert (done["runId"], done["partition"]) == (run_id, window)
    page.goto(f"{gallery.url}/assets/daily_revenue")
    expect(row_of(page, "window")).to_contain_text(window)
    expect(row_of(page, "rows")).to_contain_text(str(len(GOOD)))
    assert gallery.tally("daily-revenue") == Tally(processed=len(GOOD))


def test_letters_are_mended_and_sent_back_from_the_launchpad(
    gallery: Gallery, page: Page, shoot: Shoot
) -> None:
    with gallery.bus() as bus:
        letters = bus.dead_letters("enriched-orders").list()
    (fingerprint,) = {each.fingerprint for each in letters if "no euro" in each.errors[-1].message}
    page.set_viewport_size({"width": 1280, "height": 720})
    page.goto(f"{gallery.url}/locations/shop/jobs/{REDRIVE}/playground")
    hide_navigation(page)
    launch = launch_with(
        page,
        f"""\
        ops:
          {REDRIVE}_step:
            config:
              group: enriched-orders
              fingerprint: '{fingerprint}'
              patch: '[{{"op": "replace", "path": "/currency", "value": "EUR"}}]'
              dry_run: false
        """,
    )
    shoot("redrive")
    launch.click()
    expect(page.get_by_text("Success", exact=True).first).to_be_visible()

    orders = sorted([*DONE, *MISSPELT_ORDERS])
    wait_for("revenue", lambda: gallery.tally("daily-revenue").settled == len(orders))
    assert gallery.tally("enriched-orders") == Tally(
        processed=len(orders), dead_lettered=len(UNPAID)
    )
    assert gallery.orders_in("enriched_orders") == gallery.orders_in("daily_revenue") == orders
    assert len(orders) + len(UNPAID) == len(ORDERS)
    page.goto(f"{gallery.url}/assets/enriched_orders/dead_letters")
    expect(row_of(page, "dead letters")).to_contain_text(str(len(UNPAID)))
    expect(row_of(page, "why")).not_to_contain_text("no euro rate")


def launch_with(page: Page, config: str) -> Locator:
    """Type a configuration into the launchpad's editor, as one does; what launches it then."""
    page.locator(".CodeMirror").first.click()
    page.keyboard.press("Control+A")
    page.keyboard.insert_text(dedent(config).rstrip())
    expect(page.get_by_text("No errors")).to_be_visible()
    launch = page.get_by_role("button", name="Launch Run")
    expect(launch).to_be_enabled()
    return launch
