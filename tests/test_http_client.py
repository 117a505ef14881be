"""The rules of HTTP that every client here keeps, and the one that asks in a thread: against real sockets."""

import socket
import threading
import time
from email.utils import formatdate
from http.client import HTTPException
from urllib.parse import urlsplit

import pytest

from hookline.http_client import (
    PASSING,
    NotReached,
    WrongProxy,
    address,
    exchange,
    is_loopback,
    origin,
    proxy_for,
    retry_after,
    shown,
)
from hookline.tasks import StopToken, WorkStopped

# The headers of an answer, and the seconds that are waited.
WAITS = [
    ({}, None),
    ({"retry-after": "7"}, 7.0),
    ({"retry-after": " 7 "}, 7.0),
    ({"retry-after": "0.5"}, 0.5),
    ({"retry-after": "-3"}, 0.0),
    ({"retry-after": "soon"}, None),
    ({"retry-after": ""}, None),
    ({"retry-after": "inf"}, None),
    ({"retry-after": "nan"}, None),
    ({"retry-after-ms": "250"}, 0.25),
    ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
    ({"retry-after-ms": "soon", "retry-after": "7"}, 7.0),
    ({"retry-after": formatdate(0, usegmt=True)}, 0.0),
]


@pytest.mark.parametrize(("headers", "seconds"), WAITS)
def test_a_server_says_how_long_to_wait(headers, seconds):
    assert retry_after(headers.get) == seconds


def test_a_server_says_until_when_to_wait():
    asked = retry_after({"retry-after": formatdate(time.time() + 60, usegmt=True)}.get)
    assert 55 < asked <= 60


def test_only_trouble_that_may_pass_is_asked_again():
    assert {408, 429, 500, 502, 503, 504} == PASSING
    assert not PASSING & {200, 301, 400, 401, 403, 404, 409, 422, 501}


BASE = urlsplit("https://host/a/b")
ADDRESSES = [
    ("https://other/x", None, "https://other/x"),
    ("/c", BASE, "https://host/c"),
    ("c?d=1", BASE, "https://host/a/c?d=1"),
    ("//other/x", BASE, "https://other/x"),
    ("/c", None, None),
    ("", BASE, None),
    ("ftp://host/x", BASE, None),
    ("file:///etc/passwd", BASE, None),
    ("https://", None, None),
    ("https://host:0/", None, None),
    ("https://host:99999/", None, None),
    ("https://[::1/", None, None),
    ("https://host/a b", None, None),
    ("https://host/\r\nX: 1", None, None),
]


@pytest.mark.parametrize(("text", "base", "found"), ADDRESSES)
def test_an_address_is_one_that_can_be_asked(text, base, found):
    made = address(text, base)
    assert (made.geturl() if made else None) == found


SAME = [
    ("https://host/a", "https://host:443/b?c", True),
    ("http://HOST/a", "http://host:80/", True),
    ("https://host/", "http://host/", False),
    ("https://host/", "https://host:8443/", False),
    ("https://host/", "https://host.evil/", False),
    ("https://host/", "https://sub.host/", False),
]


@pytest.mark.parametrize(("one", "other", "same"), SAME)
def test_a_secret_stays_with_scheme_host_and_port(one, other, same):
    assert (origin(urlsplit(one)) == origin(urlsplit(other))) is same


def test_a_url_is_shown_without_its_query():
    assert shown(urlsplit("https://host/a?token=x#y")) == "https://host/a"


PROXIES = [
    ("https://host/", {}, None),
    ("https://host/", {"HTTPS_PROXY": "http://proxy:3128"}, "proxy"),
    ("https://host/", {"https_proxy": "proxy:3128"}, "proxy"),
    ("http://host/", {"HTTPS_PROXY": "http://proxy:3128"}, None),
    ("https://localhost/", {"HTTPS_PROXY": "http://proxy:3128"}, None),
    ("https://127.0.0.1:5000/", {"HTTPS_PROXY": "http://proxy:3128"}, None),
    ("https://a.host/", {"HTTPS_PROXY": "http://proxy:3128", "NO_PROXY": "x, .host"}, None),
    ("https://host/", {"HTTPS_PROXY": "http://proxy:3128", "no_proxy": "*"}, None),
]


