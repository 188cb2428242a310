"""What the tests on a cluster run against: a namespace of their own, with the scenarios' policy, environment and agent.

It needs KUBECONFIG of an administrator. `Bed` makes all of it and removes it, also after a failure.
"""

from __future__ import annotations

import base64
import os
import secrets
import tempfile
import time
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client, config

ROOT = Path(__file__).resolve().parents[3]
SETUP = ROOT / "clients" / "scenarios" / "setup" / "manifests.yaml"
OPERATOR_NAMESPACE = "toolcall-system"
LEASE = "toolcall-operator"

on_cluster = unittest.skipUnless(os.environ.get("TOOLCALL_SCENARIOS") == "1", "TOOLCALL_SCENARIOS=1 runs it on a cluster")
full_only = unittest.skipUnless(os.environ.get("TOOLCALL_FULL") == "1", "make test-full runs it")


class Bed:
    """A namespace to run calls in.

    namespace: its name; kubeconfig: a file with a token of the agent, who may create calls and use some tools; admin: an
    ApiClient with the administrator's rights.
    """

    def __init__(self, admin: Any, namespace: str, kubeconfig: str) -> None:
        self.admin = admin
        self.namespace = namespace
        self.kubeconfig = kubeconfig

    def agent(self, host: str | None = None) -> Any:
        """An ApiClient with the agent's rights; with `host`, it connects there instead of to the API server."""
        configuration = client.Configuration()
        config.load_kube_config(config_file=self.kubeconfig, client_configuration=configuration)
        if host is not None:
            configuration.host = host
        return client.ApiClient(configuration)

    def call(self, name: str) -> Any:
        """A ToolCall as it is."""
        return client.CustomObjectsApi(self.admin).get_namespaced_custom_object(
            "toolcall.dev", "v1alpha1", self.namespace, "toolcalls", name
        )

    def calls(self) -> list[Any]:
        """All ToolCalls of the namespace."""
        found = client.CustomObjectsApi(self.admin).list_namespaced_custom_object(
            "toolcall.dev", "v1alpha1", self.namespace, "toolcalls"
        )
        items: list[Any] = found["items"]
        return items

    def delete_call(self, name: str) -> None:
        """Deletes a ToolCall, and returns when it is gone."""
        custom, where = client.CustomObjectsApi(self.admin), ("toolcall.dev", "v1alpha1", self.namespace, "toolcalls", name)
        custom.delete_namespaced_custom_object(*where)
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                custom.get_namespaced_custom_object(*where)
            except client.ApiException as error:
                if error.status == 404:
                    return
            time.sleep(0.02)
        raise TimeoutError(f"call {name} is still there")

    def decide(self, key: str, decision: str, note: str = "") -> None:
        """Decides about the call of a key, as the administrator, once it waits for a person."""
        until = time.monotonic() + 30
        while (call := self.find_call(key)).get("status", {}).get("reason") != "AwaitingApproval":
            if time.monotonic() > until:
                raise TimeoutError(f"call {key} doesn't wait for a person: {call}")
            time.sleep(0.05)
        spec = {"callRef": {"name": key, "uid": call["metadata"]["uid"]}, "digest": call["status"]["approval"]["digest"],
                "decision": decision, "note": note}
        approval = {"apiVersion": "toolcall.dev/v1alpha1", "kind": "ToolCallApproval",
                    "metadata": {"generateName": "decision-"}, "spec": spec}
        client.CustomObjectsApi(self.admin).create_namespaced_custom_object(
            "toolcall.dev", "v1alpha1", self.namespace, "toolcallapprovals", approval
        )

    def find_call(self, name: str) -> Any:
        """A ToolCall as it is; empty where there is none."""
        return next((c for c in self.calls() if c["metadata"]["name"] == name), {})

    def kill_operator(self) -> None:
        """Deletes the pod of the operator's leader."""
        lease = client.CoordinationV1Api(self.admin).read_namespaced_lease(LEASE, OPERATOR_NAMESPACE)
        pod = lease.spec.holder_identity.split("_")[0]
        client.CoreV1Api(self.admin).delete_namespaced_pod(pod, OPERATOR_NAMESPACE, grace_period_seconds=0)


