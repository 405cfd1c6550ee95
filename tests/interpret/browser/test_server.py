"""Who gets an answer, and what it is."""

import gzip
import http.client
import json
import re
import shutil
import socket

import pytest
from typer.testing import CliRunner

from course_lib.__main__ import app
from course_lib.interpret.browser.index import FeatureIndex
from course_lib.interpret.browser.page import export, page
from course_lib.interpret.browser.server import Server, serve
from course_lib.mbart.model import ModelUnavailable


@pytest.fixture(scope="module")
def server(index, run):
    started = serve(run, threads=1, progress=False)
    yield started
    started.close()


def ask(server, path, body=None, *, token=None, host=None, method=None, **headers):
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
    headers |= {"Host": host or f"127.0.0.1:{server.port}"}
    headers["Authorization"] = f"token {server.token if token is None else token}"
    sent = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    connection.request(method or ("GET" if body is None else "POST"), path, sent, headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.headers.get("Content-Encoding") == "gzip":
        content = gzip.decompress(content)
    connection.close()
    return answer.status, content.decode(), answer.headers


def test_the_page_and_a_feature(server, index):
    status, text, headers = ask(server, f"/?token={server.token}", token="")
    assert status == 200
    assert json.loads(data_of(text))["list"] == index.summary()
    assert "frame-ancestors 'self' http://127.0.0.1:*" in headers["Content-Security-Policy"]
    assert "Set-Cookie" not in headers
    assert "Access-Control-Allow-Origin" not in headers
    feature = int(index.ranked()[0])
    status, text, _ = ask(server, f"/api/feature/{feature}?language=fr_XX")
    assert (status, json.loads(text)) == (200, index.feature(feature, language="fr_XX"))


def test_two_features_together(server, index):
    a, b = index.ranked()[:2].tolist()
    status, text, _ = ask(server, f"/api/together/{a}/{b}")
    assert (status, json.loads(text)) == (200, index.together(a, b))
    status, text, _ = ask(server, f"/api/together/{a}/96")
    assert (status, json.loads(text)["error"]) == (400, "feature is 96; the run has 0 to 95")


def test_sentences_and_one_of_them(server, index):
    status, text, _ = ask(server, "/api/sentences?words=the+b*&language=fr_XX&n=3")
    assert (status, json.loads(text)) == (200, index.find("the b*", language="fr_XX", n=3))
    status, text, _ = ask(server, "/api/sentence/7")
    assert (status, json.loads(text)) == (200, index.sentence(7))
    for path in ("/api/sentences?words=the", "/api/sentence/7"):
        assert ask(server, path, token="wrong")[0] == 403


def test_two_servers_of_a_run_keep_the_notes_of_both(index, run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    servers = [serve(tmp_path / "run", progress=False) for _ in range(2)]
    try:
        for number, started in enumerate(servers):
            sent = {"features": {"3": {"note": f"of {number}", "lists": []}}, "before": {}}
            kept = json.loads(ask(started, "/api/notes", sent)[1])["features"]
        assert kept == {"3": {"note": "of 0\nof 1", "lists": []}}
        assert json.loads(ask(servers[0], "/api/notes")[1])["features"] == kept
        status, text, _ = ask(servers[0], "/api/notes", {"features": {}, "before": {"x": {}}})
        assert (status, "before has 'x'" in text) == (400, True)
    finally:
        for started in servers:
            started.close()


def test_notes_outlive_the_server(index, run, tmp_path):
    shutil.copytree(run, tmp_path / "run")
    one = {"note": "a <b>note</b>", "lists": ["tools"]}
    started = serve(tmp_path / "run", progress=False)
    try:
        assert json.loads(ask(started, "/api/notes", {"features": {"3": one}})[1]) == {"features": {"3": one}}
        status, text, _ = ask(started, "/api/notes", {"features": {"96": one}})
        assert status == 400
        assert "feature is 96" in json.loads(text)["error"]
        assert ask(started, "/api/notes", token="wrong")[0] == 403
        assert ask(started, "/api/notes", {"features": {}}, token="wrong")[0] == 403
    finally:
        started.close()
    again = serve(tmp_path / "run", progress=False)
    try:
        assert json.loads(ask(again, "/api/notes")[1]) == {"features": {"3": one}}
    finally:
        again.close()


def data_of(text):
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    return data


@pytest.mark.parametrize("path", ["/", "/?token=wrong", "/?token=%C3%A4", "/api/feature/0", "/nothing"])
def test_nothing_without_the_token(server, path):
    status, text, _ = ask(server, path, token="wrong")
    assert status == 403
    assert "token" in json.loads(text)["error"]


def test_other_sites_get_nothing(server):
    # A foreign name that points here, as in DNS rebinding, even with the token.
    assert ask(server, "/api/feature/0", host=f"evil.example:{server.port}")[0] == 403
    assert ask(server, "/api/feature/0", host=f"localhost:{server.port}")[0] == 200
    # A page elsewhere asks whether it may send the header: no.
    status, _, headers = ask(server, "/api/read", method="OPTIONS", token="", Origin="https://evil.example")
    assert status == 403
    assert not [name for name in headers if name.lower().startswith("access-control")]
    # The token in the address opens the page alone, so that no link and no form of another site asks the model.
    assert ask(server, f"/api/read?token={server.token}", {"text": "the dog."}, token="")[0] == 403


def test_the_model_answers(server, index):
    status, text, _ = ask(server, "/api/read", {"text": "the dog sees a house.", "language": "en_XX"})
    assert (status, len(json.loads(text)["tokens"])) == (200, 6)
    feature = int(index.ranked()[0])
    asked = {"text": "the dog sees a house.", "source": "en_XX", "target": "fr_XX"}
    change = {"feature": feature, "mode": "scale", "number": 0, "token": None}
    status, text, _ = ask(server, "/api/translate", asked | {"changes": [change]})
    assert (status, sorted(json.loads(text))) == (200, ["changed", "original", "reconstructed"])
    status, text, _ = ask(server, "/api/effect", {"feature": feature})
    assert json.loads(text)["divergence"] == pytest.approx(
        index.feature(feature)["effect"]["divergence"], rel=0.01
    )


def changed(**fields):
    change = {"feature": 3, "mode": "scale", "number": 0, "token": None} | fields
    return {"text": "the dog.", "source": "en_XX", "target": "fr_XX", "changes": [change]}


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/api/feature/96", None, "feature is 96"),
        ("/api/feature/0?language=xx", None, "language is 'xx'"),
        ("/api/feature/0?language=%FF", None, "language is"),
        ("/api/sentences?words=", None, "nothing is looked for"),
        ("/api/sentences?words=the&language=xx", None, "language is 'xx'"),
        ("/api/sentences?words=the&n=201", None, "n is '201'; expected 1 to 200 sentences"),
        ("/api/sentences?words=the&n=-1", None, "n is '-1'"),
        ("/api/sentence/999999999", None, "sentence is 999999999; the run has 0 to"),
        ("/api/read", b"{", "the request is not JSON: Expecting property name"),
        ("/api/read", b'{"text":"\xff"}', "the request is not UTF-8"),
        ("/api/read", b"[" * 100_000 + b"]" * 100_000, "the request is nested too deeply"),
        (
            "/api/read",
            b'{"text":' + b"[" * 900 + b"]" * 900 + b"}",
            "text is [[[[[[[...]]]]]]]; expected a text",
        ),
        ("/api/read", b'{"text": "the \\ud800 dog."}', "text has half of a surrogate pair at character 4"),
        ("/api/read", {"text": "the dog.", "language": "\ud800"}, "language has half of a surrogate pair"),
        ("/api/read", {"text": "the dog.", "language": 0}, "language is 0; expected a text"),
        ("/api/read", {"text": "  "}, "text: sentence 1"),
        ("/api/translate", {"text": "the dog.", "target": ["en_XX"]}, "target is ['en_XX']"),
        ("/api/read", [], "the request holds list"),
        ("/api/read", {"text": 3}, "text is 3; expected a text"),
        ("/api/translate", {"text": "the dog.", "changes": "x"}, "changes is 'x'"),
        ("/api/translate", {"text": "the dog.", "changes": ["x"]}, "changes[0] is 'x'; expected an object"),
        ("/api/translate", {"text": "the dog.", "changes": [{"feature": 3}]}, "changes[0]: number is None"),
        ("/api/translate", changed(mode="off"), "changes[0]: mode is 'off'"),
        ("/api/translate", changed(number=10**400), "changes[0]: the number for feature 3 is inf"),
        ("/api/translate", changed(number=True), "changes[0]: number is True; expected a number"),
        ("/api/translate", changed(number="1"), "changes[0]: number is '1'; expected a number"),
        ("/api/translate", changed(number=1e308), "number is too large: 1e+308 for feature 3"),
        ("/api/translate", changed(number=1e30, mode="set"), "number is too large: 1e+30 for feature 3"),
        ("/api/translate", changed(feature=True), "changes[0]: feature is True; expected a whole number"),
        ("/api/translate", changed(feature=3.0), "changes[0]: feature is 3.0"),
        ("/api/translate", changed(feature=10**400), "changes[0]: feature is inf"),
        ("/api/translate", changed(token=True), "changes[0]: token is True"),
        ("/api/effect", {"feature": 96}, "feature is 96"),
        ("/api/effect", {"feature": "0"}, "feature is '0'"),
        ("/api/effect", {"feature": True}, "feature is True; expected a whole number"),
        ("/api/effect", b'{"feature": ' + b"9" * 5000 + b"}", "feature is inf"),
    ],
)
def test_bad_requests_are_explained(server, path, body, words, caplog):
    status, text, _ = ask(server, path, body)
    assert status == 400
    assert words in json.loads(text)["error"]
    assert len(text) < 1000
    assert caplog.text == ""


