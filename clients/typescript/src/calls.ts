// Runs calls: creates one, waits for its end, and cancels it when its caller gives up.

import type { Api } from "./api.js";
import { BackgroundCall } from "./background.js";
import { create, setTrue, type Meant } from "./create.js";
import { ApiError, Cancelled, invalid, publicError, ToolcallError, Unavailable, withDetails } from "./errors.js";
import { Live, type OutputCallbacks } from "./live.js";
import { isFinished, type AnyObject, type Plural, type ToolCall, type ToolCallSpec } from "./objects.js";
import { errorOfEnd, Result } from "./result.js";
import { nameFor, sameSpec, type CallOptions } from "./spec.js";
import { CLIENT_LABEL, Tracker } from "./tracker.js";
import { watchOne } from "./watch.js";

/** Options of a call that is waited for. */
export interface RunOptions extends CallOptions, OutputCallbacks {
  /** Throw NonZeroExit when the process ends with another exit code than 0, or by a signal. Default false. */
  check?: boolean;
  /**
   * Cancels the call when it is aborted: the process is stopped, and `run` throws Cancelled. A background call is cancelled also
   * later, while this program runs.
   */
  signal?: AbortSignal;
}

/** A call that somebody wants, and how far it has come. */
interface Attempt {
  name: string;
  spec: ToolCallSpec;
  options: RunOptions;
  signal: AbortSignal | undefined;
  call?: ToolCall;
  /** The call when the watch has seen its end. */
  seen?: ToolCall;
  live?: Live | undefined;
}

/** Runs the calls of one client. */
export class Calls {
  readonly tracker: Tracker;

  constructor(readonly api: Api) {
    this.tracker = new Tracker(api);
  }

  /** Creates a call, waits for its end and returns its result. Throws the error that its end stands for. */
  async run(spec: ToolCallSpec, options: RunOptions): Promise<Result> {
    const { signal, check = false } = options;
    const name = nameFor(options.key, "call");
    refuseBefore(options);
    const waiting = this.tracker.finished(name, signal);
    const attempt: Attempt = { name, spec, options, signal };
    waiting.call.then((call) => (attempt.seen = call)).catch(() => {});
    try {
      const call = await this.create(attempt);
      signal?.throwIfAborted();
      waiting.created(call);
      const live = (attempt.live = liveOf(this.api, call, options));
      const ended = this.isTracked(call) ? waiting.call : this.ended(call, signal);
      const object = await (live ? Promise.race([ended, live.failed]) : ended);
      return await resultOf(object, live, check, signal);
    } catch (error) {
      throw await this.givenUp(error, attempt);
    } finally {
      waiting.abandon();
      attempt.live?.stop();
    }
  }

  /** Creates a call and returns a handle on it. */
  async start(spec: ToolCallSpec, options: RunOptions): Promise<BackgroundCall> {
    refuseBefore(options);
    const name = nameFor(options.key, "call");
    const attempt: Attempt = { name, spec, options, signal: options.signal };
    try {
      const call = await this.create(attempt);
      options.signal?.throwIfAborted();
      const live = liveOf(this.api, call, options);
      const cancel = (): Promise<void> => setTrue(this.api, meant(call), "cancel").catch(() => {});
      live?.failed.catch(cancel);
      options.signal?.addEventListener("abort", cancel, { once: true });
      const inputOffset = options.key === undefined ? 0 : undefined;
      return new BackgroundCall(this, call, { live, inputOffset, check: options.check ?? false });
    } catch (error) {
      throw await this.givenUp(error, attempt);
    }
  }

  /** An object as it is now. */
  async get<T extends AnyObject>(plural: Plural, name: string, signal?: AbortSignal): Promise<T> {
    try {
      return await this.api.repeated(() => this.api.json<T>({ method: "GET", path: this.api.objects(plural, name), signal }), signal);
    } catch (error) {
      signal?.throwIfAborted();
      throw publicError(error, plural === "toolcalls" ? { call: name } : {});
    }
  }

  /** Waits for the end of a call by a watch of its own. */
  ended(call: ToolCall, signal?: AbortSignal): Promise<ToolCall> {
    const { name, uid } = call.metadata;
    return isFinished(call) ? Promise.resolve(call) : watchOne(this.api, "toolcalls", { name, uid }, isFinished, signal);
  }

