// The client: one namespace of one cluster.

import { KubeConfig } from "@kubernetes/client-node";
import { Api } from "./api.js";
import { Calls, type RunOptions } from "./calls.js";
import { create, setTrue } from "./create.js";
import { Cancelled, invalid, publicError } from "./errors.js";
import { CommandHandle } from "./handle.js";
import { list, type CallInfo, type CallsQuery, type Page, type SessionInfo, type SessionsQuery, callInfo, sessionInfo } from "./list.js";
import type { ToolCall, ToolSession, ToolSessionSpec } from "./objects.js";
import type { Result } from "./result.js";
import { Session, type SessionOptions } from "./session.js";
import { commandSpec, envOf, nameFor, wholeNumber, wholeSeconds, type Command } from "./spec.js";

/** Options of the client. */
export interface ToolcallOptions {
  /** Namespace of the environments and calls. The kubeconfig's or the pod's own when unset. */
  namespace?: string;
  /** Where the cluster is, and with which credentials. The default kubeconfig, or the pod's service account, when unset. */
  kubeConfig?: KubeConfig;
  /** Seconds for which a request is repeated while the API can't be reached. Default 120. */
  retryFor?: number;
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
    const namespace = options.namespace ?? config.getContextObject(config.getCurrentContext())?.namespace;
    if (!namespace) {
      throw invalid("no namespace: give one, as in new Toolcall({ namespace: \"agents\" }), or set it in the kubeconfig's context");
    }
    this.namespace = namespace;
    this.#api = new Api(config, namespace, wholeSeconds("retryFor", options.retryFor ?? 120, 0) * 1_000);
    this.#calls = new Calls(this.#api);
  }

  /** Runs a command in a pod of its own and returns its result, or with `background: true` a handle on it. */
  run(command: Command, options: SingleRunOptions & { background: true }): Promise<CommandHandle>;
  run(command: Command, options?: SingleRunOptions & { background?: false }): Promise<Result>;
  run(command: Command, options?: SingleRunOptions): Promise<Result | CommandHandle>;
  async run(command: Command, options: SingleRunOptions = {}): Promise<Result | CommandHandle> {
    const spec = commandSpec(command, options, { environment: options.environment });
    return options.background ? this.#calls.start(spec, options) : this.#calls.run(spec, options);
  }

  /**
   * Starts a session in an environment, the namespace's default when none is named, and waits until it is ready. One that `key`
   * finds may be suspended: its next call resumes it.
   */
  async session(environment?: string, options: SessionOptions = {}): Promise<Session> {
    const name = nameFor(options.key, "session");
    const spec = sessionSpec(environment, options);
    const { signal } = options;
    let session: Session | undefined;
    try {
      const object = await create<ToolSession>(this.#api, { plural: "toolsessions", name, spec }, signal);
      session = new Session(this.#calls, object, options.cwd);
      await session.ready(options);
      return session;
    } catch (error) {
      // A session with a key may be another program's, too. One with a name of ours is of no use to anybody.
      if (options.key === undefined && (session || signal?.aborted)) {
        await setTrue(this.#api, { plural: "toolsessions", name, uid: session?.uid }, "end", AbortSignal.timeout(END_MILLISECONDS)).catch(() => {});
      }
      throw signal?.aborted ? new Cancelled(`the session ${name} was given up`, { cause: signal.reason }) : error;
    }
  }

  /** A session that is there already. Closing it ends it, too. */
  async connect(name: string, options: { cwd?: string; signal?: AbortSignal } = {}): Promise<Session> {
    const object = await this.get<ToolSession>("toolsessions", name, options.signal);
    return new Session(this.#calls, object, options.cwd);
  }

  /** A handle on a call that is there already, also on one that has ended. */
  async handle(call: string, options: { signal?: AbortSignal } = {}): Promise<CommandHandle> {
    return new CommandHandle(this.#calls, await this.get<ToolCall>("toolcalls", call, options.signal));
  }

  /** A page of the namespace's calls, in the order of their names. */
  listCalls(query: CallsQuery = {}): Promise<Page<CallInfo>> {
    return list(this.#api, "toolcalls", query, callInfo);
  }

  /** A page of the namespace's sessions, in the order of their names. */
  listSessions(query: SessionsQuery = {}): Promise<Page<SessionInfo>> {
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

  private async get<T>(plural: "toolcalls" | "toolsessions", name: string, signal?: AbortSignal): Promise<T> {
    try {
      return await this.#api.repeated(() => this.#api.json<T>({ method: "GET", path: this.#api.objects(plural, name), signal }), signal);
    } catch (error) {
      throw publicError(error, plural === "toolcalls" ? { call: name } : {});
    }
  }
}

function defaultConfig(): KubeConfig {
  const config = new KubeConfig();
  config.loadFromDefault();
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
