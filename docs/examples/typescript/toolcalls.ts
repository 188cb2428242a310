// Runs tool calls through the plain Kubernetes client.

import { setTimeout as sleep } from "node:timers/promises";
import { CustomObjectsApi, KubeConfig, Watch } from "@kubernetes/client-node";

const kind = { group: "toolcall.dev", version: "v1alpha1", plural: "toolcalls" };

export interface ToolCallSpec {
  structured?: { binary: string; args?: string[] };
  shell?: { command: string };
  code?: { language: string; source: string; networkAccess?: boolean };
  environmentRef?: { name: string };
  workingDir?: string;
  env?: { name: string; value: string }[];
  stdin?: string;
  timeoutSeconds?: number;
}

export interface ToolCall {
  metadata: { name: string };
  spec: ToolCallSpec;
  status?: {
    phase?: "Pending" | "Running" | "Succeeded" | "Failed" | "Denied" | "Cancelled";
    reason?: string;
    message?: string;
    output?: string;
    exitCode?: number;
    retrySafe?: boolean;
    conditions?: { type: string; status: string }[];
  };
}

export class ToolCalls {
  private readonly api: CustomObjectsApi;
  private readonly watch: Watch;
  private readonly namespace: string;

  constructor(config: KubeConfig, namespace: string) {
    this.api = config.makeApiClient(CustomObjectsApi);
    this.watch = new Watch(config);
    this.namespace = namespace;
  }

  // fromDefault uses the kubeconfig, or the service account's token in a pod.
  static fromDefault(namespace: string): ToolCalls {
    const config = new KubeConfig();
    config.loadFromDefault();
    return new ToolCalls(config, namespace);
  }

  // run runs a call at most once, and tries again under another name if the command never started.
  async run(name: string, spec: ToolCallSpec, attempts = 3): Promise<ToolCall> {
    for (let attempt = 0; ; attempt++) {
      const ownName = attempt === 0 ? name : `${name}-retry-${attempt}`;
      await this.create(ownName, spec);
      const call = await this.finished(ownName);
      if (call.status?.phase !== "Failed" || !call.status.retrySafe || attempt + 1 >= attempts) {
        return call;
      }
    }
  }

  // create creates the call under a name of its own, so that the request can be repeated.
  async create(name: string, spec: ToolCallSpec): Promise<void> {
    const body = { apiVersion: "toolcall.dev/v1alpha1", kind: "ToolCall", metadata: { name }, spec };
    for (let attempt = 0; ; attempt++) {
      try {
        await this.api.createNamespacedCustomObject({ ...kind, namespace: this.namespace, body });
        return;
      } catch (error) {
        if (isTaken(error)) {
          return; // An earlier attempt succeeded, and its answer was lost.
        }
        if (!isPassing(error) || attempt === 4) {
          throw error;
        }
        await sleep(1000);
      }
    }
  }

  // finished watches the call until its condition Finished is True, whatever the outcome.
  async finished(name: string): Promise<ToolCall> {
    for (let failures = 0; ; ) {
      try {
        const call = await this.watchOnce(name);
        if (call) {
          return call;
        }
        // A missing call has no events: fail instead of waiting forever.
        await this.api.getNamespacedCustomObject({ ...kind, namespace: this.namespace, name });
        failures = 0;
      } catch (error) {
        if (!isPassing(error) || ++failures === 30) {
          throw error;
        }
        await sleep(1000);
      }
    }
  }

  // watchOnce resolves to the finished call, or to undefined when the server ends the watch.
  private watchOnce(name: string): Promise<ToolCall | undefined> {
    const path = `/apis/${kind.group}/${kind.version}/namespaces/${this.namespace}/${kind.plural}`;
    const query = { fieldSelector: `metadata.name=${name}`, timeoutSeconds: 60 };
    return new Promise((resolve, reject) => {
      let request: AbortController | undefined;
      let settled = false;
      const settle = (end: () => void) => {
        end();
        settled = true;
        request?.abort();
      };
      const event = (type: string, call: ToolCall) => {
        if (type === "DELETED") {
          const gone = new Error(`call ${name} was deleted before it had ended`);
          settle(() => reject(Object.assign(gone, { code: 404 })));
        } else if (isFinished(call)) {
          settle(() => resolve(call));
        }
      };
      const done = (error: unknown) => (error ? reject(error) : resolve(undefined));
      const started = (controller: AbortController) => {
        request = controller;
        if (settled) {
          request.abort();
        }
      };
      this.watch.watch(path, query, event, done).then(started, reject);
    });
  }
}

// codeOf is the HTTP status of an error. A broken connection has none.
function codeOf(error: unknown): number | undefined {
  const { code, statusCode } = error as { code?: unknown; statusCode?: unknown };
  return [code, statusCode].find((c) => typeof c === "number");
}

// isTaken says that the name is in use. A 409 for another reason created nothing.
function isTaken(error: unknown): boolean {
  return codeOf(error) === 409 && JSON.parse((error as { body: string }).body).reason === "AlreadyExists";
}

// isPassing says that the same request may succeed later. 409 is a conflict with another request.
function isPassing(error: unknown): boolean {
  const code = codeOf(error);
  return code === undefined || [409, 429, 500, 503, 504].includes(code);
}

function isFinished(call: ToolCall): boolean {
  return (call.status?.conditions ?? []).some((c) => c.type === "Finished" && c.status === "True");
}