  private async create(attempt: Attempt): Promise<ToolCall> {
    const { name, spec, signal } = attempt;
    const { annotations } = attempt.options;
    const labels = { ...attempt.options.labels, [CLIENT_LABEL]: this.tracker.id };
    const object = { plural: "toolcalls", name, spec, labels, annotations } as const;
    attempt.call = await create<ToolCall>(this.api, object, { signal, seen: () => attempt.seen });
    return attempt.call;
  }

  private isTracked(call: ToolCall): boolean {
    return call.metadata.labels?.[CLIENT_LABEL] === this.tracker.id;
  }

  // The error for a caller. When the caller gave up, or a callback failed, the call is cancelled first.
  private async givenUp(error: unknown, attempt: Attempt): Promise<unknown> {
    const { name, live, signal } = attempt;
    const hasCallbackFailed = live !== undefined && (await isRejection(live.failed, error));
    // The reason of an abort may be any error, also one of this library.
    const isAnswer = error instanceof ToolcallError && !(error instanceof Unavailable) && error !== signal?.reason;
    if (!hasCallbackFailed && (isAnswer || !signal?.aborted)) {
      return error;
    }
    const isAsked = await this.cancel(attempt).then(
      () => true,
      () => false,
    );
    if (hasCallbackFailed) {
      return error;
    }
    const details = { call: name, cause: signal?.reason };
    return isAsked
      ? new Cancelled(`the call ${name} was given up and asked to stop`, details)
      : new Cancelled(`the call ${name} was given up, but couldn't be asked to stop: it may run on`, { ...details, reason: "CancelFailed" });
  }

  // Cancels the call. Where no answer said that the call of this name is ours, it is looked at first: a key may be another's.
  private async cancel({ name, spec, call }: Attempt): Promise<void> {
    if (!call) {
      const request = { method: "GET", path: this.api.objects("toolcalls", name) } as const;
      const there = await this.api.repeated(() => this.api.json<ToolCall>(request)).catch((error: unknown) => {
        if (error instanceof ApiError && error.code === 404) {
          return undefined;
        }
        throw error;
      });
      if (!there || !sameSpec(spec, there.spec)) {
        return;
      }
    }
    await setTrue(this.api, call ? meant(call) : { plural: "toolcalls", name }, "cancel");
  }
}

/**
 * The result of a call that has ended, once callbacks have got the rest of its output. Throws the error that its end stands for,
 * or else the one that kept callbacks from getting everything: with the result. Throws the signal's reason when it is aborted before.
 */
export async function resultOf(object: ToolCall, live: Live | undefined, check: boolean, signal?: AbortSignal): Promise<Result> {
  const result = new Result(object);
  const unread = await (live && unlessAborted(live.finish(object), signal));
  const error = errorOfEnd(result, check) ?? (unread && withDetails(unread, { result }));
  if (error) {
    throw error;
  }
  return result;
}

async function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  let abort = (): void => {};
  const aborted = new Promise<never>((_, reject) => {
    abort = () => reject(signal?.reason);
    signal?.addEventListener("abort", abort, { once: true });
    if (signal?.aborted) {
      abort();
    }
  });
  return Promise.race([work, aborted]).finally(() => signal?.removeEventListener("abort", abort));
}

function liveOf(api: Api, call: ToolCall, callbacks: OutputCallbacks): Live | undefined {
  if (!callbacks.onStdout && !callbacks.onStderr) {
    return undefined;
  }
  return new Live(api, { name: call.metadata.name, uid: call.metadata.uid }, callbacks);
}

function meant(call: ToolCall): Meant {
  return { plural: "toolcalls", name: call.metadata.name, uid: call.metadata.uid };
}

// Throws for what would only be noticed once the call is there.
function refuseBefore({ signal, onStdout, onStderr }: RunOptions): void {
  for (const callback of [onStdout, onStderr]) {
    // Null is none too, as in `callback ?? null`.
    if (callback != null && typeof callback !== "function") {
      throw invalid(`a callback for output is of type ${typeof callback}: give a function`);
    }
  }
  if (signal?.aborted) {
    throw new Cancelled("the call wasn't created: its signal is aborted", { retrySafe: true, cause: signal.reason });
  }
}

function isRejection(promise: Promise<never>, error: unknown): Promise<boolean> {
  const other = Symbol("pending");
  return Promise.race([promise, Promise.resolve(other)]).then(
    () => false,
    (reason: unknown) => reason === error,
  );
}
