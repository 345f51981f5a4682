"""The colours of a report, in light and dark, for the page and its pictures alike."""

LIGHT = {
    "paper": "#ffffff",
    "ink": "#1b1f23",
    "muted": "#57606a",
    "line": "#d0d7de",
    "shade": "#f3f5f7",
    "link": "#0b5cad",
    "blue": "#1f6fb4",
    "orange": "#b65a00",
}
DARK = {
    "paper": "#14171a",
    "ink": "#e8e6e3",
    "muted": "#a9b1ba",
    "line": "#3a4148",
    "shade": "#1e2328",
    "link": "#8ab8ff",
    "blue": "#6cb6ff",
    "orange": "#ffab5e",
}
DRAWN = {
    "#ffffff": "paper",
    "#000000": "ink",
    "#7f7f7f": "muted",
    "#1f77b4": "blue",
    "#ff7f0e": "orange",
    "#0072b2": "blue",
    "#e69f00": "orange",
}
"""What matplotlib draws -> its name here."""


def variables() -> str:
    """CSS that gives the names their colours; what is printed is light."""
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_list(DARK)} }} }}"
    return f":root {{ {_list(LIGHT)} }}\n{dark}\n"


def _list(colours: dict[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())
