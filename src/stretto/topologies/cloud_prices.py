"""What clouds charge for bytes that leave a region, US dollars a GB (10^9 bytes); bytes that come in cost nothing.

List prices of the first terabytes a month, premium tier, as Skyplane's planner has them (Apache-2.0,
``skyplane/data/aws_transfer_costs.csv``, ``gcp_pricing.py``, ``azure_cloud_provider.py``, January 2024). Two things
differ from its code: Singapore and Jakarta have the prices that its comments name, which it exchanges; and Google's
Canada is in one zone with the United States, as Google's price list has it.
"""

from __future__ import annotations

AWS: dict[str, tuple[float, float]] = {
    "af-south-1": (0.147, 0.154), "ap-east-1": (0.09, 0.12), "ap-northeast-1": (0.09, 0.114),
    "ap-northeast-2": (0.08, 0.126), "ap-northeast-3": (0.09, 0.114), "ap-south-1": (0.086, 0.1093),
    "ap-southeast-1": (0.09, 0.12), "ap-southeast-2": (0.098, 0.114), "me-south-1": (0.1105, 0.117),
    "sa-east-1": (0.138, 0.15),
}  # fmt: skip
"""To another region of AWS, and to the internet, from each region that does not have the price of the others."""

AWS_ELSEWHERE = (0.02, 0.09)
AWS_OHIO_VIRGINIA = 0.01

GOOGLE_INSIDE = {"us": 0.01, "europe": 0.02, "asia": 0.05, "southamerica": 0.08, "australia": 0.08}
"""Between regions of a continent."""
GOOGLE_BETWEEN, GOOGLE_OCEANIA = 0.08, 0.15
"""Between continents, and where one of them is Oceania, or the region is Jakarta."""
GOOGLE_INTERNET = {
    "asia-southeast1": 0.14, "asia-northeast1": 0.14, "asia-northeast2": 0.14, "asia-northeast3": 0.147,
    "asia-southeast2": 0.19, "australia-southeast1": 0.19, "australia-southeast2": 0.19,
}  # fmt: skip
GOOGLE_INTERNET_ELSEWHERE, GOOGLE_INTERNET_TO_AUSTRALIA = 0.12, 0.19

AUSTRALIA = ("aws:ap-southeast-2", "azure:australiaeast")

AZURE_ASIA = ("australiaeast", "japaneast", "koreacentral")
AZURE_EUROPE = ("francecentral", "germanywestcentral", "northeurope", "uksouth", "westeurope")


def usd_per_gb(source: str, target: str) -> float:
    """What a GB from a region to another one costs; regions as in ``aws:us-east-1``."""
    cloud, _, region = source.partition(":")
    other, _, to = target.partition(":")
    if cloud == "aws":
        if {region, to} == {"us-east-1", "us-east-2"}:
            return AWS_OHIO_VIRGINIA
        return AWS.get(region, AWS_ELSEWHERE)[other != "aws"]
    if cloud == "gcp":
        return _google(region, to if other == "gcp" else "", target)
    if other != "azure":
        return 0.12 if region in AZURE_ASIA else 0.0875
    if region in AZURE_ASIA:
        return 0.08
    return 0.02 if _azure_continent(region) == _azure_continent(to) else 0.05


def _google(region: str, to: str, target: str) -> float:
    """From a region of Google's, to another one of its regions if ``to`` names one."""
    zone = region.rpartition("-")[0]
    if not to:
        base = GOOGLE_INTERNET.get(zone, GOOGLE_INTERNET_ELSEWHERE)
        return max(base, GOOGLE_INTERNET_TO_AUSTRALIA) if target in AUSTRALIA else base
    ends = [_google_continent(region), _google_continent(to)]
    if ends[0] == ends[1]:
        return GOOGLE_INSIDE[ends[0]]
    far = "australia" in ends or "asia-southeast2" in (zone, to.rpartition("-")[0])
    return GOOGLE_OCEANIA if far else GOOGLE_BETWEEN


def _google_continent(region: str) -> str:
    continent = region.partition("-")[0]
    return "us" if continent == "northamerica" else continent


def _azure_continent(region: str) -> str:
    return "europe" if region in AZURE_EUROPE else "asia" if region in AZURE_ASIA else "north-america"
