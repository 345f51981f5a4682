"""Programs that igpe knows how to speak to, ready made.

Their AMPL interfaces: SCIP, src/scip/reader_nl.cpp; Bonmin and Couenne, BonAmplTMINLP.cpp (solve
codes 3, 220, 300, 421 or 410 at a limit, 422 or 411 if interrupted, 500) and BonCouenne.cpp.
"""

from igpe.solvers.closing import MARGIN
from igpe.solvers.program import AmplProgram

CUTOFF = 1e-5  # Bonmin's `cutoff_decr`: by how much better Couenne's next incumbent must be
IDAES = (
    "`pip install idaes-pse`, then `idaes get-extensions` (on Debian `idaes get-extensions "
    "--distro ubuntu2204`), brings it."
)


def Couenne(
    gap: float = 1e-4, feasibility: float = 1e-7, absolute: float | None = None
) -> AmplProgram:
    """Couenne: spatial branch and bound, as a program.

    gap          relative distance of incumbent and bound at which it stops
    feasibility  tolerance of the constraints
    absolute     gap in the objective's unit, for an optimum near 0; None: about 1e-6, times the
                 objective's size where that is below 1

    A time limit is one of processor time to it. At wall time it is interrupted.
    Belotti, Lee, Liberti, Margot, Waechter, "Branching and bounds tightening techniques for
    non-convex MINLP", Optim. Methods Softw. 24 (2009).
    """
    return AmplProgram(
        "couenne",
        files=(("couenne.opt", f"allowable_fraction_gap {gap}\nfeas_tolerance {feasibility}\n"),),
        time_line="time_limit {}",
        gap_line="allowable_gap {}",
        proven_gap=gap,
        absolute=absolute,
        bound_label="Lower bound",
        margin=MARGIN + CUTOFF,
        how=f"Couenne is a program, on PATH or in the IDAES folder: {IDAES}",
    )


def Bonmin() -> AmplProgram:
    """Bonmin as a program: a local solver, as its bounds hold for convex problems only.

    Bonami et al., "An algorithmic framework for convex mixed integer nonlinear programs", Discrete
    Optim. 5 (2008).
    """
    return AmplProgram(
        "bonmin",
        files=(("bonmin.opt", ""),),
        time_line="bonmin.time_limit {}",
        how=f"Bonmin is a program, on PATH or in the IDAES folder: {IDAES}",
    )


def ScipProgram(
    gap: float = 1e-4, feasibility: float = 1e-7, absolute: float | None = None
) -> AmplProgram:
    """SCIP as a program, where there is no wheel.

    gap          relative distance of incumbent and bound at which it stops
    feasibility  tolerance of the constraints
    absolute     gap in the objective's unit, for an optimum near 0; None: about 1e-6, times the
                 objective's size where that is below 1
    """
    return AmplProgram(
        "scip",
        files=(("scip.set", f"limits/gap = {gap}\nnumerics/feastol = {feasibility}\n"),),
        time_line="limits/time = {}",
        gap_line="limits/absgap = {}",
        proven_gap=gap,
        absolute=absolute,
        bound_label="Dual Bound",
        how="SCIP is a program, which must be on PATH: `conda install -c conda-forge scip`.",
    )
