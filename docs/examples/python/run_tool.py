"""Runs one shell command as a ToolCall, at most once, and prints the text for a model.

usage: run_tool.py NAMESPACE NAME COMMAND

With a name that exists it runs nothing, and waits for the existing call. It needs the package `kubernetes`
(Debian: python3-kubernetes) and a kubeconfig, or the service account's token in a pod.
"""

import json
import sys
import time

import urllib3
from kubernetes import client, config, watch
from kubernetes.client.exceptions import ApiException

TOOLCALLS = {"group": "toolcall.dev", "version": "v1alpha1", "plural": "toolcalls"}
# Status codes after which the same request may succeed. 409 is a conflict with another request, and 410 ends
# a watch that can't continue.
PASSING = (409, 410, 429, 500, 503, 504)


def create(api, namespace, name, spec):
    """Creates the call under a name of its own, so that the request can be repeated."""
    call = {
        "apiVersion": "toolcall.dev/v1alpha1",
        "kind": "ToolCall",
        "metadata": {"name": name},
        "spec": spec,
    }
    for attempt in range(5):
        try:
            api.create_namespaced_custom_object(namespace=namespace, body=call, **TOOLCALLS)
            return
        except ApiException as error:
            # An earlier attempt succeeded, and its answer was lost. A 409 for another reason created nothing.
            if error.status == 409 and json.loads(error.body)["reason"] == "AlreadyExists":
                return
            if error.status not in PASSING or attempt == 4:
                raise
        except urllib3.exceptions.HTTPError:
            if attempt == 4:
                raise
        time.sleep(1)


def is_finished(call):
    conditions = call.get("status", {}).get("conditions", [])
    return any(c["type"] == "Finished" and c["status"] == "True" for c in conditions)


def wait(api, namespace, name):
    """Watches the call until its condition Finished is True, whatever the outcome."""
    failures = 0
    while True:
        try:
            call = watch_once(api, namespace, name)
            if call:
                return call
            # A missing call has no events: fail instead of waiting forever.
            api.get_namespaced_custom_object(namespace=namespace, name=name, **TOOLCALLS)
            failures = 0
        except (ApiException, urllib3.exceptions.HTTPError) as error:
            failures += 1
            if getattr(error, "status", 503) not in PASSING or failures == 30:
                raise
            time.sleep(1)


def watch_once(api, namespace, name):
    """Returns the finished call, or None when the server ends the watch. A watch starts with the current object."""
    events = watch.Watch().stream(
        api.list_namespaced_custom_object,
        namespace=namespace,
        field_selector="metadata.name=" + name,
        timeout_seconds=60,
        **TOOLCALLS,
    )
    for event in events:
        if event["type"] == "DELETED":
            raise RuntimeError(f"call {name} was deleted before it had ended")
        if is_finished(event["object"]):
            return event["object"]
    return None


def run(api, namespace, name, spec, attempts=3):
    """Runs a call, and tries again under another name if the command never started."""
    for attempt in range(attempts):
        own_name = name if attempt == 0 else f"{name}-retry-{attempt}"
        create(api, namespace, own_name, spec)
        call = wait(api, namespace, own_name)
        if call["status"]["phase"] != "Failed" or not call["status"].get("retrySafe"):
            break
    return call


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    namespace, name, command = sys.argv[1:]
    config.load_config()
    api = client.CustomObjectsApi()
    call = run(api, namespace, name, {"shell": {"command": command}, "timeoutSeconds": 60})
    status = call["status"]
    print(status["output"])
    print(f"{status['phase']}/{status['reason']}: {status['message']}", file=sys.stderr)
    sys.exit(0 if status["phase"] == "Succeeded" else 1)


if __name__ == "__main__":
    main()
