// Commands of a session.

import type { Calls, RunOptions } from "./calls.js";
import type { CommandHandle } from "./handle.js";
import type { Result } from "./result.js";
import type { Session } from "./session.js";
import { commandSpec, type Command } from "./spec.js";

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
  run(command: Command, options: RunOptions & { background: true }): Promise<CommandHandle>;
  run(command: Command, options?: RunOptions & { background?: false }): Promise<Result>;
  run(command: Command, options?: RunOptions): Promise<Result | CommandHandle>;
  async run(command: Command, options: RunOptions = {}): Promise<Result | CommandHandle> {
    const spec = commandSpec(command, options, this.#session.place());
    return options.background ? this.#calls.start({ ...spec, background: true }, options) : this.#calls.run(spec, options);
  }
}