def test_a_large_request_is_explained(server):
    body = {"text": "the dog." + " " * (1 << 20)}
    status, text, _ = ask(server, "/api/read", body)
    assert status == 413
    assert json.loads(text)["error"] == "the request is too large: at most 1048576 bytes"


def raw(server, sent):
    """A connection on which the bytes were sent, and which goes on waiting."""
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=60)
    connection.sendall(sent)
    return connection


@pytest.mark.parametrize("path", ["/api/read", "/api/feature/0", "/nothing", "/"])
def test_no_body_is_waited_for_without_the_token(server, path):
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000000\r\n\r\n"
    with raw(server, head.encode()) as connection:
        answer = b""
        while part := connection.recv(65536):
            answer += part
    assert answer.startswith(b"HTTP/1.1 403 ")


@pytest.mark.parametrize("sent", ["", "POST /api/read HTTP/1.1\r\n", "all but the body"])
def test_a_connection_on_which_nothing_comes_is_closed(index, monkeypatch, sent):
    monkeypatch.setattr("course_lib.interpret.browser.server._PATIENCE", 0.05)
    started = Server(index, load=lambda: None)
    try:
        if sent == "all but the body":
            sent = f"POST /api/read HTTP/1.1\r\nHost: localhost\r\nAuthorization: token {started.token}\r\n"
            sent += "Content-Length: 9\r\n\r\n"
        with raw(started, sent.encode()) as connection:
            assert connection.recv(1) == b""  # and no error for too long a wait
    finally:
        started.close()


