"""The demo's database counts each range of offsets once, whoever brings it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from millstream.demo.records import customers
from millstream.demo.results import CountedRange, Results


def test_a_range_is_counted_once(tmp_path: Path) -> None:
    results = Results.create(tmp_path / "r.sqlite", 2)
    other = Results(tmp_path / "r.sqlite")
    assert results.add({"Kenya": 2}, {0: CountedRange(0, 2)})
    assert not other.add({"Kenya": 2}, {0: CountedRange(0, 2)})
    assert not other.add({"Kenya": 5, "Japan": 1}, {1: CountedRange(0, 1), 0: CountedRange(0, 5)})
    assert other.add({"Kenya": 1, "Japan": 1}, {0: CountedRange(2, 3), 1: CountedRange(0, 1)})
    assert results.counts() == {"Kenya": 3, "Japan": 1}
    assert results.next_offsets() == {0: 3, 1: 1}
    other.close()
    results.close()


def test_the_customers_are_always_the_same() -> None:
    found = list(customers(1000))
    assert found == list(customers(1000))
    assert found[0].name == "customer-000001"
    assert len({one.name for one in found}) == 1000
    assert Counter(one.country for one in found).most_common(1)[0][0] in ("China", "India")
