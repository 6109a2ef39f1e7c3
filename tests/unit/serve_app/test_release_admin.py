"""The release desk's HTTP: routes, refusals, and who is let in."""

import asyncio
import json

import httpx
import pytest
import release_samples as samples
from fakes import FakeObserver

from pipeline.contract.errors import ConfigError, FolderError, MissingFileError, NotReadyError
from serve_app.release.admin_app import ACTIONS, AdminApp
from serve_app.release.admin_server import AdminServer
from serve_app.release.status import ReleaseHistory, ReleaseStatus

STATUS, START = "/v1/release", "/v1/release/start"
JSON = {"Content-Type": "application/json"}


class Admin:
    """Sends requests to the admin application; no socket."""

    def __init__(self, desk=None, **options):
        self.desk = desk or samples.FakeDesk()
        self.observer = FakeObserver()
        self.app = AdminApp(self.desk, observers=[self.observer], **options)

    def send(self, method, path, *, host="127.0.0.1:8002", **options):
        async def call():
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url=f"http://{host}") as client:
                return await client.request(method, path, **options)

        return asyncio.run(call())

    def post(self, path, body=None, **options):
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {**JSON, **options.pop("headers", {})}
        return self.send("POST", path, content=content, headers=headers, **options)


def error_of(response):
    return response.status_code, response.json()["error"]["code"], response.json()["error"]["field"]


def test_the_status_and_history_are_what_the_desk_says():
    admin = Admin(samples.FakeDesk(samples.under_way(), past=samples.history()))

    status, past = admin.send("GET", STATUS), admin.send("GET", f"{STATUS}/history")

    assert ReleaseStatus.model_validate_json(status.content) == samples.under_way()
    assert ReleaseHistory.model_validate_json(past.content) == samples.history()
    assert status.headers["cache-control"] == "no-store"


def test_a_release_is_started_with_bundle_and_plan():
    admin = Admin()

    response = admin.post(START, {"bundle": "/models/v2", "plan": {"settle_s": 1}})

    assert response.json()["state"] == "starting"
    assert admin.desk.asked == [("start", "/models/v2", {"settle_s": 1})]


@pytest.mark.parametrize(
    ("before", "action", "after"),
    [
        ("running", "pause", "paused"),
        ("paused", "resume", "running"),
        ("running", "promote", "promoted"),
        ("running", "abort", "aborted"),
    ],
)
@pytest.mark.parametrize("body", [b"", b"{}"])
def test_a_release_is_changed(before, action, after, body):
    admin = Admin(samples.FakeDesk(samples.under_way(state=before)))

    response = admin.post(f"{STATUS}/{action}", body)

    assert (response.status_code, response.json()["state"]) == (200, after)


@pytest.mark.parametrize("action", ACTIONS[1:])
def test_what_the_state_does_not_allow_is_a_conflict(action):
    response = Admin().post(f"{STATUS}/{action}", {})

    assert error_of(response) == (409, "release_conflict", None)


@pytest.mark.parametrize(
    "bundle",
    ["", "relative/bundle", "/" + "x" * 5000, "/a\x00b", "/a\nb", "/\u202eb", 7, None, ["/a"], {}],
    ids=repr,
)
def test_a_bundle_that_can_be_no_folder_is_refused(bundle):
    admin = Admin()

    response = admin.post(START, {"bundle": bundle})

    assert error_of(response) == (400, "invalid_request", "bundle")
    assert admin.desk.asked == []
    assert len(response.content) < 1000


@pytest.mark.parametrize("plan", ["", "steps", 5, [], True], ids=repr)
def test_a_plan_that_is_no_mapping_is_refused(plan):
    response = Admin().post(START, {"bundle": "/m", "plan": plan})

    assert error_of(response) == (400, "invalid_request", "plan")


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 50_000, b'{"bundle": "\\udc00"}'], ids=len
)
def test_a_body_that_is_no_request_is_refused(body):
    assert error_of(Admin().post(START, body))[:2] == (400, "invalid_request")


def test_an_unknown_field_is_told_the_nearest_one():
    response = Admin().post(START, {"bundel": "/m"})

    assert error_of(response) == (400, "invalid_request", "bundel")
    assert "Did you mean bundle?" in response.text


@pytest.mark.parametrize("path", [START, f"{STATUS}/abort"])
def test_a_body_over_the_limit_is_refused(path):
    response = Admin().post(path, b'{"bundle": "' + b"x" * 70_000 + b'"}')

    assert error_of(response) == (413, "body_too_large", "body")


