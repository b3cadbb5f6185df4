"""Which columns a plain query passes on, and that nothing is claimed of others."""

import pytest

from dagster_bus.orchestration.columns import passed_through

COLUMNS = ["order_id", "amount", "n"]


@pytest.mark.parametrize(
    ("query", "passed"),
    [
        ("SELECT order_id, amount FROM events", {"order_id": "order_id", "amount": "amount"}),
        ("select Order_Id as id, events.n FROM events WHERE n > 1", {"id": "order_id", "n": "n"}),
        ("SELECT n + 1 AS more, concat(order_id, ', FROM events') x, n FROM events", {"n": "n"}),
        ("SELECT n, _event.ts AS ts, nothing FROM events\nORDER BY n", {"n": "n"}),
        ("SELECT n FROM events JOIN others USING (n)", {}),
        ("SELECT n FROM events, others", {}),
        ("SELECT n FROM (SELECT 1 AS n FROM events)", {}),
        ("WITH events AS (SELECT 1 AS n) SELECT n FROM events", {}),
        ("SELECT n FROM events UNION SELECT 1", {}),
        ("SELECT DISTINCT n FROM events", {}),
        ("SELECT n FROM events_of_others", {}),
        ("SELECT n -- , amount\n FROM events", {}),
        ("SELECT n FROM events LATERAL VIEW explode(x) AS n", {}),
    ],
)
def test_columns_of_plain_queries_are_followed(query: str, passed: dict[str, str]) -> None:
    assert dict(passed_through(query, COLUMNS)) == passed
