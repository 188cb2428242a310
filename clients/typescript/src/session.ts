// A session: a pod and a workspace that many calls share.

import type { Calls } from "./calls.js";
import { Commands } from "./commands.js";
import { setTrue } from "./create.js";
import { classOfStart, invalid, NotStarted, SessionEnded, type ToolcallError } from "./errors.js";
import { Files } from "./files.js";
import type { SessionPhase, ToolSession } from "./objects.js";
import type { Place } from "./spec.js";
import { mustBe, watchOne } from "./watch.js";

/** Options of a new session. */
export interface SessionOptions {
  /** Directory in which commands start and from which paths count. A relative one counts from the image's working directory. */
  cwd?: string;
  /** Variables of all calls, over those of the environment. */
  env?: Record<string, string>;
  /** Puts the files on a volume of this size, which outlives the pod: `{ size: "10Gi" }`. The pod's own disk when unset. */
  workspace?: { size: string; storageClassName?: string; retain?: "Delete" | "Keep" };
  /** Seconds without a call after which the session ends, or is suspended when it has a workspace. 0: never. Default 900. */
  idleTimeout?: number;
  /** Seconds after which the session ends whatever runs. Default 28800. */
  maxLifetime?: number;
  /** How many calls run at the same time, 1 to 16. Default 1: in the order of their creation. */
  maxConcurrentCalls?: number;
  /** Makes the session idempotent, as the key of a call does: asking again gives the same session. */
  key?: string;
  /** Labels of the ToolSession, so that kubectl finds it. Not among the arguments of a key. */
  labels?: Record<string, string>;
  /** Annotations of the ToolSession. Not among the arguments of a key. */
  annotations?: Record<string, string>;
  /**
   * Seconds, 300 by default. A session that isn't ready by then is NotStarted with the reason why, and is ended unless it has a
   * key.
   */
  wait?: number;
  /** Gives up waiting for the session, and ends it unless it has a key. Throws Cancelled. */
  signal?: AbortSignal;
}

// Longer than a pod may take to start where the environment doesn't say otherwise, which is 120 s.
const WAIT_SECONDS = 300;
// The API's default.
const MAX_LIFETIME_SECONDS = 28_800;
const LONGEST_TIMER = 2 ** 31 - 1;

/** A session of this namespace. Its calls share a pod, and files; variables, directories and processes don't carry over. */
export class Session {
  /** Name of the ToolSession. */
  readonly name: string;
  /** UID of the ToolSession: a later session of the same name is another one. */
  readonly uid: string;
  /** When the session was created. */
  readonly created: Date;
  /** When the session ends at the latest, whatever runs. */
  readonly expires: Date;
  /** Runs commands in the session. */
  readonly commands: Commands;
  /** Reads and writes files of the session, without a process. */
  readonly files: Files;
  /**
   * Directory in which commands start that have no other one, and from which paths count. It is this object's own: setting it
   * changes nothing in the cluster. The session's working directory when undefined.
   */
  cwd: string | undefined;
  readonly #calls: Calls;
  #hasEnded = false;

  /** Callers get sessions from `Toolcall.session` and `Toolcall.connect`. */
  constructor(calls: Calls, object: ToolSession, cwd: string | undefined) {
    this.#calls = calls;
    this.name = object.metadata.name;
    this.uid = object.metadata.uid ?? "";
    this.created = new Date(object.metadata.creationTimestamp ?? 0);
    this.expires = new Date(this.created.getTime() + (object.spec.maxLifetimeSeconds ?? MAX_LIFETIME_SECONDS) * 1_000);
    this.cwd = cwd;
    this.commands = new Commands(this, calls);
    this.files = new Files(this, calls);
  }

  /** What the session is now. Throws NotFound when it is gone. */
  async phase(options: { signal?: AbortSignal } = {}): Promise<SessionPhase> {
    const object = await this.#calls.get<ToolSession>("toolsessions", this.name, options.signal);
    mustBe(this, "toolsessions", object);
    return object.status?.phase ?? "Pending";
  }

  /**
   * Waits until the session would start a call at once; with `orSuspended` also ends when a call would have it resumed first. Throws
   * NotFound when its environment isn't there, NotStarted when it isn't ready after `wait` seconds (300), and another error when the
   * session ends before.
   */
  async waitUntilReady(options: { orSuspended?: boolean; wait?: number; signal?: AbortSignal } = {}): Promise<void> {
    const { signal } = options;
    const wait = checkedWait(options.wait);
    const phases: string[] = ["Ready", "Ended", ...(options.orSuspended ? ["Suspended"] : [])];
    let last: ToolSession | undefined;
    const reached = (object: ToolSession): boolean => phases.includes((last = object).status?.phase ?? "");
    const late = AbortSignal.timeout(Math.min(wait * 1_000, LONGEST_TIMER));
    const given = signal ? AbortSignal.any([signal, late]) : late;
    const object = await watchOne<ToolSession>(this.#calls.api, "toolsessions", this, reached, given).catch((error: unknown) => {
      throw error === late.reason ? notReady(this.name, last, wait) : error;
    });
    if (object.status?.phase === "Ended") {
      this.#hasEnded = true;
      throw endedError(object);
    }
  }

  /** Ends the session for good: running calls are cancelled, and its files go. It may be called again. */
  async end(options: { signal?: AbortSignal } = {}): Promise<void> {
    if (!this.#hasEnded) {
      await setTrue(this.#calls.api, { plural: "toolsessions", name: this.name, uid: this.uid }, "end", options.signal);
      this.#hasEnded = true;
    }
  }

  /** Same as `end`, for `await using`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.end();
  }

  /** Where calls of the session run. Throws SessionEnded once this object has ended the session. */
  place(): Place {
    if (this.#hasEnded) {
      throw new SessionEnded(`the session ${this.name} has ended: start another one`, { retrySafe: true });
    }
    return { session: { name: this.name, uid: this.uid }, cwd: this.cwd };
  }
}

/** The error for a session that has ended. */
export function endedError({ metadata, status }: ToolSession): ToolcallError {
  const reason = status?.reason ?? "SessionEnded";
  if (reason === "StartFailed") {
    // The message begins with the reason that a call would end with.
    const [, cause = reason, rest = status?.message ?? ""] = /^([A-Za-z]+): ([^]*)$/.exec(status?.message ?? "") ?? [];
    return new (classOfStart(cause))(rest, { reason: cause, retrySafe: true });
  }
  return new SessionEnded(`the session ${metadata.name} has ended: ${status?.message || reason}`, { reason, retrySafe: true });
}

// The error for a session that isn't ready in time: why, as its status says.
function notReady(name: string, session: ToolSession | undefined, seconds: number): NotStarted {
  const why = session?.status?.message || "the operator hasn't said anything about it: see that it runs";
  const reason = session?.status?.reason || "NotReady";
  return new NotStarted(`the session ${name} isn't ready after ${seconds} s: ${why}`, { reason, retrySafe: true });
}

/** How long to wait for a session, in seconds. Throws InvalidArgument. */
export function checkedWait(wait = WAIT_SECONDS): number {
  if (!(wait > 0 && Number.isFinite(wait))) {
    throw invalid(`wait is ${String(wait)}: give a number of seconds above 0`);
  }
  return wait;
}
