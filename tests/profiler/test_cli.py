import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from mgpu.profile_dir import save_launch
from profiler import cli
from support.captures import ring_capture


@pytest.fixture
def profile(tmp_path):
    save_launch(tmp_path, ring_capture())
    save_launch(tmp_path, ring_capture(stages=3))
    return tmp_path


def run(*args: object):
    result = CliRunner().invoke(cli.app, [str(arg) for arg in args], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def fail(capsys, monkeypatch, *args: object) -> str:
    """Runs the entry point, which must exit with 2; returns what it said."""
    monkeypatch.setattr(sys, "argv", ["mgpu", *map(str, args)])
    with pytest.raises(SystemExit) as stopped:
        cli.main()
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_report_as_text_and_json(profile) -> None:
    assert "Verdict" in run("report", profile, "--launch", "ring-0001")
    values = json.loads(run("report", profile, "--json"))
    assert list(values) == ["ring-0001", "ring-0002"]
    assert values["ring-0001"]["kernel_cycles"] == 2392


def test_waits_and_bubbles(profile) -> None:
    assert "empty" in run("waits", profile)
    waits = json.loads(run("waits", profile, "--launch", "ring-0001", "--json"))["ring-0001"]["waits by barrier"]
    assert {row["barrier"]: row["waits"] for row in waits} == {"full": 24, "empty": 8}
    bubbles = json.loads(run("bubbles", profile, "--json"))
    assert all(row["total_cycles"] > 0 for launch in bubbles.values() for rows in launch.values() for row in rows)
    assert max(map(len, run("bubbles", profile).splitlines())) <= 100


def test_export_writes_a_trace_and_tables(profile) -> None:
    output = run("export", profile)
    assert "slices" in output
    for name in ("ring-0001", "ring-0002"):
        assert (profile / name / "trace.pftrace").stat().st_size > 1000
        assert (profile / name / "tables" / "spans.parquet").is_file()


def test_export_of_some_sms_to_a_file(profile, tmp_path) -> None:
    target = tmp_path / "one.pftrace"
    assert "1 of 2 SMs" in run("export", profile / "ring-0001", "-o", target, "--sms", "1-1")
    assert target.is_file()


def test_what_goes_wrong_is_one_message(profile, capsys, monkeypatch) -> None:
    message = fail(capsys, monkeypatch, "report", profile / "missing")
    assert message.startswith("mgpu: ")
    assert message.count("\n") == 1
    assert "choose with --launch" in fail(capsys, monkeypatch, "export", profile, "-o", "x.pftrace")
    assert "holds no launch 'a'" in fail(capsys, monkeypatch, "report", profile, "--launch", "a")
    assert "0,1,8-15" in fail(capsys, monkeypatch, "export", profile, "--sms", "x")
    assert "Did you mean" in fail(capsys, monkeypatch, "devices", "h1000")


def test_devices_are_listed_with_sources() -> None:
    assert "h100" in run("devices").split()
    numbers = json.loads(run("devices", "h100", "--json"))
    assert numbers["num_sms"]["value"] == 132
    assert all(number["source"] and number["unit"] for number in numbers.values())
    assert "132" in run("devices", "h100")


def test_the_dashboard_names_what_is_missing(profile, capsys, monkeypatch) -> None:
    def not_installed(name):
        raise ModuleNotFoundError(f"No module named {name!r}", name="dash")

    monkeypatch.setattr(cli.importlib, "import_module", not_installed)
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
