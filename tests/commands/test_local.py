"""`trinity-local`, with a stand-in for llama.cpp's server."""

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from trinity.commands.local import LocalServers, Server, find_model, main

STAND_IN = '''
"""Serves /v1/models as llama_cpp.server does; a model file that says "broken" ends it at once."""
import json, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if open(options["--model"]).read() == "broken":
    sys.exit("cannot load the model")

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"data": [{"id": options["--model_alias"]}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

HTTPServer((options["--host"], int(options["--port"])), Handler).serve_forever()
'''


@pytest.fixture
def folder(tmp_path, monkeypatch):
    package = tmp_path / "packages" / "llama_cpp"
    (package / "server").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "server" / "__init__.py").write_text("")
    (package / "server" / "__main__.py").write_text(STAND_IN)
    (package.parent / "uvicorn.py").write_text("")
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    for name in ("a", "b"):
        (tmp_path / f"{name}.gguf").write_text("")
    (tmp_path / "broken.gguf").write_text("broken")
    folder = tmp_path / "state"
    yield folder
    LocalServers(folder).down()


def call(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code


def up(folder, port, **models):
    given = json.dumps({name: str(folder.parent / f"{file}.gguf") for name, file in models.items()})
    return call("up", "--folder", str(folder), "--models", given, "--port", str(port), "--seconds", "30")


def test_servers_come_up_answer_and_go_down(folder, unused_tcp_port_factory, capsys):
    port = unused_tcp_port_factory()
    assert call("status", "--folder", str(folder)) == 1
    assert up(folder, port, one="a") == 0
    assert f"one answers at http://127.0.0.1:{port}/v1" in capsys.readouterr().out
    (server,) = LocalServers(folder).known()
    assert up(folder, port, one="a") == 0
    assert LocalServers(folder).known() == [server], "it is left running"
    assert call("status", "--folder", str(folder)) == 0
    assert call("down", "--folder", str(folder)) == 0
    assert not server.runs
    assert call("status", "--folder", str(folder)) == 1
    assert "No servers" in capsys.readouterr().out


def test_one_that_does_not_come_up_takes_the_others_down(folder, unused_tcp_port_factory, capsys):
    assert up(folder, unused_tcp_port_factory(), good="a", bad="broken") == 2
    error = capsys.readouterr().err
    assert "The server of bad ended: see" in error
    assert "cannot load the model" in (folder / "bad.log").read_text()
    assert LocalServers(folder).known() == []


def test_a_process_that_got_an_old_pid_is_left_alone(folder):
    folder.mkdir()
    stranger = Server("one", 1, os.getpid(), started=1)
    LocalServers(folder)._keep([stranger])
    assert not stranger.runs
    signal.signal(signal.SIGTERM, lambda *_: pytest.fail("a stranger was signalled"))
    try:
        assert call("down", "--folder", str(folder)) == 0
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


@pytest.mark.parametrize(
    ("models", "sentence"),
    [
        ({"one": "none.gguf"}, "There is no model file none.gguf"),
        ({"one": "gguf:no_such_package"}, "There is no installed package 'no_such_package'"),
        ({"one": "gguf:os.path"}, "There is no installed package"),
    ],
)
def test_models_that_are_not_there_are_named(folder, capsys, models, sentence):
    assert call("up", "--folder", str(folder), "--models", json.dumps(models)) == 2
    assert sentence in capsys.readouterr().err


def test_a_missing_server_is_named_with_how_to_install_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("trinity.commands.local.find_spec", lambda name: None)
    assert call("up", "--folder", str(tmp_path)) == 2
    assert "GGML_NATIVE=OFF pip install -e '.[local]'" in capsys.readouterr().err


def test_a_state_that_is_none_is_a_sentence(tmp_path, capsys):
    (tmp_path / "servers.json").write_text("[{]")
    assert call("status", "--folder", str(tmp_path)) == 2
    assert "Cannot read" in capsys.readouterr().err


def test_a_model_may_come_in_parts(tmp_path, monkeypatch):
    package = tmp_path / "in_parts.py"
    package.write_text(f"def assemble():\n    return {str(tmp_path / 'whole.gguf')!r}\n")
    (tmp_path / "whole.gguf").write_text("")
    (tmp_path / "second.gguf").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert find_model("gguf:in_parts") == tmp_path / "whole.gguf"


def test_the_script_is_installed():
    assert Path(sys.executable).with_name("trinity-local").is_file()
