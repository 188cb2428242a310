// Requests to the API server over connections that are kept. It uses the credentials and the TLS settings of a KubeConfig.

import http from "node:http";
import https from "node:https";
import type { KubeConfig } from "@kubernetes/client-node";
import {
  ApiError,
  ClientClosed,
  ConnectionLost,
  invalid,
  NoCredentials,
  NothingSent,
  ToolcallError,
  Unreached,
  type ApiStatus,
} from "./errors.js";
import { GROUP, VERSION, type Plural } from "./objects.js";
import { Retries, UNREACHED_MILLISECONDS } from "./retries.js";
import { checkedName } from "./spec.js";

/** Values of a query; undefined ones are left out. */
export type Query = Record<string, string | number | boolean | undefined>;

/** One request. */
export interface ApiRequest {
  method: "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  query?: Query;
  headers?: Record<string, string>;
  /** The body. One that is iterated over can be sent once only. */
  body?: Uint8Array | string | AsyncIterable<Uint8Array>;
  signal?: AbortSignal | undefined;
  /** Milliseconds without a byte after which the connection counts as lost. */
  idleMilliseconds?: number;
}

const IDLE_MILLISECONDS = 30_000;
// The credentials are read again after this time: tokens in files and of programs are replaced.
const CREDENTIALS_MILLISECONDS = 30_000;
// Codes of errors of a certificate: trying again doesn't help.
const UNTRUSTED = /^(CERT_|ERR_TLS_|UNABLE_TO_|SELF_SIGNED_|DEPTH_ZERO_|HOSTNAME_MISMATCH)/;
const MAX_ERROR_BYTES = 64 * 1024;
// How admission begins its refusal of an object that doesn't say who creates it, where nothing fills that in.
const ASKED = "spec.requestedBy must be the user of the request";
const KINDS: Record<Plural, string> = { toolcalls: "call", toolsessions: "session" };
const REVIEWS = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/** The API server of one KubeConfig. */
export class Api {
  private credentials: { until: number; options: https.RequestOptions } | undefined;
  private agent: http.Agent | undefined;
  private isClosed = false;
  private hasAnswered = false;
  // What the API server said of the user, once the cluster has asked for it.
  private user: object | undefined;
  private readonly server: URL;

  constructor(
    private readonly config: KubeConfig,
    readonly namespace: string,
    /** Milliseconds for which requests that can be repeated are tried again. */
    readonly retryMilliseconds: number,
  ) {
    const cluster = config.getCurrentCluster();
    if (!cluster) {
      throw invalid("the kubeconfig has no current context with a cluster: set KUBECONFIG, or give a KubeConfig");
    }
    if (!URL.canParse(cluster.server)) {
      throw invalid(`the kubeconfig's server ${JSON.stringify(cluster.server)} isn't a URL, such as https://kubernetes.example.com:6443`);
    }
    this.server = new URL(cluster.server);
  }

  /** Path of a kind's objects in the namespace, or of one of them. Throws InvalidArgument for what can't be a name. */
  objects(plural: Plural, name?: string): string {
    return this.inNamespace(GROUP, plural) + (name === undefined ? "" : `/${checkedName(KINDS[plural], name)}`);
  }

  /** Path of a subresource: a call's log, a session's files or input. */
  subresource(plural: Plural, name: string, rest: string): string {
    return `${this.inNamespace(`subresources.${GROUP}`, plural)}/${checkedName(KINDS[plural], name)}/${rest}`;
  }

  private inNamespace(group: string, plural: Plural): string {
    return `/apis/${group}/${VERSION}/namespaces/${encodeURIComponent(this.namespace)}/${plural}`;
  }

  /** Sends a request once and returns the answer, whose body is still to be read. Throws ApiError and ConnectionLost. */
  async send(request: ApiRequest): Promise<http.IncomingMessage> {
    const answer = await this.sendAuthorized(request);
    if (answer.statusCode === 401 && !isStream(request.body)) {
      // The credentials may have been replaced meanwhile. A request that wasn't authenticated has done nothing.
      this.credentials = undefined;
      await readAll(answer, MAX_ERROR_BYTES);
      return this.check(await this.sendAuthorized(request));
    }
    return this.check(answer);
  }

  /** Sends a request once and returns the answer's object or list. */
  async json<T>(request: ApiRequest): Promise<T> {
    const text = await this.text(request);
    const object = parsed<{ metadata?: { uid?: unknown } | null; items?: unknown }>(text);
    if (object.metadata?.uid === undefined && !(object.metadata && object.items)) {
      throw foreign(text);
    }
    return object as T;
  }

  private async text(request: ApiRequest): Promise<string> {
    return (await readAll(await this.send(request))).toString("utf8");
  }

  /**
   * Sends a new call or session once. A cluster that doesn't fill in who creates it refuses it: then this asks the API server who
   * that is, and sends the object again. The answer changes with the credentials, and is asked for anew.
   */
  async create<T>(path: string, body: { spec: object }): Promise<T> {
    try {
      return await this.json<T>(creating(path, this.signed(body)));
    } catch (error) {
      if (!(error instanceof ApiError) || error.code !== 403 || !error.message.includes(ASKED)) {
        throw error;
      }
      await this.askWhoCreates(error);
    }
    return this.json<T>(creating(path, this.signed(body)));
  }

