"""What the tab key offers, asked as bash, zsh and fish ask it; and in a bash that runs."""

import os
import shutil
import stat
import subprocess
import sys

import pytest
from command_line import ROOT

SHELLS = ("bash", "zsh", "fish")
COMMANDS = {
    "new", "check", "estimate", "simulate", "profile", "report", "design", "compare", "certify",
    "verify", "convert",
}  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    """A user's folder, and a program `igpe` in the subfolder bin."""
    for name in ("bin", "home"):
        (tmp_path / name).mkdir()
    program = tmp_path / "bin" / "igpe"
    program.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(ROOT)!r})\n"
        "from igpe.cli import main\nmain()\n"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return tmp_path


def environment(folder):
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"PATH": path, "HOME": str(folder / "home"), "TERM": "dumb"}


def asked(shell, line, folder):
    """What igpe answers to the request that the shell's script makes."""
    words = line.split(" ")
    requests = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }
    done = subprocess.run(
        ["igpe"],
        cwd=folder,
        env=environment(folder) | requests[shell] | {"_IGPE_COMPLETE": f"complete_{shell}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    plain = done.stdout.removeprefix("_arguments '*: :((").removesuffix("))'\n")
    lines = (one.partition("\t")[0].partition('":"')[0].strip('"') for one in plain.splitlines())
    return {one for one in lines if one}


OFFERED = {
    "igpe ": COMMANDS,
    "igpe es": {"estimate"},
    "igpe compare my_problem.py --method M": {"MultipleShooting"},
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("line", OFFERED)
def test_what_is_offered(shell, line, folder):
    assert asked(shell, line, folder) == OFFERED[line]


def test_options_are_offered(folder):
    assert {"--plot", "--json", "--report"} <= asked(
        "bash", "igpe estimate my_problem.py --", folder
    )


PLACES = {
    "bash": ".bash_completions/igpe.sh",
    "zsh": ".zfunc/_igpe",
    "fish": ".config/fish/completions/igpe.fish",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_is_shown_and_installed_for_each_shell(shell, folder):
    """typer asks which process called it; without detection the shell can be said."""
    settings = environment(folder) | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    told = {}
    for option in ("--show-completion", "--install-completion"):
        done = subprocess.run(
            ["igpe", option, shell], env=settings, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        told[option] = done.stdout
    assert "_IGPE_COMPLETE=complete_" in told["--show-completion"]
    installed = (folder / "home" / PLACES[shell]).read_text()
    assert installed.strip() == told["--show-completion"].strip()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_a_running_bash_completes(folder):
    script = (
        "source <(igpe --show-completion)\nCOMP_WORDS=(igpe es); COMP_CWORD=1\n"
        '_igpe_completion igpe\necho "${COMPREPLY[@]}"\ncomplete -p igpe\n'
    )
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=folder,
        env=environment(folder),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == [
        "estimate",
        "complete -o default -F _igpe_completion igpe",
    ], done.stderr


def test_completion_does_not_wait_for_what_is_slow(folder):
    code = (
        f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nfrom igpe.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "slow = {'pyomo', 'casadi', 'pandas', 'numpy'} & set(sys.modules)\nassert not slow, slow"
    )
    request = {"COMP_WORDS": "igpe ch", "COMP_CWORD": "1", "_IGPE_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=environment(folder) | request,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip() == "check"
