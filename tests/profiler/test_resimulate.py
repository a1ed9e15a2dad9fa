"""Scripts that stand for kernels: they write the ring's capture, as told by the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from mgpu.errors import CaptureError, ParamsError
from profiler import cli
from profiler.resimulate import Trial, parse_trial, resimulate, run_script

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = f"""
import os, sys
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tests")!r}]
from mgpu import environment
from mgpu.profile_dir import save_launch
from support.captures import ring_capture
stages = int(sys.argv[sys.argv.index("--stages") + 1]) if "--stages" in sys.argv else 2
numbers = environment.device_numbers()
space, folder = environment.recording(0, "")
wake = int(numbers.get("mbarrier_hop_cycles", 4))
capture = ring_capture(num_ctas=1, stages=stages, wake_cycles=wake, capacity=space)
save_launch(folder, capture)
print("ran on", os.environ.get(environment.DEVICE, "default"))
"""


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "ring_script.py"
    path.write_text(SCRIPT)
    return path


def test_changes_reach_the_script(script) -> None:
    base = resimulate(script, [], Trial("as it is"))
    assert base == 2392
    assert resimulate(script, [], parse_trial("mbarrier_hop_cycles=0")) == 2392 - 2 * (3 * 8 + 4) + 24
    assert resimulate(script, [], parse_trial("args: --stages 3")) < base


def test_whatif_by_simulation(script) -> None:
    arguments = ["whatif", "--script", str(script), "--try", "args: --stages 3", "--try", "mbarrier_hop_cycles=0"]
    result = CliRunner().invoke(cli.app, [*arguments, "--json"], catch_exceptions=False)
    rows = json.loads(result.stdout)
    assert {row["scenario"] for row in rows} == {"args: --stages 3", "mbarrier_hop_cycles=0"}
    assert all(row["provenance"] == "simulated" and row["gain_cycles"] > 0 for row in rows)


@pytest.mark.parametrize("script_args", [["--stages", "3"], ["--", "--stages", "3"]])
def test_run_records_and_reports(script, tmp_path, capfd, script_args) -> None:
    arguments = ["run", "--device", "h200", "--profile-dir", str(tmp_path / "p"), "--profile-space", "30"]
    result = CliRunner().invoke(cli.app, [*arguments, str(script), *script_args], catch_exceptions=False)
    assert "ran on h200" in capfd.readouterr().out
    assert "profile_space=54 would have kept them all" in " ".join(result.stdout.split())


def test_options_of_run_behind_the_script_are_pointed_out(tmp_path, capfd, monkeypatch) -> None:
    strict = tmp_path / "strict.py"
    strict.write_text("import argparse; argparse.ArgumentParser().parse_args()")
    monkeypatch.setattr("sys.argv", ["mgpu", "run", str(strict), f"--profile-dir={tmp_path}"])
    with pytest.raises(SystemExit, match="2"):
        cli.main()
    said = capfd.readouterr().err
    assert f"--profile-dir={tmp_path} went to the script: options of `mgpu run` go before it." in said


def test_what_goes_wrong(tmp_path, script) -> None:
    with pytest.raises(ParamsError, match="no such script"):
        run_script(tmp_path / "none.py", [])
    failing = tmp_path / "failing.py"
    failing.write_text("raise SystemExit('out of tiles')")
    with pytest.raises(ParamsError, match="out of tiles"):
        run_script(failing, [], quiet=True)
    idle = tmp_path / "idle.py"
    idle.write_text("")
    with pytest.raises(CaptureError, match="launched no kernel"):
        resimulate(idle, [], Trial("as it is"))


@pytest.mark.parametrize("text", ["", "hop", "hop=fast", "=3"])
def test_malformed_trials(text) -> None:
    with pytest.raises(ParamsError, match="NAME=VALUE"):
        parse_trial(text)
