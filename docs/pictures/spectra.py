"""The picture of `spectra.md`: `python docs/pictures/spectra.py` writes it beside this file."""

import re
from pathlib import Path

if __name__ == "__main__":
    here = Path(__file__)
    page = (here.parents[1] / "spectra.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    names: dict[str, object] = {}
    exec(compile(code, "spectra.md", "exec"), names)
    names["result"].plot_spectra().save(here.with_suffix(".png"))  # type: ignore[attr-defined]
