"""Pulsar's admin REST API in memory, as far as publish limits go: what a real 4.2.4 answers."""

import json
from typing import Any
from urllib.parse import unquote

import httpx

from connectors.bookie_disks.publishing.limits import PublishAdmin
from connectors.pulsar.connection import PulsarAdmin

SETTING = "brokerPublisherThrottlingMaxByteRate"
SYSTEM = "pulsar/system"
OK, GONE = httpx.Response(204), httpx.Response(404, json={"reason": "does not exist"})


class Pulsar:
    """Namespaces with their policies, dynamic settings and resource groups; `down` makes each request fail."""

    def __init__(self, *namespaces: str) -> None:
        self.policies: dict[str, dict[str, Any]] = {name: {"properties": {}} for name in (*namespaces, SYSTEM)}
        self.dynamic: dict[str, str] = {}
        self.configured = "0"
        self.groups: dict[str, int] = {}
        self.writes: list[str] = []
        self.requests = 0
        self.down = False
        self.refuses_rates = False

    def admin(self) -> PublishAdmin:
        return PublishAdmin(PulsarAdmin(admin_url="http://pulsar:8080"), httpx.MockTransport(self._take))

    def rate(self, namespace: str) -> int | None:
        document = self.policies[namespace].get("publishRate")
        return None if document is None else int(document["publishThrottlingRateInByte"])

    def _take(self, request: httpx.Request) -> httpx.Response:
        self.requests += 1
        if self.down:
            raise httpx.ConnectError("refused", request=request)
        if request.method != "GET":
            self.writes.append(f"{request.method} {request.url.path}")
            if self.refuses_rates and "publishRate" in request.url.path:
                return httpx.Response(500, json={"reason": "refused"})
        body = json.loads(request.content) if request.content else None
        parts = [unquote(part) for part in request.url.raw_path.decode().removeprefix("/admin/v2/").split("/")]
        match request.method, parts:
            case "GET", ["tenants"]:
                return httpx.Response(200, json=sorted({name.split("/")[0] for name in self.policies}))
            case "GET", ["namespaces", tenant]:
                return httpx.Response(200, json=[name for name in self.policies if name.startswith(f"{tenant}/")])
            case _, ["namespaces", tenant, name, *rest]:
                return self._namespace(request.method, f"{tenant}/{name}", rest, body)
            case method, ["resourcegroups", name]:
                return self._group(method, name, body)
            case "GET", ["brokers", "local"]:
                return httpx.Response(200, json=["pulsar1:8080", "pulsar2:8080"])
        return self._broker(request.method, parts[2:])

    def _broker(self, method: str, parts: list[str]) -> httpx.Response:
        match method, parts:
            case "GET", ["values"]:
                return httpx.Response(200, json=self.dynamic)
            case "GET", ["runtime"]:
                return httpx.Response(200, json={SETTING: self.dynamic.get(SETTING, self.configured)})
            case "POST", [name, value]:
                self.dynamic[name] = value
            case "DELETE", [name]:
                self.dynamic.pop(name, None)
        return OK

    def _namespace(self, method: str, name: str, rest: list[str], body: Any) -> httpx.Response:
        policies = self.policies.get(name)
        if policies is None:
            return GONE
        match method, rest:
            case "GET", [what]:
                found = policies.get(what)
                if what == "resourcegroup":
                    return httpx.Response(200, text=found or "")
                return httpx.Response(200, json=found) if found is not None else httpx.Response(200)
            case "PUT", ["properties"]:
                policies["properties"] |= body
            case "DELETE", ["property", key]:
                policies["properties"].pop(key, None)
            case "POST", ["publishRate"]:
                policies["publishRate"] = body
            case "POST", ["resourcegroup", group]:
                policies["resourcegroup"] = group
            case "DELETE", [what]:
                policies.pop(what, None)
        return OK

    def _group(self, method: str, name: str, body: Any) -> httpx.Response:
        if method == "PUT":
            self.groups[name] = body["publishRateInBytes"]
            return OK
        if name not in self.groups:
            return GONE
        if method == "GET":
            return httpx.Response(200, json={"publishRateInBytes": self.groups[name]})
        if any(each.get("resourcegroup") == name for each in self.policies.values()):
            return httpx.Response(412, json={"reason": "ResourceGroup is in use"})
        del self.groups[name]
        return OK
