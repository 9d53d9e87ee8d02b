"""Values of a database that Spark cannot hold: the run names them, and nothing is put aside."""

from __future__ import annotations

import pytest
from tests.spark.database_shop import Shop, shop

from floodmark.errors import SourceError

pytestmark = [pytest.mark.as_users, pytest.mark.spark, pytest.mark.postgres]
__all__ = ["shop"]


def test_a_run_refuses_a_value_by_column_and_reads_on_once_it_is_correct(shop: Shop) -> None:
    shop.run_sql("CREATE TABLE orders (id int, amount numeric, at time, until date)")
    shop.run_sql("INSERT INTO orders VALUES (1, 1e-20, '10:00:00.123456', '2026-01-01')")
    shop.node("incremental: {cursor: id}")
    with pytest.raises(SourceError) as caught:
        shop.run()
    shop.run_sql("UPDATE orders SET amount = 1.5, until = 'infinity'")
    with pytest.raises(SourceError) as infinite:
        shop.run()
    shop.run_sql("UPDATE orders SET until = '2026-01-02'")

    shop.run()

    assert [caught.value.code, infinite.value.code] == ["FM-SOURCE-066", "FM-SOURCE-066"]
    assert "column amount" in str(caught.value.where)
    assert caught.value.found == "0.00000000000000000001"
    assert "column until" in str(infinite.value.where)
    rows = shop.rows(
        "lake/orders", "CAST(id AS STRING)", "CAST(at AS STRING)", "CAST(until AS STRING)"
    )
    assert rows == [("1", "1970-01-01T10:00:00.123456", "2026-01-02")]
