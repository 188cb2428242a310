// What came of a call, and the error that its end stands for.

import { classOfEnd, NonZeroExit, type ToolcallError } from "./errors.js";
import type { Artifact, CallPhase, DeniedHost, StreamStatus, ToolCall } from "./objects.js";
import type { Stream } from "./output.js";

/** The result of a call that has ended. */
export class Result {
  /** Name of the ToolCall. */
  readonly call: string;
  /** UID of the ToolCall. */
  readonly uid: string | undefined;
  /** `Succeeded`, `Failed`, `Denied` or `Cancelled`. */
  readonly phase: CallPhase;
  /** Why, in CamelCase: `Completed`, `NonZeroExit`, `TimedOut`. */
  readonly reason: string;
  /** A sentence for a person about the reason. */
  readonly message: string;
  /** Exit code of a process that ended by itself; null when something else ended it, nothing ran or nobody knows. */
  readonly exitCode: number | null;
  /** What the process wrote to its standard output: all of it, or its first and last part when `truncated`. */
  readonly stdout: string;
  /** What the process wrote to its standard error, as `stdout`. */
  readonly stderr: string;
  /** One text for a model: what was written, how the command ended unless with 0, what was refused, and how long it took. */
  readonly text: string;
  /** True when it is certain that the command never started, so that running it again repeats nothing. */
  readonly retrySafe: boolean;
  /** Whether `stdout` or `stderr` isn't all that the process wrote. `commands.output` reads the whole. */
  readonly truncated: boolean;
  /** What is known of each stream, for example how many bytes the process wrote. */
  readonly streams: Readonly<Partial<Record<Stream, StreamStatus>>>;
  /** Seconds that the process ran; undefined when nothing ran or nobody knows. */
  readonly duration: number | undefined;
  /** The files that the call kept. */
  readonly artifacts: readonly Artifact[];
  /** Hosts that the call looked up or tried to connect to, and may not reach: the first 20. */
  readonly deniedHosts: readonly DeniedHost[];

  // Hidden from inspection and from JSON: what logs an error needn't log a whole object.
  readonly #object: ToolCall;

  constructor(object: ToolCall) {
    this.#object = object;
    const status = object.status ?? {};
    this.call = object.metadata.name;
    this.uid = object.metadata.uid;
    this.phase = status.phase ?? "Failed";
    this.reason = status.reason ?? "";
    this.message = status.message ?? "";
    this.exitCode = status.exitCode ?? null;
    this.stdout = status.stdout ?? "";
    this.stderr = status.stderr ?? "";
    this.text = status.output ?? this.message;
    this.retrySafe = status.retrySafe ?? this.phase === "Denied";
    this.truncated = status.streams !== undefined && (status.streams.stdout.truncated || status.streams.stderr.truncated);
    this.streams = status.streams ?? {};
    this.duration = status.durationMilliseconds === undefined ? undefined : status.durationMilliseconds / 1_000;
    this.artifacts = status.artifacts ?? [];
    this.deniedHosts = status.network?.denied ?? [];
  }

  /** The finished ToolCall as the API has it, with every field of its status. */
  get object(): ToolCall {
    return this.#object;
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
