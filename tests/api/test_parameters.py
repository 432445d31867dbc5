"""No parameter is an unexpected error: whatever is sent, the answer is one that is documented."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import schemathesis
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from millrace_api.settings import Settings
from schemathesis import GenerationMode
from schemathesis.config import SchemathesisConfig
from schemathesis.specs.openapi.checks import positive_data_acceptance

from tests.api.conftest import api_settings
from tests.api.fakes import FakeFeed
from tests.api.keys import BEARER, create_app
from tests.api.serving import at_loopback, busy_store, describe_jobs
from tests.api.test_operations import StandIn
from tests.api.test_operations import served as prometheus
from tests.waiting import PATIENCE_SECONDS

RANGED = ["/v1/traffic", "/v1/traffic/total", "/v1/pages/top", "/v1/dead-letters", "/v1/late"]
OF_JOBS = [
    *("/v1/jobs/by_status", "/v1/jobs/visits", "/v1/jobs/visits/closed"),
    *("/v1/jobs/visits/sessions", "/v1/jobs/visits/live"),
]
NAMES = ["from", "to", "window", "k", "limit", "cursor", "range", "status", "visitor", "\x00"]
EDGES = [
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+14:00",
    "0999-12-31T23:59:00Z",
    "1000-01-01T00:00:00Z",
    "9998-12-31T23:00:00Z",
    "9999-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999Z",
    "9999-12-31T00:00:00Z",
    "9999-12-31T23:00:00Z",
    "9999-12-31T23:59:59-14:00",
    "2015-05-17T00:00:00Z",
    "2015-05-17T11:00:00Z",
    "2015-05-17T10:00:00.0005Z",
    "2015-05-17T10:00:00+23:59:59.999999",
    "1m",
    "1h",
    *(str(n) for n in (0, -1, 1, 2**31 - 1, 2**31, -(2**31) - 1, 2**63 - 1, 2**63, 2**64)),
    "9" * 5000,
    "1e400",
    "nan",
    "\x00",
    "a\x00b",
    "\ufffd",
    "x" * 20_000,
    "é" * 3_000,
    "bnVsbA==",
    "W10=",
]
values = st.one_of(st.sampled_from(EDGES), st.text(max_size=20), st.datetimes().map(str))
EXAMPLES = 20  # of each operation
RANGE = [("from", "2015-05-17T10:00:00Z"), ("to", "2015-05-17T11:00:00Z")]


def unlimited(panels: Path, prometheus: tuple[str, int]) -> Settings:
    rates = {"client_requests_per_second": 1e6, "client_burst": 1_000_000}
    return api_settings(panels).model_copy(update={"prometheus": [prometheus], **rates})


@pytest.fixture(scope="module")
def monitor() -> Iterator[tuple[str, int]]:
    with prometheus(StandIn()) as endpoint:
        yield endpoint


@pytest.fixture(scope="module")
def asked(panels: Path, monitor: tuple[str, int]) -> Iterator[TestClient]:
    """Lets a bug fail the test with its trace."""
    app = create_app(unlimited(panels, monitor), busy_store(), FakeFeed())
    with TestClient(app, headers=BEARER) as client:
        yield client


@settings(
    max_examples=400, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(
    st.sampled_from([*RANGED, *OF_JOBS, "/v1/operations/events"]),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(NAMES), values), max_size=3),
)
def test_whatever_a_parameter_is_it_is_answered_or_refused(
    asked: TestClient, path: str, in_range: bool, parameters: list[tuple[str, str]]
) -> None:
    named = {name for name, _ in parameters}
    given = [pair for pair in RANGE if in_range and pair[0] not in named and path[-4:] != "live"]
    answer = asked.get(path, params=[*given, *parameters])
    assert answer.status_code in (200, 422), answer.text
    assert len(answer.content) < 100_000  # of what was sent, little comes back


@pytest.mark.parametrize("path", [*RANGED, *OF_JOBS[:-1]])
@pytest.mark.parametrize(
    ("start", "end", "status"),
    [
        ("0001-01-01T00:00:00Z", "0001-01-01T01:00:00Z", 422),
        ("1000-01-01T00:00:00Z", "1000-01-01T01:00:00Z", 200),
        ("9998-12-31T23:00:00Z", "9999-01-01T00:00:00Z", 200),
        ("9999-12-31T22:00:00Z", "9999-12-31T23:00:00Z", 422),
    ],
)
def test_at_the_edges_of_time_there_is_nothing(
    asked: TestClient, path: str, start: str, end: str, status: int
) -> None:
    key = {"visitor": "ann"} if path.endswith("/sessions") else {}
    assert asked.get(path, params={"from": start, "to": end, **key}).status_code == status


@pytest.mark.parametrize("text", EDGES)
@pytest.mark.parametrize(
    "path",
    ["/v1/jobs/{}", "/v1/jobs/{}/live", "/v1/operations/panels/{}", "/runbooks/{}", "/page/{}"],
)
def test_whatever_is_in_a_path_it_is_not_there(asked: TestClient, path: str, text: str) -> None:
    answer = asked.get(path.format(quote(text[:5000], safe="")))
    assert answer.status_code in (404, 422), answer.text


@pytest.mark.parametrize(
    "raw", [b"\xff", b"%ff", b"%ed%a0%80", b"%", b"%zz", b"=", b"&&", b"a=%00"]
)
def test_bytes_that_are_no_text_are_no_bug(asked: TestClient, raw: bytes) -> None:
    query = b"from=2015-05-17T10:00:00Z&to=2015-05-17T11:00:00Z&visitor=" + raw
    answer = asked.get(f"/v1/jobs/visits?{query.decode('latin-1')}")
    assert answer.status_code in (200, 422), answer.text


# --- by the documentation ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def documented(panels: Path, monitor: tuple[str, int]) -> Iterator[schemathesis.BaseSchema]:
    """Without the stream, which has no end."""
    app = create_app(unlimited(panels, monitor), busy_store(), FakeFeed())
    with at_loopback(app) as url:
        describe_jobs(url)
        schema = schemathesis.openapi.from_url(f"{url}/openapi.json", config=SchemathesisConfig())
        yield schema.exclude(path="/v1/stream")


def declares_a_key(operation: schemathesis.APIOperation) -> bool:
    return bool(operation.definition.raw.get("security"))


def known(operation: schemathesis.APIOperation, mode: GenerationMode) -> dict[str, str]:
    """A range in which there is something: few of those that a schema allows are ranges."""
    names = {parameter.name for parameter in operation.iter_parameters()}
    is_ranged = "from" in names and mode is GenerationMode.POSITIVE
    return dict(RANGE) if is_ranged else {}


@pytest.mark.parametrize("mode", GenerationMode)
def test_every_answer_is_as_documented(
    documented: schemathesis.BaseSchema, mode: GenerationMode
) -> None:
    """To what the document allows, and to what it doesn't."""
    operations = [found.ok() for found in documented.get_all_operations()]
    assert len(operations) > len(RANGED + OF_JOBS)
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not [*operation.iter_parameters()]:
            continue  # nothing of it could be wrong

        @settings(max_examples=EXAMPLES, derandomize=True, suppress_health_check=[*HealthCheck])
        @given(operation.as_strategy(mode, query=known(operation, mode)))
        def check(case: schemathesis.Case) -> None:
            # A schema can't say that a range has an end after its start, nor whose a cursor is.
            case.call_and_validate(
                excluded_checks=[positive_data_acceptance],
                headers=BEARER,
                timeout=PATIENCE_SECONDS,
            )

        check()


@pytest.mark.parametrize("mode", GenerationMode)
def test_without_a_key_there_is_one_answer(
    documented: schemathesis.BaseSchema, mode: GenerationMode
) -> None:
    """Whatever is sent, right or wrong: nobody learns which it was."""
    closed = [
        operation
        for operation in (found.ok() for found in documented.get_all_operations())
        if declares_a_key(operation)
    ]
    assert len(closed) > len(RANGED + OF_JOBS)
    for operation in closed:
        if mode is GenerationMode.NEGATIVE and not [*operation.iter_parameters()]:
            continue

        @settings(max_examples=3, derandomize=True, suppress_health_check=[*HealthCheck])
        @given(operation.as_strategy(mode, query=known(operation, mode)))
        def check(case: schemathesis.Case) -> None:
            case.headers, case.cookies = {}, {}
            answer = case.call(timeout=PATIENCE_SECONDS)
            assert answer.status_code == 401, answer.text

        check()
