// A sandbox session, for a SandboxAgent.

import type { Editor } from "@openai/agents";
import { Manifest, type ExecCommandArgs, type SandboxSession, type SandboxSessionState, type ViewImageArgs } from "@openai/agents/sandbox";
import { InvalidArgument, type Session } from "@toolcall/client";
import { asAnswer, ToolcallEditor, type ToolcallShellOptions } from "./tools.js";

const IMAGE_TYPES: Record<string, string> = { gif: "image/gif", jpeg: "image/jpeg", jpg: "image/jpeg", png: "image/png", webp: "image/webp" };
const MAX_IMAGE_BYTES = 8 * 1024 * 1024;

/**
 * A session as the sandbox of a SandboxAgent, for `run(agent, input, { sandbox: { session } })`. The caller starts and ends the session.
 *
 * A command is waited for to its end, which its time limit sees to: there is no terminal, and nothing to be read from later. The
 * workspace is the session's directory as it is: a manifest with entries is refused by the SDK.
 */
export class ToolcallSandbox implements SandboxSession {
  readonly state: SandboxSessionState;

  private constructor(
    private readonly session: Session,
    root: string,
    private readonly options: ToolcallShellOptions,
  ) {
    this.state = { manifest: new Manifest({ root }) };
  }

  /** The sandbox of a session. */
  static async of(session: Session, options: ToolcallShellOptions = {}): Promise<ToolcallSandbox> {
    return new ToolcallSandbox(session, (await session.files.stat(".")).path, options);
  }

  /** Applies patches to files of the session. */
  createEditor(runAs?: string): Editor {
    refuseUser(runAs);
    return new ToolcallEditor(this.session);
  }

  /** Runs a command line by the environment's shell, and returns what it wrote, how it ended, and what would pass if it may not run. */
  async execCommand({ cmd, workdir, tty, runAs }: ExecCommandArgs): Promise<string> {
    refuseUser(runAs);
    if (tty) {
      return "there is no terminal in this sandbox: run the command without tty";
    }
    const { timeout } = this.options;
    const options = { ...(timeout === undefined ? {} : { timeout }), ...(workdir === undefined ? {} : { cwd: workdir }) };
    try {
      return (await this.session.commands.run(cmd, options)).text;
    } catch (error) {
      const { message, result } = asAnswer(error);
      return result?.text || message;
    }
  }

  /** Reads an image of at most 8 MiB. */
  async viewImage({ path, runAs }: ViewImageArgs): ReturnType<NonNullable<SandboxSession["viewImage"]>> {
    refuseUser(runAs);
    const mediaType = IMAGE_TYPES[path.split(".").at(-1)?.toLowerCase() ?? ""];
    if (mediaType === undefined) {
      throw new InvalidArgument(`${path} isn't an image: the name ends with one of ${Object.keys(IMAGE_TYPES).join(", ")}`);
    }
    const { size = 0 } = await this.session.files.stat(path);
    if (size > MAX_IMAGE_BYTES) {
      throw new InvalidArgument(`${path} has ${size} bytes: an image has at most ${MAX_IMAGE_BYTES}`);
    }
    const data = Uint8Array.from(await this.session.files.read(path, { format: "bytes" }));
    return { type: "image", image: { data, mediaType } };
  }

  /** Commands get no terminal. */
  supportsPty(): boolean {
    return false;
  }
}

function refuseUser(runAs: string | undefined): void {
  if (runAs !== undefined) {
    throw new InvalidArgument(`commands run as the environment's user: leave runAs (${runAs}) out`);
  }
}
