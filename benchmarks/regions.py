"""Certified confidence regions: seconds beside `igpe.certify`, what is left, and random samples.

Processor seconds of one core; the best parameters are given.
"""

import argparse
import importlib
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from claims import EXACT
from figures import CONSOLE, Row, at_least, at_most, command
from trust.optima import sulfisoxazole

import igpe
from igpe.dynamics.shooting.residuals import Residuals

PAPER = ("consecutive", "reversible", "gas_oil_cracking", "bellman", "lotka_volterra")
REPEATS = 3
FEW = 2  # of the problems, with `--quick`
RATIO = 2.5  # of the time of `igpe.certify`
CHECKING = 3.0  # time of `igpe.verify`, of the time of the search
PRECISION = 0.01
MIRRORED = 30.0  # s
SAMPLES = 200_000
NEAR = 0.2  # of a region's width: how far beside it half of the samples lie


def timed(make: Any) -> tuple[float, Any]:
    """Least processor seconds of some calls, and what the last gave."""
    least = np.inf
    for _ in range(REPEATS + 1):  # the first may compile or load
        began = time.process_time()
        made = make()
        least = min(least, time.process_time() - began)
    return least, made


def problems(given: argparse.Namespace) -> Iterator[Row]:
    """The published problems: time beside `igpe.certify`, gaps of the ends, checking."""
    for name in PAPER[:FEW] if given.quick else PAPER:
        case = importlib.import_module(name)
        problem = case.problem()
        point, proof = timed(lambda p=problem, c=case: igpe.certify(p, c.OPTIMUM, time_limit=300))
        seconds, region = timed(
            lambda p=problem, c=case: igpe.certify_region(p, c.OPTIMUM, time_limit=300)
        )
        CONSOLE.print(f"{name}: {region}\n", highlight=False, soft_wrap=True)
        yield at_most(name, f"{region.examined} boxes, time", seconds, "s")
        yield at_most(name, "time : certify", seconds / point, limit=RATIO)
        yield at_most(name, "not decided", region.open_share, limit=0.0)
        yield at_most(name, "widest gap of ends : interval", gap(region), limit=PRECISION)
        for what, found, search in (("certify", proof, point), ("certify_region", region, seconds)):
            checking, verdict = timed(lambda f=found, p=problem: igpe.verify(f.to_json(), p))
            yield at_least(name, f"{what}, verified", float(bool(verdict)), "-", 1)
            yield at_most(name, f"verify, time : {what}", checking / search, limit=CHECKING)


def gap(region: igpe.proofs.CertifiedRegion) -> float:
    """The widest gap between outer and inner ends, as a share of the interval."""
    t = region.to_frame()
    width = t["outer_upper"] - t["outer_lower"]
    sides = [t["inner_lower"] - t["outer_lower"], t["outer_upper"] - t["inner_upper"]]
    return float(np.max([side / width for side in sides]))


def mirrored(given: argparse.Namespace) -> Iterator[Row]:
    """Two exponentials: both mirror regions, from one estimate."""
    problem = sulfisoxazole()
    result = igpe.estimate(problem, certify=False)
    began = time.process_time()
    region = igpe.certify_region(problem, result, time_limit=given.patience)
    seconds = time.process_time() - began
    CONSOLE.print(str(region), highlight=False, soft_wrap=True)
    yield at_most("sulfisoxazole", f"{region.examined} boxes, time", seconds, "s", MIRRORED)
    yield at_least("sulfisoxazole", "regions", region.known, "-", 2)
    yield at_most("sulfisoxazole", "not decided", region.open_share, limit=0.0)


def samples(given: argparse.Namespace) -> Iterator[Row]:
    """Random parameters, integrated by other means: those of the region that lie outside of it."""
    wanted = given.samples // 100 if given.quick else given.samples
    each, total, wrong = wanted // len(PAPER), 0, 0
    for name in PAPER:
        case = importlib.import_module(name)
        problem = case.problem()
        region = igpe.certify_region(problem, case.OPTIMUM, time_limit=300)
        bad, inside = violations(problem, region, each)
        total, wrong = total + each, wrong + bad
        yield at_most(name, "samples that belong to the region", inside)
        yield at_most(name, "violations", bad, limit=0)
    yield at_least("all", "samples", total, "-", wanted)
    yield at_most("all", "violations", wrong, limit=0)


def violations(
    problem: igpe.Problem, region: igpe.proofs.CertifiedRegion, count: int, seed: int = 0
) -> tuple[int, int]:
    """How many samples contradict the region, and how many belong to it.

    A sample contradicts it if it belongs to the region and lies outside of its boxes, if its sum of
    squares is below the lower bound, or if it is an inner end that does not belong to it.
    """
    residuals, rng = Residuals(problem, EXACT), np.random.default_rng(seed)
    low, high = np.array(region.lower), np.array(region.upper)
    boxes = [(np.array(r.lower), np.array(r.upper)) for r in region.regions]
    level, wrong, members = region.objective + region.rise * (1 - 1e-6), 0, 0

    def cost(x: Any) -> float:
        at = residuals(x)
        return np.inf if at is None else float(at.residual @ at.residual)

    for k in range(count):
        a, b = (low, high) if k % 2 else boxes[k // 2 % len(boxes)]
        room = 0.0 if k % 2 else NEAR
        x = np.clip(a + (b - a) * (rng.random(len(a)) * (1 + 2 * room) - room), low, high)
        squares = cost(x)
        belongs = squares <= level
        members += belongs
        is_inside = any((p <= x).all() and (x <= q).all() for p, q in boxes)
        wrong += (belongs and not is_inside) or squares < region.lower_bound * (1 - 1e-9)
    for one in region.regions:
        wrong += sum(not cost(np.array(x)) <= region.inner_level * (1 + 1e-6) for x in one.inside)
    return int(wrong), int(members)


SECTIONS = {"problems": problems, "mirrored": mirrored, "samples": samples}


def options(parser: argparse.ArgumentParser) -> None:
    """How long, and how many."""
    parser.add_argument("--patience", type=float, default=120.0, help="s of `mirrored`")
    parser.add_argument("--samples", type=int, default=SAMPLES, help="of `samples`")
    parser.add_argument("--quick", action="store_true", help="two problems, a hundredth of samples")


if __name__ == "__main__":
    command(__doc__, "Certified regions", SECTIONS, options)