def test_unknown_addresses(server):
    assert ask(server, "/api/features")[0] == 404
    assert ask(server, "/../sentences.jsonl")[0] == 404


def test_a_model_that_is_not_there_is_said_and_the_rest_answers(index):
    def load():
        raise ModelUnavailable("no such model")

    started = Server(index, load)
    try:
        status, text, _ = ask(started, "/api/read", {"text": "the dog."})
        assert (status, json.loads(text)) == (503, {"error": "no such model"})
        assert ask(started, "/api/feature/0")[0] == 200
        with pytest.raises(OSError, match="in use"):
            Server(index, load, port=started.port)
    finally:
        started.close()


def test_data_cannot_end_its_block():
    text = page({"about": {"run": "</script><script>alert(1)</script><!-- {{ style }}"}, "list": {}})
    assert json.loads(data_of(text))["about"]["run"].startswith("</script><script>alert(1)")
    assert text.count("<script") == 2


def test_the_command_exports_and_explains(index, run, tmp_path):
    out = tmp_path / "page.html"
    done = CliRunner().invoke(app, ["browse", str(run), "--export", str(out), "--features", "7"])
    assert done.exit_code == 0, done.output
    data = json.loads(data_of(out.read_text()))
    strongest = [str(feature) for feature in index.ranked()[:7]]
    assert sorted(data["features"]) == sorted(strongest)
    assert data["features"][strongest[0]] == index.feature(int(strongest[0]))
    shown_here = [
        row["id"] for group in index.feature(int(strongest[0]))["groups"] for row in group["sentences"]
    ]
    a, b = sorted(map(int, strongest[:2]))
    joint = [both[0]["id"] for both in index.together(a, b)["examples"]]
    assert data["pairs"][str(a)][str(b)][3] == joint
    assert {*map(str, shown_here), *map(str, joint)} <= set(data["sentences"])
    for options, words in (
        ([str(tmp_path)], "expected the directory of a pipeline run"),
        ([str(run), "--export", str(tmp_path / "no" / "page.html")], "No such file"),
        ([str(run), "--export", str(out), "--features", "0"], "features is 0"),
    ):
        done = CliRunner().invoke(app, ["browse", *options])
        assert done.exit_code == 2
        assert words in done.stderr
    with pytest.raises(ValueError, match="features is 0"):
        export(FeatureIndex.open(run), out, n_features=0)


