// A shell and an editor: local tools of the OpenAI Agents SDK.

import { createHash } from "node:crypto";
import { posix } from "node:path";
import { applyDiff, type ApplyPatchOperation, type ApplyPatchResult, type Editor, type Shell, type ShellAction, type ShellOutputResult, type ShellResult } from "@openai/agents";
import { InvalidArgument, SessionEnded, TimedOut, ToolcallError, Unavailable, type Result, type Session } from "@toolcall/client";

/** Options of the shell. */
export interface ToolcallShellOptions {
  /** Seconds after which a command is stopped whose action names no time. The policy's default when unset. */
  timeout?: number;
}

type Operation<T extends ApplyPatchOperation["type"]> = Extract<ApplyPatchOperation, { type: T }>;

// A diff is applied in memory, and its files are texts.
const MAX_FILE_BYTES = 8 * 1024 * 1024;

/**
 * Runs an agent's shell actions in one session, for `shellTool({ shell })`. The caller starts and ends the session.
 *
 * The commands of an action run one after the other; those behind one that was stopped by its time limit don't run. What the policy
 * refuses comes back on standard error, with a message that says what would pass, and exit code null.
 */
export class ToolcallShell implements Shell {
  constructor(
    private readonly session: Session,
    private readonly options: ToolcallShellOptions = {},
  ) {}

  /** Runs the commands of an action. */
  async run(action: ShellAction): Promise<ShellResult> {
    const output: ShellOutputResult[] = [];
    for (const command of action.commands) {
      const done = await this.command(command, action.timeoutMs);
      output.push(done);
      if (done.outcome.type === "timeout") {
        break;
      }
    }
    // The API cuts the output, and wants to be told again where.
    return { output, ...(action.maxOutputLength === undefined ? {} : { maxOutputLength: action.maxOutputLength }) };
  }

  private async command(command: string, timeoutMs: number | undefined): Promise<ShellOutputResult> {
    const timeout = timeoutMs === undefined ? this.options.timeout : Math.max(1, Math.ceil(timeoutMs / 1_000));
    try {
      return outputOf(await this.session.commands.run(command, timeout === undefined ? {} : { timeout }));
    } catch (error) {
      const { message, result } = asAnswer(error);
      const outcome = error instanceof TimedOut ? ({ type: "timeout" } as const) : ({ type: "exit", exitCode: null } as const);
      return { stdout: result?.stdout ?? "", stderr: joined(result?.stderr, message), outcome };
    }
  }
}

/**
 * Applies an agent's patches to files of one session, for `applyPatchTool({ editor })`. Files are read and written by the operator's
 * runner: the image needs no program for that.
 *
 * A file is replaced whole, and only if it is still the one that the patch was applied to. What doesn't fit comes back as `failed`,
 * with a message that says what would.
 */
export class ToolcallEditor implements Editor {
  constructor(private readonly session: Session) {}

  /** Creates a file that isn't there yet. */
  createFile({ path, diff }: Operation<"create_file">): Promise<ApplyPatchResult> {
    return attempt(async () => {
      await this.session.files.write(path, patched(path, "", diff, "create"), { ifSHA256: "" });
      return `created ${path}`;
    });
  }

  /**
   * Changes a file, and keeps its permissions. With `moveTo` it gets that path, where no file may be; if it then can't be written, the
   * message says where it is.
   */
  updateFile({ path, diff, moveTo }: Operation<"update_file">): Promise<ApplyPatchResult> {
    return attempt(async () => {
      const { text, sha256 } = await this.read(path);
      const changed = patched(path, text, diff, "default");
      const to = moveTo ?? path;
      if (to !== path) {
        await this.session.files.mkdir(posix.dirname(to));
        await this.session.files.move(path, to);
      }
      try {
        await this.session.files.write(to, changed, { ifSHA256: sha256 });
      } catch (error) {
        throw to === path ? error : new InvalidArgument(`${path} was moved to ${to}, but not changed: ${asAnswer(error).message}`);
      }
      return `changed ${path}${to === path ? "" : `, which is ${to} now`}`;
    });
  }

  /** Deletes a file. */
  deleteFile({ path }: Operation<"delete_file">): Promise<ApplyPatchResult> {
    return attempt(async () => {
      await this.session.files.delete(path);
      return `deleted ${path}`;
    });
  }

  private async read(path: string): Promise<{ text: string; sha256: string }> {
    const { size = 0 } = await this.session.files.stat(path);
    if (size > MAX_FILE_BYTES) {
      throw new InvalidArgument(`${path} has ${size} bytes, and a patch changes files of at most ${MAX_FILE_BYTES}: use a command`);
    }
    const bytes = await this.session.files.read(path, { format: "bytes" });
    return { text: textOf(path, bytes), sha256: createHash("sha256").update(bytes).digest("hex") };
  }
}

function patched(path: string, text: string, diff: string, mode: "create" | "default"): string {
  try {
    return applyDiff(text, diff, mode);
  } catch (error) {
    throw new InvalidArgument(`the patch doesn't fit ${path}: ${(error as Error).message}`);
  }
}

function textOf(path: string, bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new InvalidArgument(`${path} isn't UTF-8 text: use a command to change it`);
  }
}

// What ended a process that didn't exit by itself is in the message only.
function outputOf({ stdout, stderr, exitCode, message }: Result): ShellOutputResult {
  return { stdout, stderr: exitCode === null ? joined(stderr, message) : stderr, outcome: { type: "exit", exitCode } };
}

function joined(stderr: string | undefined, message: string): string {
  return stderr ? `${stderr}${stderr.endsWith("\n") ? "" : "\n"}${message}` : message;
}

/** An error that an agent can do something about. Others are thrown. */
export function asAnswer(error: unknown): ToolcallError {
  if (!(error instanceof ToolcallError) || error instanceof Unavailable || error instanceof SessionEnded) {
    throw error;
  }
  return error;
}

async function attempt(work: () => Promise<string>): Promise<ApplyPatchResult> {
  try {
    return { status: "completed", output: await work() };
  } catch (error) {
    return { status: "failed", output: asAnswer(error).message };
  }
}
