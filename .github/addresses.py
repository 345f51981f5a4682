"""Write the address of the repository into what a release publishes.

    python .github/addresses.py https://github.com/OWNER/NAME TAG

PyPI shows `README.md` without the files beside it, so its links become absolute. The links of the
project page are added to `pyproject.toml`. The checkout is changed; a release is built from it.
"""

import re
import sys
from pathlib import Path

ROOT = Path.cwd()
RELATIVE = re.compile(r"(?P<mark>!?)\[(?P<text>[^]]*)\]\((?!https?:)(?P<target>[^)]+)\)")


def absolute(markdown: str, address: str, tag: str) -> str:
    """Return Markdown whose links and pictures lead to the repository at a tag."""

    def link(match: re.Match[str]) -> str:
        kind = "raw" if match["mark"] else "blob"
        return f"{match['mark']}[{match['text']}]({address}/{kind}/{tag}/{match['target']})"

    return RELATIVE.sub(link, markdown)


def urls(address: str, tag: str) -> str:
    """Return the table of links for `pyproject.toml`."""
    owner, name = address.rstrip("/").split("/")[-2:]
    return "\n".join([
        "",
        "[project.urls]",
        f'Documentation = "https://{owner}.github.io/{name}"',
        f'Source = "{address}"',
        f'Changelog = "{address}/blob/{tag}/CHANGELOG.md"',
        f'Issues = "{address}/issues"',
        "",
    ])


if __name__ == "__main__":
    given_address, given_tag = sys.argv[1:]
    readme, project = ROOT / "README.md", ROOT / "pyproject.toml"
    text = absolute(readme.read_text(encoding="utf-8"), given_address, given_tag)
    readme.write_text(text, encoding="utf-8")
    with project.open("a", encoding="utf-8") as file:
        file.write(urls(given_address, given_tag))
