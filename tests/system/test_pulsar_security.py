"""The admin REST of a real Pulsar that wants TLS and a token: who is let in, and what is said of who is not."""

import base64
import hashlib
import hmac
import json
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from structlog.testing import capture_logs

from connectors.http.rest import describe_rest_error, outcome_of
from connectors.pulsar.admin import AdminApi
from connectors.pulsar.settings import PulsarAdmin
from deploy.doctor import Verdict
from policies.observations import Outcome
from tests.system.doctor import examined
from tests.system.pulsar import PulsarCluster
from tests.system.test_unload_actuator import Acting, decided
from tests.system.zookeeper import free_port

_KEY = b"a key that only this test knows, of 256 bits and more"


def token_of(role: str, key: bytes = _KEY) -> str:
    """A JSON Web Token, signed as Pulsar's token provider wants it."""
    parts = [_base64(json.dumps(part).encode()) for part in ({"alg": "HS256"}, {"sub": role})]
    signature = hmac.digest(key, ".".join(parts).encode(), hashlib.sha256)
    return ".".join((*parts, _base64(signature)))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


class Secured:
    """A broker with TLS and tokens."""

    def __init__(self, cluster: PulsarCluster, folder: Path) -> None:
        self.cert, key = folder / "cert.pem", folder / "key.pem"
        openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
        names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(self.cert)]
        subprocess.run([*openssl, *names], check=True, capture_output=True)
        port = free_port()
        authentication = "org.apache.pulsar.client.impl.auth.AuthenticationToken"
        properties = {
            "webServicePortTls": port,
            "tlsCertificateFilePath": self.cert,
            "tlsKeyFilePath": key,
            "authenticationEnabled": "true",
            "authenticationProviders": "org.apache.pulsar.broker.authentication.AuthenticationProviderToken",
            "tokenSecretKey": f"data:;base64,{base64.b64encode(_KEY).decode()}",
            "authorizationEnabled": "true",
            "superUserRoles": "operator",
            "brokerClientAuthenticationPlugin": authentication,
            "brokerClientAuthenticationParameters": f"token:{token_of('operator')}",
        }
        self.member = cluster.add_broker(properties=properties, token=token_of("operator")).broker_id
        self.url = f"https://localhost:{port}"


@pytest.fixture(scope="module")
def secured(
    pulsar_jars: tuple[Path, ...], bookkeeper_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    with PulsarCluster(folder, pulsar_jars, bookkeeper_jars, bookies=0) as cluster:
        yield Secured(cluster, folder)


def asked(settings: PulsarAdmin) -> tuple[Outcome, str]:
    """What comes of asking, and the detail."""
    admin = AdminApi(settings)
    try:
        admin.racks()
    except Exception as error:
        return outcome_of(error), describe_rest_error(error)
    finally:
        admin.close()
    return Outcome.OK, ""


def test_the_operator_is_let_in_and_a_new_token_counts_at_once(secured: Secured, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token_of("somebody") + "\n")
    settings = {"admin_url": secured.url, "tls": {"ca_file": secured.cert}, "token_file": file}
    admin = AdminApi(PulsarAdmin.model_validate(settings))
    with pytest.raises(Exception, match=r"status 40[13]") as caught:
        admin.set_rack("bk1:3181", "g", "/r")
    assert outcome_of(caught.value) is Outcome.UNAUTHORIZED
    file.write_text(token_of("operator") + "\n")
    admin.set_rack("bk1:3181", "g", "/r")
    assert set(admin.racks()) == {"g"}
    admin.close()


@pytest.mark.parametrize(
    "token",
    [None, "not-a-token-at-all", token_of("operator", b"somebody else's key, which is long enough too")],
    ids=["none", "no token", "signed by others"],
)
def test_who_is_not_let_in_is_unauthorized_and_the_token_is_shown_nowhere(secured: Secured, token: str | None) -> None:
    settings = {"admin_url": secured.url, "tls": {"ca_file": secured.cert}, "token": token}
    with capture_logs() as logs:
        outcome, detail = asked(PulsarAdmin.model_validate(settings))
    assert outcome is Outcome.UNAUTHORIZED
    assert detail.startswith("GET /admin/v2/bookies/racks-info: status 401")
    assert token is None or token not in f"{detail} {logs}"


def test_a_server_that_is_not_trusted_is_an_error_and_is_sent_nothing(secured: Secured) -> None:
    outcome, detail = asked(PulsarAdmin(admin_url=secured.url))
    assert (outcome, "CERTIFICATE_VERIFY_FAILED" in detail) == (Outcome.ERROR, True)


def test_a_server_of_another_name_is_an_error_unless_names_do_not_count(secured: Secured) -> None:
    url = secured.url.replace("localhost", "127.0.0.1")
    tls = {"ca_file": secured.cert}
    token = token_of("operator")
    outcome, detail = asked(PulsarAdmin.model_validate({"admin_url": url, "tls": tls, "token": token}))
    assert (outcome, "127.0.0.1" in detail) == (Outcome.ERROR, True)
    lenient = tls | {"verify_hostname": False}
    assert asked(PulsarAdmin.model_validate({"admin_url": url, "tls": lenient, "token": token}))[0] is Outcome.OK


@pytest.mark.parametrize(
    ("role", "verdict", "remedies"),
    [("operator", Verdict.WORKS, ()), ("somebody", Verdict.NOT_ALLOWED, ("superUserRoles=…,somebody",))],
)
def test_the_doctor_names_the_role_that_must_be_a_superuser(
    secured: Secured, role: str, verdict: Verdict, remedies: tuple[str, ...]
) -> None:
    pulsar = {"admin_url": secured.url, "tls": {"ca_file": secured.cert}, "token": token_of(role)}
    answers = examined(
        {"clusters": {"c": {"pulsar": pulsar, "unload": {"member_url": secured.url[:8] + "{host}:8443"}}}}
    )
    answer = answers["c: Pulsar, admin REST, to unload bundles"]
    assert (answer.is_good, len(answer.remedies)) == (verdict is Verdict.WORKS, len(remedies)), answer
    assert all(part in line for part, line in zip(remedies, answer.remedies, strict=True))
    assert token_of(role) not in str(answers)


def bounds_of(secured: Secured, topic: str) -> str:
    """The bundle of a topic."""
    url = f"{secured.url}/lookup/v2/topic/persistent/{topic}/bundle"
    trust = ssl.create_default_context(cafile=secured.cert)
    return httpx.get(url, verify=trust, headers={"Authorization": f"Bearer {token_of('operator')}"}, timeout=30).text


def test_the_token_of_the_file_lets_the_unload_actuator_in_over_tls(secured: Secured, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(token_of("somebody"))
    admin = {"admin_url": secured.url, "tls": {"ca_file": secured.cert}, "token_file": file}
    operator = AdminApi(PulsarAdmin.model_validate({**admin, "token_file": None, "token": token_of("operator")}))
    operator.lookup("public/default/topic")
    operator.close()
    bundle = f"public/default/{bounds_of(secured, 'public/default/topic')}"
    # By its name the broker is known to TLS, by its address to the others.
    port, names = secured.url.rpartition(":")[2], {"ca_file": secured.cert, "verify_hostname": False}
    with Acting({**admin, "tls": names}, member_url="https://{host}:" + port) as actor:
        actor.decide(decided(bundle, secured.member))
        assert "status 40" in actor.awaits("failed", bundle)["detail"]
        file.write_text(token_of("operator"))
        actor.awaits("done", bundle)
    assert token_of("operator") not in json.dumps(actor.said)