def test_a_file_holds_no_more_sentences_than_it_may(index, tmp_path, monkeypatch):
    def written():
        export(index, tmp_path / "page.html", n_features=5)
        data = json.loads(data_of((tmp_path / "page.html").read_text()))
        return data, [len(found[3]) for row in data["pairs"].values() for found in row.values()]

    whole, lengths = written()
    assert max(lengths) == 8
    monkeypatch.setattr("course_lib.interpret.browser.page._MOST_EXAMPLES", 3 * len(lengths))
    data, fewer = written()
    assert fewer == [min(length, 3) for length in lengths]
    assert set(data["sentences"]) < set(whole["sentences"])
    monkeypatch.setattr("course_lib.interpret.browser.page._MOST_EXAMPLES", len(lengths) - 1)
    assert set(written()[1]) == {0}
    assert data["features"] == whole["features"]


def test_the_command_serves_until_it_is_interrupted(index, run, monkeypatch):
    opened, waited = [], []
    monkeypatch.setattr("webbrowser.open", opened.append)
    monkeypatch.setattr(Server, "wait", lambda self: (waited.append(self), self.close()))
    done = CliRunner().invoke(app, ["browse", str(run)])
    assert done.exit_code == 0, done.output
    assert opened == [waited[0].address]
    assert waited[0].address in done.stdout
    assert not waited[0].thread.is_alive()
    CliRunner().invoke(app, ["browse", str(run), "--no-browser", "--port", str(waited[0].port)])
    assert len(opened) == 1
    assert waited[1].port == waited[0].port
    old = "http://127.0.0.1:1/?token=old#view=compare&feature=3&other=5"
    done = CliRunner().invoke(app, ["browse", str(run), "--link", old])
    assert done.exit_code == 0, done.output
    assert opened[1:] == [waited[2].address + "#view=compare&feature=3&other=5"]
    done = CliRunner().invoke(app, ["browse", str(run), "--link", "http://127.0.0.1:1/"])
    assert done.exit_code == 2
    assert "expected the address of a view" in done.stderr


def test_an_interrupt_closes_the_server(index, monkeypatch):
    started = Server(index, load=lambda: None)
    join = started.thread.join
    monkeypatch.setattr(started.thread, "join", lambda: monkeypatch.undo() or interrupt())

    def interrupt():
        raise KeyboardInterrupt

    started.wait()
    join(timeout=60)
    assert not started.thread.is_alive()
