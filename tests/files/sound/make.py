"""Make the sound files anew: python tests/files/sound/make.py."""

import shutil
import sys
import tempfile
from pathlib import Path

import pandas as pd

HERE = Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parents[1] / "formats" / "petab")]

import decay  # noqa: E402 - lies beside this file
import small  # noqa: E402 - of the tests of PEtab
import test_version2  # noqa: E402

import igpe  # noqa: E402


def main() -> None:
    """Write all of them."""
    for old in HERE.glob("*.json"):
        old.unlink()
    (HERE / "campaign.db").unlink(missing_ok=True)
    problem = decay.problem()
    result = igpe.estimate(problem)
    result.to_json(HERE / "result.json")
    igpe.profile(problem, result).to_json(HERE / "profiles.json")
    igpe.bootstrap(problem, result, replications=10).to_json(HERE / "bootstrap.json")
    igpe.predict(problem, result).to_json(HERE / "prediction.json")
    igpe.certify(problem, result, gap=0.2, time_limit=30.0).to_json(HERE / "certificate.json")
    free = {"A": igpe.planning.Between(0.5, 2.0)}
    plan = igpe.design(problem, result, free=free, times=[1.0, 2.0], pool=8, starts=2)
    plan.to_json(HERE / "plan.json")
    igpe.campaign(problem, starts=4, store=HERE / "campaign.db")
    table = pd.read_csv(HERE / "decay.csv").rename(columns={"time": "t [h]", "A": "c(A) [mol/L]"})

    both = pd.concat([table.assign(run=name, remark="x") for name in ("a", "b")])
    both.to_csv(HERE / "table.csv", index=False)
    both.to_excel(HERE / "table.xlsx", index=False)
    both.to_parquet(HERE / "table.parquet", index=False)
    with tempfile.TemporaryDirectory() as folder:
        for version, write in (("petab1", small.write), ("petab2", test_version2.write)):
            place = Path(folder) / version
            place.mkdir()
            write(place)
            shutil.rmtree(HERE / version, ignore_errors=True)
            shutil.copytree(place, HERE / version)


if __name__ == "__main__":
    main()