@pytest.mark.parametrize(("url", "environ", "host"), PROXIES)
def test_a_proxy_is_taken_from_the_environment(url, environ, host):
    found = proxy_for(urlsplit(url), environ)
    assert (found.hostname if found else None) == host


@pytest.mark.parametrize("text", ["socks5://proxy:1080", "http://me:pw@proxy:1", "http://"])
def test_a_proxy_that_cannot_be_used_is_told_without_its_password(text):
    with pytest.raises(WrongProxy, match="write it as http://host:port") as told:
        proxy_for(urlsplit("https://host/"), {"HTTPS_PROXY": text})
    assert "pw" not in str(told.value)


@pytest.mark.parametrize("host", ["localhost", "localhost:5000", "127.0.0.1", "127.9.9.9:80", "[::1]:80"])
def test_this_machine_is_known(host):
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["", "example.org", "localhost.example.org", "10.0.0.1:80", "1270.0.0.1"])
def test_another_machine_is_not_this_one(host):
    assert not is_loopback(host)


class Server:
    """Answers each connection with these bytes; with none it says nothing and keeps the line."""

    def __init__(self, answer):
        self.answer = answer
        self.asked = threading.Event()
        self.requests = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = urlsplit(f"http://127.0.0.1:{self.socket.getsockname()[1]}/path?query=1")
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        kept = []
        while True:
            try:
                line, _ = self.socket.accept()
            except OSError:
                break
            self.requests.append(line.recv(65536))
            self.asked.set()
            if self.answer:
                line.sendall(self.answer)
                line.close()
            else:
                kept.append(line)
        for line in kept:
            line.close()


@pytest.fixture
def server():
    made = []

    def make(answer):
        made.append(Server(answer))
        return made[-1]

    yield make
    for each in made:
        each.socket.shutdown(socket.SHUT_RDWR)
        each.socket.close()


def asked(url, stop=None, **options):
    options = {"headers": {"X-Own": "1"}, "connect": 5.0, "silence": 5.0, **options}
    with exchange("POST", url, body=b"{}", stop=stop or StopToken(), **options) as response:
        return response.status, response.read(), response.getheader("Location")


def test_one_request_has_one_answer_and_a_redirect_is_the_callers_to_follow(server):
    found = server(b"HTTP/1.1 307 There\r\nLocation: /x\r\nContent-Length: 2\r\n\r\nok")
    assert asked(found.url) == (307, b"ok", "/x")
    [request] = found.requests
    assert request.startswith(b"POST /path?query=1 HTTP/1.1\r\n")
    assert b"X-Own: 1\r\n" in request


def test_where_nobody_listens_nothing_was_sent():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(NotReached) as told:
        asked(urlsplit(f"http://127.0.0.1:{port}/"))
    assert isinstance(told.value.__cause__, ConnectionRefusedError)


def test_a_server_that_falls_silent_is_not_waited_for(server):
    with pytest.raises(TimeoutError):
        asked(server(b"").url, silence=0.05)


def test_rubbish_is_no_answer(server):
    with pytest.raises(HTTPException):
        asked(server(b"rubbish\r\n\r\n").url)


def test_work_that_waits_for_a_server_can_be_stopped(server):
    found, stop = server(b""), StopToken()
    threading.Thread(target=lambda: (found.asked.wait(), stop.stop()), daemon=True).start()
    with pytest.raises((OSError, HTTPException)):
        asked(found.url, stop, silence=None)
    with pytest.raises(WorkStopped):
        asked(found.url, stop)
    assert len(found.requests) == 1