  // Without an answer the error is the refusal: nothing was created.
  private async askWhoCreates(refusal: ApiError): Promise<void> {
    const review = { apiVersion: "authentication.k8s.io/v1", kind: "SelfSubjectReview" };
    try {
      const answer = await this.repeated(() => this.text(creating(REVIEWS, review)));
      this.user = parsed<{ status?: { userInfo?: object } }>(answer).status?.userInfo;
    } catch (error) {
      refusal.cause = error;
      throw refusal;
    }
  }

  private signed(body: { spec: object }): object {
    return this.user ? { ...body, spec: { ...body.spec, requestedBy: this.user } } : body;
  }

  /** Sends a request that may be repeated until it is answered, for `retryMilliseconds`. */
  async repeated<T>(once: () => Promise<T>, signal?: AbortSignal): Promise<T> {
    const retries = new Retries(this.retryMilliseconds);
    for (;;) {
      try {
        return await once();
      } catch (error) {
        if (!(await retries.wait(error, signal))) {
          signal?.throwIfAborted();
          throw error;
        }
      }
    }
  }

  /** Breaks the connections. Later requests throw ClientClosed: what goes on after a broken connection ends with that. */
  close(): void {
    this.isClosed = true;
    this.agent?.destroy();
    this.agent = undefined;
  }

  private async check(answer: http.IncomingMessage): Promise<http.IncomingMessage> {
    const code = answer.statusCode ?? 0;
    if (code >= 200 && code < 300) {
      return answer;
    }
    const text = (await readAll(answer, MAX_ERROR_BYTES).catch(() => Buffer.alloc(0))).toString("utf8");
    const status = parseStatus(text, code);
    if (code === 401) {
      const { authorization = "" } = lowerCase(this.credentials?.options.headers as http.OutgoingHttpHeaders | undefined);
      status.message = `the API server at ${this.server.origin} doesn't accept the credentials${expiryOf(String(authorization))}`;
    }
    throw new ApiError(code, status, answer.headers);
  }

  private async sendAuthorized(request: ApiRequest): Promise<http.IncomingMessage> {
    const options = await this.options();
    const url = new URL(this.server.pathname.replace(/\/$/, "") + request.path, this.server);
    for (const [key, value] of Object.entries(request.query ?? {})) {
      if (value !== undefined) {
        url.searchParams.set(key, String(value));
      }
    }
    request.signal?.throwIfAborted();
    if (this.isClosed) {
      throw new ClientClosed();
    }
    const began = Date.now();
    const limit = this.hasAnswered ? undefined : Math.min(UNREACHED_MILLISECONDS, this.retryMilliseconds || UNREACHED_MILLISECONDS);
    try {
      const answer = await exchange(url, { ...options, method: request.method, headers: headersOf(options, request) }, request, limit);
      this.hasAnswered = true;
      return answer;
    } catch (error) {
      throw error instanceof ConnectionLost && !this.hasAnswered ? new Unreached(this.server.origin, began, error.cause) : error;
    }
  }

  private async options(): Promise<https.RequestOptions> {
    if (this.credentials && this.credentials.until > Date.now()) {
      return this.credentials.options;
    }
    const options: https.RequestOptions = {};
    try {
      await this.config.applyToHTTPSOptions(options);
    } catch (error) {
      throw new NoCredentials(`the kubeconfig's credentials can't be used: ${String(error)}`, { cause: error });
    }
    this.agent = this.keepingAgent(options);
    options.agent = this.agent;
    this.credentials = { until: Date.now() + CREDENTIALS_MILLISECONDS, options };
    return options;
  }

  // The agents of the Kubernetes client make a new connection for each request. One for a proxy is taken as it is.
  private keepingAgent(options: https.RequestOptions): http.Agent {
    if (this.config.getCurrentCluster()?.proxyUrl) {
      return options.agent as http.Agent;
    }
    if (this.agent) {
      return this.agent;
    }
    const keep = { keepAlive: true, maxFreeSockets: 16 };
    return this.server.protocol === "http:" ? new http.Agent(keep) : new https.Agent(keep);
  }
}

/** Reads a body whole. With a limit, more is cut off. */
export async function readAll(body: AsyncIterable<Uint8Array>, limit = Number.POSITIVE_INFINITY): Promise<Buffer> {
  const parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const part of partsOf(body)) {
    parts.push(part);
    bytes += part.length;
    if (bytes >= limit) {
      break;
    }
  }
  return Buffer.concat(parts);
}

/** The parts of a body. Throws ConnectionLost when it breaks; what its reader throws isn't an error of the connection. */
export async function* partsOf<T extends Uint8Array>(body: AsyncIterable<T>): AsyncGenerator<T> {
  try {
    yield* body;
  } catch (error) {
    throw lost(error);
  }
}

