"""Intervals, bands and comparisons of models that are wrong."""

from dataclasses import replace
from typing import Any

from scipy import special

from house.planting import answering, around, fault, given, method, overwritten


@fault("test_profile")
def profiles_of_95_percent() -> None:
    """Profiles ignore the confidence that is given."""
    around("profile", given(confidence=lambda _: 0.95))


@fault("test_profile")
def profiles_silent_about_bounds() -> None:
    """A profile that ends at a bound looks as if the measurements ended it."""

    def change(profiles: Any) -> Any:
        ends = ("lower_end", "upper_end")
        quiet = tuple(
            replace(p, **{n: "" for n in ends if "bound" in getattr(p, n)})
            for p in profiles.profiles
        )
        return replace(profiles, profiles=quiet)

    around("profile", answering(change))


@fault("test_region")
def region_as_of_one_unknown() -> None:
    """The region of two unknowns is as small as if one alone were uncertain."""

    def wrong(right: Any, *arguments: Any, confidence: float = 0.95, **named: Any) -> Any:
        level = 1 - special.chdtrc(2, special.chdtri(1, 1 - confidence))
        found = right(*arguments, confidence=level, **named)
        return overwritten(found, confidence=confidence)

    around("region", wrong)


@fault("test_bootstrap")
def bootstrap_with_one_tail() -> None:
    """Percentiles of the bootstrap leave the whole chance of error out on each side."""

    def wrong(right: Any, found: Any) -> Any:
        table, tail = right(found), 1 - found.confidence
        for name, values in found.parameters.items():
            low, high = values.quantile(tail), values.quantile(1 - tail)
            table.loc[name, ["percentile_lower", "percentile_upper"]] = low, high
        return table

    method("Bootstrapped BootstrapResult", "to_frame", wrong)


@fault("test_bootstrap")
def bootstrap_bias_with_the_other_sign() -> None:
    """The bias that the bootstrap tells has the wrong sign."""
    change = answering(lambda table: table.assign(bias=-table["bias"]))
    method("Bootstrapped BootstrapResult", "to_frame", change)


@fault("test_prediction")
def band_without_noise() -> None:
    """The band of a further measurement is that of the mean."""

    def change(found: Any) -> Any:
        table = found.table
        measured = table["band_lower"].notna()
        bands = {
            f"band_{side}": table[side].where(measured, table[f"band_{side}"])
            for side in ("lower", "upper")
        }
        return replace(found, table=table.assign(**bands))

    around("predict", answering(change))


@fault("test_models")
def likelihood_ratio_inverted() -> None:
    """The likelihood ratio of two models has the probability of the other tail."""

    def change(found: Any) -> Any:
        return replace(found, table=found.table.assign(p=1 - found.table["p"]))

    around("compare_models", answering(change))


@fault("test_models")
def information_without_correction() -> None:
    """Akaike's criterion lacks the correction for few measurements."""

    def change(found: Any) -> Any:
        return replace(found, table=found.table.assign(AICc=found.table["AIC"]))

    around("compare_models", answering(change))