@pytest.mark.parametrize(
    ("failure", "status", "field", "text"),
    [
        (
            ConfigError("unknown setting", place="plan: setle_s", remedy="Write settle_s."),
            400,
            "plan: setle_s",
            "plan: setle_s: unknown setting. Write settle_s.",
        ),
        (FolderError("no bundle", place="/m"), 400, "bundle", "bundle: /m: no bundle"),
        (MissingFileError("gone", place="/m/x"), 400, "bundle", "bundle: /m/x: gone"),
        (NotReadyError("the desk has no state yet"), 503, None, "the desk has no state yet"),
        (RuntimeError("a secret path"), 500, None, "unexpected error"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_desk_raises_has_a_status_and_a_field(failure, status, field, text):
    response = Admin(samples.FakeDesk(failure=failure)).post(START, {"bundle": "/m"})

    error = response.json()["error"]
    assert (response.status_code, error["field"]) == (status, field)
    assert error["message"].startswith(text)
    assert "secret" not in response.text


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("GET", "/v1/release/" + "x" * 5000, 404),
        ("POST", "/release", 405),
        ("GET", START, 405),
        ("DELETE", STATUS, 405),
    ],
)
def test_unknown_paths_and_methods_are_json_errors_that_show_the_way(method, path, status):
    response = Admin().send(method, path, headers=JSON)

    assert response.status_code == status
    assert "/release is the page" in response.json()["error"]["message"]


def test_without_keys_only_this_machine_s_names_are_answered():
    admin = Admin(samples.FakeDesk(samples.under_way()))

    for host in ("localhost:8002", "127.0.0.1", "[::1]:8002", "127.0.0.53:1"):
        assert admin.send("GET", STATUS, host=host).status_code == 200
    for host in ("evil.example", "127.0.0.1.evil.example", "10.0.0.7:8002", "localhost.evil"):
        assert error_of(admin.send("GET", STATUS, host=host)) == (400, "invalid_request", "Host")


@pytest.mark.parametrize("given", ["", "text/plain", "application/x-www-form-urlencoded", "json"])
def test_no_foreign_page_can_press_a_button(given):
    admin = Admin(samples.FakeDesk(samples.under_way()))

    response = admin.post(f"{STATUS}/promote", {}, headers={"Content-Type": given})

    assert error_of(response) == (400, "invalid_request", "Content-Type")
    assert admin.desk.asked == []


def test_with_keys_one_is_asked_for_wherever_the_question_comes_from():
    admin = Admin(samples.FakeDesk(samples.under_way()), api_keys=["long-secret"])
    good = {"X-API-Key": "long-secret"}

    assert error_of(admin.send("GET", STATUS))[:2] == (401, "unauthorized")
    assert admin.post(f"{STATUS}/abort", {}, headers={"X-API-Key": "x"}).status_code == 401
    assert admin.send("GET", STATUS, host="desk.example", headers=good).status_code == 200
    assert admin.send("GET", "/release", host="desk.example").status_code == 200
    assert [record.path for record in admin.observer.records][-1] == "/release"


def test_the_port_is_not_opened_to_others_without_a_key():
    with pytest.raises(ConfigError, match="other machines could start and promote releases"):
        AdminServer(Admin().app, host="0.0.0.0", port=0, has_keys=False)


@pytest.mark.slow
def test_a_port_that_is_taken_is_named():
    async def open_twice():
        server = AdminServer(Admin().app, host="127.0.0.1", port=0, has_keys=False)
        await server.start()
        try:
            with pytest.raises(ConfigError, match=rf"127.0.0.1:{server.port}"):
                AdminServer(Admin().app, host="127.0.0.1", port=server.port, has_keys=False)
        finally:
            await server.stop()

    asyncio.run(open_twice())


@pytest.mark.slow
def test_the_server_answers_until_it_is_stopped():
    async def ask():
        server = AdminServer(Admin().app, host="127.0.0.1", port=0, has_keys=False)
        await server.start()
        async with httpx.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"http://127.0.0.1:{server.port}/v1/release")
            await server.stop()
            with pytest.raises(httpx.ConnectError):
                await client.get(f"http://127.0.0.1:{server.port}/v1/release")
        return answer

    assert asyncio.run(ask()).json()["state"] == "none"
