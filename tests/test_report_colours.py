"""Colours of the page: what is written and drawn can be seen, and classes can be told apart by colour-blind readers."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import combinations

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
    for mark in ("accent", "cool", "warm", "hot", "mark", *CLASSES):
        assert contrast(c[mark], c["card"]) >= 3, mark


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_classes_are_told_apart(scheme, vision):
    """0.02 is what is just noticed in OKLab."""
    c = colours(scheme)
    seen = {k: TO_OKLAB @ np.cbrt(TO_CONES @ np.clip(VISIONS[vision] @ linear(c[k]), 0, 1)) for k in CLASSES}
    apart = {(a, b): float(np.linalg.norm(seen[a] - seen[b])) for a, b in combinations(CLASSES, 2)}
    assert min(apart.values()) > 0.07, min(apart, key=apart.get)
    assert apart["c0", "c1"] > 0.2  # copies and sums