@contextmanager
def bed(prefix: str) -> Iterator[Bed]:
    """A Bed for the block."""
    configuration = client.Configuration()
    config.load_kube_config(client_configuration=configuration)
    admin = client.ApiClient(configuration)
    namespace = f"{prefix}-{secrets.token_hex(3)}"
    with tempfile.TemporaryDirectory() as folder:
        try:
            _set_up(admin, namespace)
            kubeconfig = os.path.join(folder, "kubeconfig")
            _write_kubeconfig(configuration, kubeconfig, namespace, _token(admin, namespace))
            yield Bed(admin, namespace, kubeconfig)
        finally:
            _tear_down(admin, namespace)
            admin.rest_client.pool_manager.clear()


def _set_up(admin: Any, namespace: str) -> None:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    client.CoreV1Api(admin).create_namespace({"metadata": {"name": namespace, "labels": labels}})
    custom, rbac = client.CustomObjectsApi(admin), client.RbacAuthorizationV1Api(admin)
    make: dict[str, Any] = {
        "ExecutionPolicy": lambda o: custom.create_cluster_custom_object("toolcall.dev", "v1alpha1", "executionpolicies", o),
        "ExecutionEnvironment": lambda o: custom.create_namespaced_custom_object(
            "toolcall.dev", "v1alpha1", namespace, "executionenvironments", o
        ),
        "ServiceAccount": lambda o: client.CoreV1Api(admin).create_namespaced_service_account(namespace, o),
        "RoleBinding": lambda o: rbac.create_namespaced_role_binding(namespace, o),
        "Role": lambda o: rbac.create_namespaced_role(namespace, o),
    }
    for thing in yaml.safe_load_all(SETUP.read_text().replace("${namespace}", namespace)):
        make[thing["kind"]](thing)
    _await_rights(admin, namespace)


def _await_rights(admin: Any, namespace: str) -> None:
    """The API server takes a moment until it knows of new rights."""
    attributes = {"namespace": namespace, "verb": "create", "group": "toolcall.dev", "resource": "toolcalls"}
    review = {"spec": {"user": f"system:serviceaccount:{namespace}:agent", "resourceAttributes": attributes}}
    until = time.monotonic() + 30
    while not client.AuthorizationV1Api(admin).create_subject_access_review(review).status.allowed:
        if time.monotonic() > until:
            raise TimeoutError(f"the agent of {namespace} has no right to create calls")
        time.sleep(0.1)


def _token(admin: Any, namespace: str) -> str:
    # The client's own method for this wants a field that the API server fills in.
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/agent/token"
    answer = admin.call_api(
        path, "POST", body={"spec": {"expirationSeconds": 7200}}, auth_settings=["BearerToken"], response_type="object",
        header_params={"Content-Type": "application/json", "Accept": "application/json"}, _return_http_data_only=True,
    )
    token: str = answer["status"]["token"]
    return token


def _write_kubeconfig(configuration: Any, path: str, namespace: str, token: str) -> None:
    authority = base64.b64encode(Path(configuration.ssl_ca_cert).read_bytes()).decode()
    cluster = {"server": configuration.host, "certificate-authority-data": authority}
    made = {
        "apiVersion": "v1", "kind": "Config", "current-context": "agent",
        "clusters": [{"name": "cluster", "cluster": cluster}],
        "users": [{"name": "agent", "user": {"token": token}}],
        "contexts": [{"name": "agent", "context": {"cluster": "cluster", "user": "agent", "namespace": namespace}}],
    }
    Path(path).write_text(yaml.safe_dump(made))


def _tear_down(admin: Any, namespace: str) -> None:
    """Removes the namespace, and the policies that begin with its name: policies belong to the cluster."""
    custom, kind = client.CustomObjectsApi(admin), ("toolcall.dev", "v1alpha1", "executionpolicies")
    try:
        for policy in custom.list_cluster_custom_object(*kind)["items"]:
            if policy["metadata"]["name"].startswith(namespace):
                custom.delete_cluster_custom_object(*kind, policy["metadata"]["name"])
    finally:
        client.CoreV1Api(admin).delete_namespace(namespace)
