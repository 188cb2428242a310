// The client: one namespace of one cluster.

import { KubeConfig } from "@kubernetes/client-node";
import { Api } from "./api.js";
import { Calls, type RunOptions } from "./calls.js";
import { create, setTrue } from "./create.js";
import { Cancelled, invalid } from "./errors.js";
import { callInfo, list, sessionInfo, type CallInfo, type CallsQuery, type SessionInfo, type SessionsQuery } from "./list.js";
import type { ToolSession, ToolSessionSpec } from "./objects.js";
import { readArtifact, readOutput, type OutputOptions, type SomeCall } from "./output.js";
import type { Result } from "./result.js";
import { checkedWait, Session, type SessionOptions } from "./session.js";
import { checkedName, commandSpec, envOf, nameFor, wholeNumber, wholeSeconds, type Command } from "./spec.js";

/** Options of the client. */
export interface ToolcallOptions {
  /** Namespace of the environments and calls. That of the kubeconfig's context, of the pod, or "default" when unset. */
  namespace?: string;
  /** Where the cluster is, and with which credentials. The default kubeconfig, or the pod's service account, when unset. */
  kubeConfig?: KubeConfig;
  /** Seconds for which a request is repeated while the API can't be reached. Default 120; 10 at most while it has never answered. */
  patience?: number;
}

/** Options of a call with a pod of its own. */
export interface SingleRunOptions extends RunOptions {
  /** Name of the ExecutionEnvironment. The namespace's default when unset. */
  environment?: string;
}

const END_MILLISECONDS = 10_000;

/** Runs tool calls in one namespace. */
export class Toolcall {
  /** The namespace. */
  readonly namespace: string;
  readonly #api: Api;
  readonly #calls: Calls;

  constructor(options: ToolcallOptions = {}) {
    const config = options.kubeConfig ?? defaultConfig();
    const namespace = options.namespace ?? (config.getContextObject(config.getCurrentContext())?.namespace || "default");
    this.namespace = checkedName("namespace", namespace);
    this.#api = new Api(config, namespace, wholeSeconds("patience", options.patience ?? 120, 0) * 1_000);
    this.#calls = new Calls(this.#api);
  }

  /** Runs a command in a pod of its own and returns its result. Background calls need a session. */
  async run(command: Command, options: SingleRunOptions = {}): Promise<Result> {
    if ("background" in options && options.background) {
      throw invalid("a background call needs a session: use commands.run of one");
    }
    return this.#calls.run(commandSpec(command, options, { environment: options.environment }), options);
  }

  /**
   * Starts a session in an environment, the namespace's default when none is named, and waits until it is ready. One that `key`
   * finds may be suspended: its next call resumes it.
   */
  async session(environment?: string, options: SessionOptions = {}): Promise<Session> {
    const name = nameFor(options.key, "session");
    const spec = sessionSpec(environment, options);
    const { signal, labels, annotations } = options;
    const wait = checkedWait(options.wait);
    let session: Session | undefined;
    try {
      const object = await create<ToolSession>(this.#api, { plural: "toolsessions", name, spec, labels, annotations }, { signal });
      session = new Session(this.#calls, object, options.cwd);
      await session.waitUntilReady({ orSuspended: true, wait, ...(signal ? { signal } : {}) });
      return session;
    } catch (error) {
      // A session with a key may be another program's, too. One with a name of ours is of no use to anybody.
      if (options.key === undefined && (session || signal?.aborted)) {
        await setTrue(this.#api, { plural: "toolsessions", name, uid: session?.uid }, "end", AbortSignal.timeout(END_MILLISECONDS)).catch(() => {});
      }
      throw signal?.aborted ? new Cancelled(`the session ${name} was given up`, { cause: signal.reason }) : error;
    }
  }

  /** A session that exists. `end` and `await using` end it, too. */
  async connect(name: string, options: { cwd?: string; signal?: AbortSignal } = {}): Promise<Session> {
    const object = await this.#calls.get<ToolSession>("toolsessions", name, options.signal);
    return new Session(this.#calls, object, options.cwd);
  }

  /** Reads all that a call wrote to a stream, or a range of it: as `commands.output` of a session. */
  output(call: SomeCall, options: OutputOptions = {}): Promise<Buffer> {
    return readOutput(this.#api, call, options);
  }

  /** Reads a file that a call kept: as `commands.artifact` of a session. */
  artifact(call: SomeCall, path: string, options: { signal?: AbortSignal } = {}): Promise<Buffer> {
    return readArtifact(this.#api, call, path, options.signal);
  }

  /** Stops a call, by its name. One that has ended, or isn't there, is left as it is. */
  cancel(call: string, options: { signal?: AbortSignal } = {}): Promise<void> {
    return setTrue(this.#api, { plural: "toolcalls", name: call }, "cancel", options.signal);
  }

  /** The namespace's calls, in the order of their names, read page by page as you go on. */
  calls(query: CallsQuery = {}): AsyncGenerator<CallInfo, void> {
    return list(this.#api, "toolcalls", query, callInfo);
  }

  /** The namespace's sessions, in the order of their names, read page by page as you go on. */
  sessions(query: SessionsQuery = {}): AsyncGenerator<SessionInfo, void> {
    return list(this.#api, "toolsessions", query, sessionInfo);
  }

  /**
   * Closes the client for good. Calls and sessions go on, but whoever waits for one, or reads its output, gets Unavailable with
   * the reason ClientClosed. A program ends without it, too.
   */
  close(): void {
    this.#calls.tracker.close();
    this.#api.close();
  }

  /** Same as `close`, for `using`. */
  [Symbol.dispose](): void {
    this.close();
  }
}

function defaultConfig(): KubeConfig {
  const config = new KubeConfig();
  try {
    config.loadFromDefault();
  } catch (error) {
    throw invalid(`the kubeconfig can't be used: ${String(error)}`);
  }
  // What the Kubernetes client makes up where it finds nothing.
  if (config.getCurrentContext() === "loaded-context" && config.getCurrentCluster()?.server === "http://localhost:8080") {
    throw invalid("no kubeconfig at $KUBECONFIG or ~/.kube/config, and this is no pod: set KUBECONFIG, or give a KubeConfig");
  }
  return config;
}

function sessionSpec(environment: string | undefined, options: SessionOptions): ToolSessionSpec {
  return {
    ...(environment ? { environmentRef: { name: environment } } : {}),
    ...(options.env ? { env: envOf(options.env) } : {}),
    ...(options.workspace ? { workspace: options.workspace } : {}),
    ...(options.idleTimeout === undefined ? {} : { idleTimeoutSeconds: wholeSeconds("idleTimeout", options.idleTimeout, 0) }),
    ...(options.maxLifetime === undefined ? {} : { maxLifetimeSeconds: wholeSeconds("maxLifetime", options.maxLifetime) }),
    ...(options.maxConcurrentCalls === undefined
      ? {}
      : { maxConcurrentCalls: wholeNumber("maxConcurrentCalls", options.maxConcurrentCalls, 1) }),
  };
}
