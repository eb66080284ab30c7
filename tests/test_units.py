"""Units in and out."""

from __future__ import annotations

import pytest

from stretto.model.errors import InputError
from stretto.model.units import format_bandwidth, format_size, format_time, parse_bandwidth, parse_size, parse_time


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64KB", 64_000), ("1MiB", 2**20), ("1e6", 10**6), ("31.25MB", 31_250_000), ("5", 5), ("8 B", 8),
        ("1GB", 10**9), ("2kB", 2000), ("1.5KiB", 1536), ("1Kbit", 125),
    ],
)  # fmt: skip
def test_sizes_are_bytes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "bandwidth"),
    [
        ("25GB/s", 25e9),
        ("400Gbit/s", 50e9),
        ("400Gbps", 50e9),
        ("12.5 GB/s", 12.5e9),
        ("3GBps", 3e9),
        ("8Gb/s", 1e9),
        (1e9, 1e9),
    ],
)
def test_bandwidths_are_bytes_per_second(text, bandwidth):
    assert parse_bandwidth(text) == bandwidth


@pytest.mark.parametrize(("text", "seconds"), [("5us", 5e-6), ("0.7 ms", 7e-4), ("0", 0), ("2s", 2), ("30ns", 3e-8)])
def test_times_are_seconds(text, seconds):
    assert parse_time(text) == pytest.approx(seconds, rel=1e-15)


@pytest.mark.parametrize(
    "text", ["", "KB", "-1KB", "0", "1.5", "1XB", "nan", "inf", "1e400", "1MB/s", "1 2KB", "1e30", "1Mb", "2kb", "8 b"]
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(InputError):
        parse_size(text)


@pytest.mark.parametrize(
    "text", ["", "0", "-1GB/s", "1parsec", "1e999", "GB/s", "10", "1e9", "1e308B/s", "5e-324B/s", "0.9B/s", 1e-300]
)
def test_what_is_no_bandwidth_is_refused(text):
    with pytest.raises(InputError):
        parse_bandwidth(text)


@pytest.mark.parametrize("text", ["-1s", "1min", "1e999", "", "1e300s", "4e7s"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(InputError):
        parse_time(text)


def test_quantities_read_well():
    assert format_size(31_250_000) == "31.25 MB"
    assert format_bandwidth(12.5e9) == "12.5 GB/s"
    shown = ["62.51 ms", "4.1 us", "0 s", "2.5 s", "20.83 h"]
    assert [format_time(t) for t in (0.06251, 4.1e-6, 0, 2.5, 75_000)] == shown
