import random

import numpy as np
import pytest

from penstock.metrics.latency import LatencyHistogram, bucket_of, buckets_of, merged, value_of


def test_a_quantile_is_within_one_percent_of_the_measured_value():
    generator = random.Random(7)
    values = sorted(generator.lognormvariate(8, 2) for _ in range(5_000))
    histogram = LatencyHistogram()
    for value in values:
        histogram.record(value)
    for q in (0.5, 0.9, 0.99, 1.0):
        exact = values[max(0, int(np.ceil(q * len(values))) - 1)]
        assert histogram.quantile_us(q) == pytest.approx(exact, rel=0.0101)


def test_buckets_of_an_array_are_the_buckets_of_its_values():
    values = np.array([0.0, 0.5, 1.0, 1.01, 2.0, 999.0, 1e6, 1e11, -5.0])
    assert buckets_of(values).tolist() == [bucket_of(float(value)) for value in values]


def test_a_bucket_holds_its_own_middle():
    for bucket in (0, 1, 2, 100, 1_000, 1_300):
        assert bucket_of(value_of(bucket)) == bucket


def test_no_records_means_no_quantile_and_no_maximum():
    assert LatencyHistogram().quantile_us(0.5) is None
    assert LatencyHistogram().max_us() is None


def test_the_difference_of_two_readings_is_what_came_between_them():
    histogram = LatencyHistogram()
    histogram.record(10)
    earlier = LatencyHistogram(dict(histogram.counts))
    histogram.record(10)
    histogram.record(5_000)
    grown = histogram.since(earlier)
    assert grown.total == 2
    assert grown.counts == {bucket_of(10): 1, bucket_of(5_000): 1}


def test_merged_counts_add_up():
    first, second = LatencyHistogram({1: 2}), LatencyHistogram({1: 1, 3: 4})
    assert merged([first, second]).counts == {1: 3, 3: 4}
    assert first.counts == {1: 2}


def test_a_bucket_that_nothing_can_be_in_has_a_middle_all_the_same():
    assert 2.0**63 < value_of(2**63) < 1e20
    assert LatencyHistogram({2**64 - 1: 1, -(2**63): 1}).quantile_us(0.99) is not None
