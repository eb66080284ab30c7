"""Colours of the page: what is written and drawn can be seen, and classes can be told apart by colour-blind readers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.resources import files
from itertools import combinations, pairwise

import numpy as np
import pytest

CLASSES = [f"c{i}" for i in range(8)]

VISIONS = {
    "usual": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
"""Linear RGB as others see it: Machado, Oliveira and Fernandes 2009, severity 1."""

TO_CONES = np.array([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
                     [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip
TO_OKLAB = np.array([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
                     [0.0259040371, 0.7827717662, -0.8086757660]])  # fmt: skip


def colours(scheme: str) -> dict[str, str]:
    css = (files("stretto.report") / "page.css").read_text(encoding="utf-8")
    start = css.index(":root{" if scheme == "light" else ":root[data-scheme=dark]{")
    return dict(re.findall(r"--(\w+):(#[0-9a-f]{6})", css[start : css.index("}", start)]))


def linear(colour: str) -> np.ndarray:
    part = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG 2.2."""
    low, high = sorted(float(linear(c) @ [0.2126, 0.7152, 0.0722]) for c in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_marks_have_the_contrast_of_wcag_aa(scheme):
    c = colours(scheme)
    for word in ("ink", "soft", "accent"):
        assert contrast(c[word], c["card"]) >= 4.5, word
        assert word == "accent" or contrast(c[word], c["bg"]) >= 4.5, word
    for mark in ("accent", "cool", "warm", "full", "hot", "mark", "toll", *CLASSES):
        assert contrast(c[mark], c["card"]) >= 3, mark


MEANINGS = {
    "spent time: sending, costs of messages, latency, idle": ("accent", "toll", "warm", "idle"),
    "use of a link: hardly, half, fully": ("cool", "warm", "full"),
    "bars: the transfer, what it waits for, what waits for it": ("ink", "mark", "hot"),
    "curves of two plans": ("accent", "warm"),
    "nodes: switch, accelerator, router": ("soft", "accent", "warm"),
}
"""Colours that say something by themselves, beside each other."""


def distances(scheme: str, vision: str, names: Sequence[str]) -> dict[tuple[str, str], float]:
    """How far each two colours are apart as others see them, in OKLab, where 0.02 is what is just noticed."""
    c = colours("light") | colours(scheme)
    seen = {k: TO_OKLAB @ np.cbrt(TO_CONES @ np.clip(VISIONS[vision] @ linear(c[k]), 0, 1)) for k in names}
    return {(a, b): float(np.linalg.norm(seen[a] - seen[b])) for a, b in combinations(names, 2)}


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_classes_are_told_apart(scheme, vision):
    apart = distances(scheme, vision, CLASSES)
    assert min(apart.values()) > 0.13, min(apart, key=apart.get)
    assert apart["c0", "c1"] > 0.2  # copies and sums
    # chunks, steps and sites with numbers that follow each other are often beside each other
    neighbours = [tuple(sorted((name, CLASSES[(n + 1) % 8]))) for n, name in enumerate(CLASSES)]
    assert min(apart[pair] for pair in neighbours) > 0.15


@pytest.mark.parametrize("meaning", MEANINGS)
@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_with_a_meaning_are_told_apart(scheme, vision, meaning):
    apart = distances(scheme, vision, MEANINGS[meaning])
    assert min(apart.values()) > 0.1, min(apart, key=apart.get)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_ramp_of_use_goes_one_way_in_lightness(scheme):
    """So that it reads in grey, too."""
    c = colours("light") | colours(scheme)
    steps = [contrast(c[name], c["card"]) for name in ("cool", "warm", "full")]
    assert steps == sorted(steps)
    assert min(b / a for a, b in pairwise(steps)) > 1.2