/** The error for a connection that broke; what isn't one comes back as it is. */
export function lost(error: unknown): unknown {
  const code = (error as NodeJS.ErrnoException | undefined)?.code;
  if (typeof code !== "string" || code === "ABORT_ERR") {
    return error;
  }
  const message = (error as Error).message || code;
  if (UNTRUSTED.test(code)) {
    return new NothingSent(`the API server's certificate isn't trusted: ${message}`, { cause: error });
  }
  return new ConnectionLost(`the connection to the API server was lost: ${message}`, { cause: error });
}

// With a limit, the answer begins in so many milliseconds, or the connection counts as lost.
function exchange(url: URL, options: https.RequestOptions, request: ApiRequest, limit?: number): Promise<http.IncomingMessage> {
  const { signal, body } = request;
  return new Promise((resolve, reject) => {
    const send = url.protocol === "http:" ? http.request : https.request;
    const sent = send(url, { ...options, ...(signal ? { signal } : {}) });
    const breakOff = (milliseconds: number): unknown =>
      sent.destroy(Object.assign(new Error(`no byte for ${milliseconds / 1_000} s`), { code: "ETIMEDOUT" }));
    const timer = limit === undefined ? undefined : setTimeout(breakOff, limit, limit);
    sent.on("close", () => clearTimeout(timer));
    sent.on("response", (answer) => {
      clearTimeout(timer);
      resolve(answer);
    });
    sent.on("error", (error) => reject(signal?.aborted ? signal.reason : lost(error)));
    sent.on("socket", (socket) => socket.setKeepAlive(true, 15_000));
    const idle = request.idleMilliseconds ?? IDLE_MILLISECONDS;
    sent.setTimeout(idle, () => breakOff(idle));
    if (isStream(body)) {
      pump(body, sent).catch((error: unknown) => {
        sent.destroy();
        reject(error);
      });
    } else {
      sent.end(body);
    }
  });
}

// Writes a body no faster than the server takes it. An answer that comes before its end is the request's answer.
async function pump(body: AsyncIterable<Uint8Array>, sent: http.ClientRequest): Promise<void> {
  for await (const part of body) {
    if (sent.destroyed || sent.writableEnded) {
      return;
    }
    if (!sent.write(part)) {
      await drained(sent);
    }
  }
  sent.end();
}

function drained(sent: http.ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      sent.off("drain", done).off("close", done);
      resolve();
    };
    sent.once("drain", done).once("close", done);
  });
}

function headersOf(options: https.RequestOptions, request: ApiRequest): http.OutgoingHttpHeaders {
  const headers: http.OutgoingHttpHeaders = { ...(options.headers as http.OutgoingHttpHeaders), accept: "application/json", ...request.headers };
  const { body } = request;
  if (typeof body === "string" || body instanceof Uint8Array) {
    headers["content-length"] = Buffer.byteLength(body);
  }
  return headers;
}

function lowerCase(headers: http.OutgoingHttpHeaders = {}): http.OutgoingHttpHeaders {
  return Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toLowerCase(), value]));
}

/** What a JSON Web Token says of its expiry, to be put behind a sentence; "" for what isn't one. */
export function expiryOf(authorization: string): string {
  try {
    const claims = JSON.parse(Buffer.from(authorization.split(".")[1] ?? "", "base64url").toString("utf8")) as { exp?: unknown };
    const at = new Date(Number(claims.exp) * 1_000);
    const verb = at.getTime() <= Date.now() ? "expired" : "expires";
    return `, whose token ${verb} at ${at.toISOString().replace(/\.\d+Z$/, "Z")}`;
  } catch {
    return "";
  }
}

function isStream(body: ApiRequest["body"]): body is AsyncIterable<Uint8Array> {
  return typeof body === "object" && !(body instanceof Uint8Array);
}

/** The object that an answer is. Throws ToolcallError: what a proxy says in the API server's place may be anything. */
export function parsed<T>(text: string): T {
  try {
    const object: unknown = JSON.parse(text);
    if (typeof object === "object" && object !== null && !Array.isArray(object)) {
      return object as T;
    }
  } catch {
    // Not JSON.
  }
  throw foreign(text);
}

function foreign(text: string): ToolcallError {
  return new ToolcallError(`the answer isn't the API server's: ${text.trim().slice(0, 500)}`, { reason: "UnexpectedAnswer" });
}

function creating(path: string, body: object): ApiRequest {
  return { method: "POST", path, headers: { "content-type": "application/json" }, body: jsonOf(body) };
}

function jsonOf(body: object): string {
  try {
    return JSON.stringify(body);
  } catch (error) {
    throw invalid(`an argument can't be sent as JSON: ${(error as Error).message}`);
  }
}

function parseStatus(text: string, code: number): ApiStatus {
  try {
    const status: unknown = JSON.parse(text);
    if (typeof status === "object" && status !== null) {
      return status as ApiStatus;
    }
  } catch {
    // Not JSON: a proxy's page, or the text of an authorizer.
  }
  return { message: `the API server answered with status ${code}: ${text.trim().slice(0, 500)}` };
}
