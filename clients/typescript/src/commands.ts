// Commands of a session.

import { BackgroundCall } from "./background.js";
import type { Calls, RunOptions } from "./calls.js";
import { invalid } from "./errors.js";
import type { ToolCall } from "./objects.js";
import { readArtifact, readOutput, type OutputOptions, type SomeCall } from "./output.js";
import type { Result } from "./result.js";
import type { Session } from "./session.js";
import { commandSpec, type Command } from "./spec.js";

/** Options of a call of a session. */
export interface SessionRunOptions extends RunOptions {
  /** Return a handle as soon as the call exists, instead of its result: for a server or a watcher. Default false. */
  background?: boolean;
}

/** Runs commands in a session. */
export class Commands {
  readonly #session: Session;
  readonly #calls: Calls;

  /** Callers get it as `session.commands`. */
  constructor(session: Session, calls: Calls) {
    this.#session = session;
    this.#calls = calls;
  }

  /** Runs a command and returns its result, or with `background: true` a handle on it. */
  run(command: Command, options: SessionRunOptions & { background: true }): Promise<BackgroundCall>;
  run(command: Command, options?: SessionRunOptions & { background?: false }): Promise<Result>;
  run(command: Command, options?: SessionRunOptions): Promise<Result | BackgroundCall>;
  async run(command: Command, options: SessionRunOptions = {}): Promise<Result | BackgroundCall> {
    const spec = commandSpec(command, options, this.#session.place());
    return options.background ? this.#calls.start({ ...spec, background: true }, options) : this.#calls.run(spec, options);
  }

  /**
   * Reads what a call wrote from where it is kept, byte for byte: all of a stream, or a range of it. `call` is a result, a
   * background call or a call's name. Throws OutputNotKept when a part of what is asked for wasn't kept, and NotFound when the
   * call is gone.
   */
  output(call: SomeCall, options: OutputOptions = {}): Promise<Buffer> {
    return readOutput(this.#calls.api, call, options);
  }

  /** Reads a file that a call kept, by its path in `artifacts` of the result. */
  artifact(call: SomeCall, path: string, options: { signal?: AbortSignal } = {}): Promise<Buffer> {
    return readArtifact(this.#calls.api, call, path, options.signal);
  }

  /** A background call that is there, by its name, for example after the agent was restarted. It may have ended. */
  async connect(call: string, options: { signal?: AbortSignal } = {}): Promise<BackgroundCall> {
    const found = await this.#calls.get<ToolCall>("toolcalls", call, options.signal);
    if (!found.spec.background) {
      throw invalid(`the call ${call} isn't a background call: run with its key waits for it`);
    }
    return new BackgroundCall(this.#calls, found);
  }
}
