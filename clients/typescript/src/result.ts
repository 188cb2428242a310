// What came of a call, and the error that its end stands for.

import type { Api } from "./api.js";
import { classOfEnd, NonZeroExit, type ToolcallError } from "./errors.js";
import type { Artifact, CallPhase, DeniedHost, ToolCall } from "./objects.js";
import { readWhole, type CallRef, type Range, type Stream } from "./output.js";

/** The result of a call that has ended. */
export class Result {
  /** Name of the ToolCall. */
  readonly call: string;
  /** `Succeeded`, `Failed`, `Denied` or `Cancelled`. */
  readonly phase: CallPhase;
  /** Why, in CamelCase: `Completed`, `NonZeroExit`, `TimedOut`. */
  readonly reason: string;
  /** A sentence for a person about the reason. */
  readonly message: string;
  /** Exit code of the process; -1 when a signal or the time limit ended it; null when nothing ran or nobody knows. */
  readonly exitCode: number | null;
  /** What the process wrote to its standard output: all of it, or its first and last part when `truncated`. */
  readonly stdout: string;
  /** What the process wrote to its standard error, as `stdout`. */
  readonly stderr: string;
  /** One text for a model: both streams, the exit code when it isn't 0, and how long it took. */
  readonly text: string;
  /** True when it is certain that the command never started, so that running it again repeats nothing. */
  readonly retrySafe: boolean;
  /** Whether `stdout` or `stderr` isn't all that the process wrote. `output` reads the whole. */
  readonly truncated: boolean;
  /** Wall clock of the process in milliseconds; undefined when nothing ran or nobody knows. */
  readonly durationMilliseconds: number | undefined;
  /** The files that the call kept. */
  readonly artifacts: readonly Artifact[];
  /** Hosts that the call looked up or tried to connect to, and may not reach: the first 20. */
  readonly deniedHosts: readonly DeniedHost[];

  // Hidden from inspection and from JSON: what logs an error must not log credentials.
  readonly #api: Api;
  readonly #object: ToolCall;

  constructor(api: Api, object: ToolCall) {
    this.#api = api;
    this.#object = object;
    const status = object.status ?? {};
    this.call = object.metadata.name;
    this.phase = status.phase ?? "Failed";
    this.reason = status.reason ?? "";
    this.message = status.message ?? "";
    this.exitCode = status.exitCode ?? null;
    this.stdout = status.stdout ?? "";
    this.stderr = status.stderr ?? "";
    this.text = status.output ?? this.message;
    this.retrySafe = status.retrySafe ?? this.phase === "Denied";
    this.truncated = status.streams !== undefined && (status.streams.stdout.truncated || status.streams.stderr.truncated);
    this.durationMilliseconds = status.durationMilliseconds;
    this.artifacts = status.artifacts ?? [];
    this.deniedHosts = status.network?.denied ?? [];
  }

  /** The finished ToolCall as the API has it, with every field of its status. */
  get object(): ToolCall {
    return this.#object;
  }

  /**
   * Reads a stream from where it is kept, byte for byte: the whole, or a range of it. Throws OutputNotKept when a part of what
   * is asked for wasn't kept, and NotFound when the call is gone.
   */
  output(stream: Stream = "stdout", range: Range & { signal?: AbortSignal } = {}): Promise<Buffer> {
    return readWhole(this.#api, this.ref(), { stream }, range, range.signal);
  }

  /** Reads a file that the call kept, by its path in `artifacts`. */
  artifact(path: string, options: { signal?: AbortSignal } = {}): Promise<Buffer> {
    return readWhole(this.#api, this.ref(), { artifact: path }, {}, options.signal);
  }

  private ref(): CallRef {
    return { name: this.call, uid: this.#object.metadata.uid };
  }
}

/**
 * The error that the end of a call stands for; undefined when it is a result. A process that ended by itself is a result,
 * whatever its exit code, unless `check` is set.
 */
export function errorOfEnd(result: Result, check: boolean): ToolcallError | undefined {
  const Class = classOfEnd(result.phase, result.reason);
  if (Class === undefined || (Class === NonZeroExit && !check)) {
    return undefined;
  }
  const { reason, retrySafe, call } = result;
  return new Class(messageOf(result), { reason, retrySafe, call, result });
}

function messageOf(result: Result): string {
  if (result.reason === "NonZeroExit") {
    const last = result.stderr.trim().split("\n").at(-1);
    return `the command exited with code ${result.exitCode}` + (last ? `: ${last}` : "");
  }
  return result.message || `the call ended as ${result.phase}: ${result.reason}`;
}
