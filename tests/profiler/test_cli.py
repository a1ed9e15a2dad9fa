import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from mgpu.profile_dir import list_launches, save_launch
from profiler import cli
from profiler.commands import views
from support.captures import ring_capture


@pytest.fixture
def profile(tmp_path):
    """Two launches; the second is the newest."""
    for number, stages in enumerate((2, 3)):
        folder = save_launch(tmp_path, ring_capture(stages=stages))
        os.utime(folder / "capture.npz", ns=(number, number))
    return tmp_path


def run(*args: object, status: int = 0) -> str:
    result = CliRunner().invoke(cli.app, [str(arg) for arg in args], catch_exceptions=False)
    assert result.exit_code == status, result.output
    return result.stdout


def fail(capsys, monkeypatch, *args: object) -> str:
    """Runs the entry point, which must exit with 2; returns what it said."""
    monkeypatch.setattr(sys, "argv", ["mgpu", *map(str, args)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_report_is_about_the_newest_launch_and_names_the_others(profile) -> None:
    result = CliRunner().invoke(cli.app, ["report", str(profile)], catch_exceptions=False)
    assert result.stdout.count("Verdict") == 1
    assert "ring-0002 is the newest of 2 launches" in result.stderr
    assert list(json.loads(run("report", profile, "--json"))) == ["ring-0002"]


def test_report_of_one_or_all(profile) -> None:
    values = json.loads(run("report", profile, "--all", "--json"))
    assert list(values) == ["ring-0001", "ring-0002"]
    assert values["ring-0001"]["kernel_cycles"] == 2392
    assert list(json.loads(run("report", profile, "--launch", "ring-0001", "--json"))) == ["ring-0001"]
    assert run("report", profile, "--all").count("Verdict") == 2
    assert "| ---" in run("report", profile, "--markdown")


def test_report_fails_a_build_if_a_condition_holds(profile) -> None:
    assert "Verdict" in run("report", profile, "--fail-if", "bubbles > 1%", status=1)
    run("report", profile, "--fail-if", "dropped > 0", "--fail-if", "bubbles > 99%")


def test_waits_bubbles_and_path(profile) -> None:
    assert "empty" in run("waits", profile)
    waits = json.loads(run("waits", profile, "--launch", "ring-0001", "--json"))["ring-0001"]["waits by barrier"]
    assert {row["barrier"]: row["waits"] for row in waits} == {"full": 24, "empty": 8}
    bubbles = json.loads(run("bubbles", profile, "--all", "--json"))
    assert all(row["total_cycles"] > 0 for launch in bubbles.values() for rows in launch.values() for row in rows)
    path = json.loads(run("path", profile, "--launch", "ring-0001", "--json"))["ring-0001"]["critical path"]
    assert sum(row["cycles"] for row in path) == 2392


@pytest.mark.parametrize("command", ["report", "waits", "bubbles", "path", "advise", "whatif", "launches"])
def test_text_fits_a_terminal(profile, command) -> None:
    output = run(command, profile)
    assert output.strip()
    assert max(map(len, output.splitlines())) <= 100


def test_advice_names_its_evidence(profile) -> None:
    output = run("advise", profile, "--launch", "ring-0001")
    assert "one more stage in the ring full (2 to 3" in output
    assert "why: waits on full are" in " ".join(output.split())
    assert json.loads(run("advise", profile, "--json"))["advice"][0]["gain_cycles"] > 0


def test_whatif_ranks_scenarios(profile) -> None:
    rows = json.loads(run("whatif", profile, "--launch", "ring-0001", "--json"))
    gains = [row["gain_cycles"] for row in rows]
    assert gains == sorted(gains, reverse=True)
    assert any(row["scenario"].startswith("one more stage") for row in rows)


def test_compare_shows_where_the_time_went_and_fails_on_regressions(profile) -> None:
    two, three = profile / "ring-0001", profile / "ring-0002"
    assert "slot not free" in run("compare", two, three, "--fail-if", "time > +2%")
    run("compare", three, two, "--fail-if", "time > +2%", status=1)
    value = json.loads(run("compare", two, three, "--json"))
    assert sum(row["delta_cycles"] for row in value["causes"]) == pytest.approx(value["delta_cycles"])


def test_launches_are_listed_and_old_ones_go(profile) -> None:
    rows = json.loads(run("launches", profile, "--json"))
    assert [(row["launch"], row["newest"]) for row in rows] == [("ring-0001", False), ("ring-0002", True)]
    assert "deleted 1 of 2" in run("launches", profile, "--keep", 1)
    assert [path.name for path in list_launches(profile)] == ["ring-0002"]
    assert json.loads(run("launches", profile, "--keep", 1, "--json")) == {"deleted": 0, "launches": 1}


def test_a_script_is_told_what_to_record(tmp_path, capsys, monkeypatch) -> None:
    script, told = tmp_path / "script.py", tmp_path / "told.json"
    script.write_text(
        "import json, os, sys\n"
        "told = {name: value for name, value in os.environ.items() if name.startswith('MGPU_PROFILE')}\n"
        "json.dump(told, open(sys.argv[1], 'w'))"
    )
    filters = ["--record-ctas", "0-2,7", "--record-warpgroups", "1", "--record-iterations", "2:3,10:"]
    run("run", *filters, "--keep", 3, "--profile-space", 64, script, told)
    assert json.loads(told.read_text()) == {
        "MGPU_PROFILE_KEEP": "3",
        "MGPU_PROFILE_SPACE": "64",
        "MGPU_PROFILE_WINDOW": "ctas=0-2,7 warpgroups=1 iterations=2:3,10:",
    }
    message = fail(capsys, monkeypatch, "run", "--record-iterations", "10", script)
    assert "expected FIRST:END such as 10:20" in message


def test_export_writes_a_trace_and_tables(profile) -> None:
    assert "slices" in run("export", profile, "--all")
    for name in ("ring-0001", "ring-0002"):
        assert (profile / name / "trace.pftrace").stat().st_size > 1000
        assert (profile / name / "tables" / "spans.parquet").is_file()


def test_export_of_some_sms_to_a_file(profile, tmp_path) -> None:
    target = tmp_path / "one.pftrace"
    assert "1 of 2 SMs" in run("export", profile / "ring-0001", "-o", target, "--sms", "1-1")
    assert target.is_file()
    assert json.loads(run("export", profile / "ring-0001", "--json"))[0]["launch"] == "ring-0001"


def test_what_goes_wrong_is_one_message(profile, capsys, monkeypatch) -> None:
    message = fail(capsys, monkeypatch, "report", profile / "missing")
    assert message.startswith("mgpu: ")
    assert message.count("\n") == 1
    assert "choose one with --launch" in fail(capsys, monkeypatch, "export", profile, "-o", "x.pftrace", "--all")
    assert "holds no launch 'a'" in fail(capsys, monkeypatch, "report", profile, "--launch", "a")
    assert "0,1,8-15" in fail(capsys, monkeypatch, "export", profile, "--sms", "x")
    assert "Did you mean" in fail(capsys, monkeypatch, "devices", "h1000")
    assert "expected METRIC" in fail(capsys, monkeypatch, "report", profile, "--fail-if", "slow")


def test_devices_are_listed_with_sources() -> None:
    assert "h100" in run("devices").split()
    numbers = json.loads(run("devices", "h100", "--json"))
    assert numbers["num_sms"]["value"] == 132
    assert all(number["source"] and number["unit"] for number in numbers.values())
    assert "132" in run("devices", "h100")


def test_the_dashboard_names_what_is_missing(profile, capsys, monkeypatch) -> None:
    def not_installed(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name="dash")

    monkeypatch.setattr(views.importlib, "import_module", not_installed)
    message = fail(capsys, monkeypatch, "dashboard", profile)
    assert "'dash'" in message
    assert "pip install 'mgpu[dashboard]'" in message


def test_a_saved_capture_is_analysed_without_jax(profile) -> None:
    code = (
        "import sys; from profiler import cli; sys.argv = ['mgpu', 'report', sys.argv[1]]\n"
        "try: cli.main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "assert not {'jax', 'jaxlib', 'dash', 'plotly'} & sys.modules.keys()\n"
    )
    result = subprocess.run([sys.executable, "-c", code, profile], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "Verdict" in result.stdout
