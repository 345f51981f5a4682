"""What the tab key offers, asked as bash, zsh and fish ask it; and in a bash that runs."""

import os
import shutil
import stat
import subprocess
import sys

import pytest
from command_line import ROOT

COMMANDS = {
    "new", "check", "estimate", "simulate", "profile", "report", "design", "compare", "certify",
    "verify", "convert",
}  # fmt: skip
BEGIN = (
    f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom igpe.cli import main\n"
    "try: main()\nexcept SystemExit: pass\n"
)
PLACES = {
    "bash": ".bash_completions/igpe.sh",
    "zsh": ".zfunc/_igpe",
    "fish": ".config/fish/completions/igpe.fish",
}
OFFERED = {
    "igpe ": COMMANDS,
    "igpe es": {"estimate"},
    "igpe compare my_problem.py --method M": {"MultipleShooting"},
    "igpe estimate my_problem.py --rep": {"--report"},
}


@pytest.fixture
def folder(tmp_path):
    """A user's folder, and a program `igpe` in the subfolder bin."""
    for name in ("bin", "home"):
        (tmp_path / name).mkdir()
    program = tmp_path / "bin" / "igpe"
    program.write_text(f"#!{sys.executable}\n{BEGIN}")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def ran(folder, words, **environment):
    """What a program prints in the user's folder."""
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    given = os.environ | {"PATH": path, "HOME": str(folder / "home"), "TERM": "dumb"}
    done = subprocess.run(
        words, cwd=folder, env=given | environment, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("shell", PLACES)
def test_what_is_offered(shell, folder):
    for line, offered in OFFERED.items():
        request = {
            "bash": {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))},
            "zsh": {"_TYPER_COMPLETE_ARGS": line},
            "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        }[shell]
        answer = ran(folder, ["igpe"], _IGPE_COMPLETE=f"complete_{shell}", **request)
        plain = answer.removeprefix("_arguments '*: :((").removesuffix("))'\n").splitlines()
        lines = (one.partition("\t")[0].partition('":"')[0].strip('"') for one in plain)
        assert {one for one in lines if one} == offered


@pytest.mark.parametrize("shell", PLACES)
def test_a_script_is_shown_and_installed_for_each_shell(shell, folder):
    """typer asks which process called it; without detection the shell can be said."""
    shown, _ = (
        ran(folder, ["igpe", option, shell], _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
        for option in ("--show-completion", "--install-completion")
    )
    assert "_IGPE_COMPLETE=complete_" in shown
    assert (folder / "home" / PLACES[shell]).read_text().strip() == shown.strip()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_a_running_bash_completes_files_by_itself(folder):
    script = (
        "source <(igpe --show-completion)\nCOMP_WORDS=(igpe es); COMP_CWORD=1\n"
        '_igpe_completion igpe\necho "${COMPREPLY[@]}"\ncomplete -p igpe\n'
    )
    lines = ran(folder, ["bash", "--norc", "-c", script]).splitlines()
    assert lines == ["estimate", "complete -o default -F _igpe_completion igpe"]


def test_completion_does_not_wait_for_what_is_slow(folder):
    slow = "slow = {'pyomo', 'casadi', 'pandas', 'numpy'} & set(sys.modules)\nassert not slow, slow"
    request = {"COMP_WORDS": "igpe ch", "COMP_CWORD": "1", "_IGPE_COMPLETE": "complete_bash"}
    assert ran(folder, [sys.executable, "-c", BEGIN + slow], **request).strip() == "check"
