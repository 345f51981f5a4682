"""Programs that igpe knows how to speak to, ready made."""

from igpe.solvers.program import AmplProgram


def Couenne(gap: float = 1e-4, feasibility: float = 1e-7) -> AmplProgram:
    """Couenne: spatial branch and bound, as a program.

    gap          relative distance of incumbent and bound at which it stops
    feasibility  tolerance of the constraints

    It is not told a time limit but ended at it: left to itself it calls what it has then an optimum
    (AmplNLWriter.jl issue 160).
    Belotti, Lee, Liberti, Margot, Waechter, "Branching and bounds tightening techniques for
    non-convex MINLP", Optim. Methods Softw. 24 (2009).
    """
    options = f"allowable_fraction_gap {gap}\nallowable_gap 0\nfeas_tolerance {feasibility}\n"
    return AmplProgram(
        "couenne",
        files=(("couenne.opt", options),),
        proven_gap=gap,
        how=(
            "Couenne is a program, which must be on PATH: `pip install idaes-pse`, then `idaes "
            "get-extensions`, brings it."
        ),
    )


def ScipProgram(gap: float = 1e-4, feasibility: float = 1e-7) -> AmplProgram:
    """SCIP as a program, where there is no wheel; its bound at a time limit is lost.

    gap          relative distance of incumbent and bound at which it stops
    feasibility  tolerance of the constraints
    """
    options = f"limits/gap = {gap}\nnumerics/feastol = {feasibility}\n"
    return AmplProgram(
        "scip",
        files=(("scip.set", options),),
        time_line="limits/time = {}",
        proven_gap=gap,
        how="SCIP is a program, which must be on PATH: `conda install -c conda-forge scip`.",
    )
