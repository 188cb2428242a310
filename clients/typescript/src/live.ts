// Hands what a call writes to callbacks while it runs: each byte once, in order, whatever breaks on the way.

import type { Api } from "./api.js";
import { ToolcallError } from "./errors.js";
import type { ToolCall } from "./objects.js";
import { follow, type CallRef, type Stream } from "./output.js";

/** Takes text that a process wrote. A promise that it returns is waited for. Characters are never split. */
export type OutputCallback = (text: string) => unknown;

/** Callbacks for the two streams. */
export interface OutputCallbacks {
  /** Gets what the process writes to its standard output, while it writes it. */
  onStdout?: OutputCallback;
  /** Gets what the process writes to its standard error, while it writes it. */
  onStderr?: OutputCallback;
}

/** Wraps what a caller's callback threw, to tell it from errors of reading. */
class CallbackFailed extends Error {
  constructor(override readonly cause: unknown) {
    super("a callback for output failed");
  }
}

/** Follows the streams of one call for which there are callbacks. */
export class Live {
  private readonly streams: LiveStream[] = [];
  private finished: Promise<ToolcallError | undefined> | undefined;
  /** Rejects with what a callback threw; never resolves. */
  readonly failed: Promise<never>;

  constructor(api: Api, ref: CallRef, callbacks: OutputCallbacks) {
    const wanted: [Stream, OutputCallback | undefined][] = [
      ["stdout", callbacks.onStdout],
      ["stderr", callbacks.onStderr],
    ];
    for (const [stream, callback] of wanted) {
      if (callback) {
        this.streams.push(new LiveStream(api, ref, stream, callback));
      }
    }
    this.failed = new Promise((_, reject) => {
      for (const stream of this.streams) {
        stream.ended.catch((error: unknown) => {
          if (error instanceof CallbackFailed) {
            reject(error.cause);
          }
        });
      }
    });
    this.failed.catch(() => {});
  }

  /**
   * Hands over what is missing once the call has ended. Returns the error when that can't be read, and reads on when it is
   * called again then. Throws what a callback throws.
   */
  finish(call: ToolCall): Promise<ToolcallError | undefined> {
    this.finished ??= this.finishAll(call);
    return this.finished;
  }

  private async finishAll(call: ToolCall): Promise<ToolcallError | undefined> {
    const errors = await Promise.all(this.streams.map((stream) => stream.finish(call).then(() => undefined, unreadable)));
    const error = errors.find((e) => e !== undefined);
    this.finished = error === undefined ? this.finished : undefined;
    return error;
  }

  /** Stops following. */
  stop(): void {
    for (const stream of this.streams) {
      stream.stop();
    }
  }
}

// The error of reading. Throws what a callback threw, and errors of other kinds.
function unreadable(error: unknown): ToolcallError {
  if (error instanceof CallbackFailed) {
    throw error.cause;
  }
  if (!(error instanceof ToolcallError)) {
    throw error;
  }
  return error;
}

class LiveStream {
  /** Settles when the stream is complete, or can't be read for too long. */
  readonly ended: Promise<number>;
  private readonly aborter = new AbortController();
  private readonly decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  private total: number | undefined;
  // Behind the last byte that the callback got.
  private offset = 0;

  constructor(
    private readonly api: Api,
    private readonly ref: CallRef,
    private readonly stream: Stream,
    private readonly callback: OutputCallback,
  ) {
    this.ended = this.follow();
    this.ended.catch(() => {});
  }

  private follow(): Promise<number> {
    return follow(this.api, {
      ref: this.ref,
      stream: this.stream,
      from: this.offset,
      deliver: (data, offset) => this.deliver(data, offset),
      total: () => this.total,
      signal: this.aborter.signal,
    });
  }

  async finish(call: ToolCall): Promise<void> {
    const described = call.status?.streams?.[this.stream];
    const rest = restInStatus(call, this.stream);
    this.total = described?.bytes ?? (call.status?.startTime === undefined ? 0 : undefined);
    if (rest !== undefined || this.offset >= (this.total ?? Number.POSITIVE_INFINITY)) {
      this.stop();
    }
    await this.ended.catch((error: unknown) => {
      if (error instanceof CallbackFailed) {
        throw error;
      }
      // What kept it from reading may be over. Where the status has all of the stream, nothing is read any more.
      return this.follow();
    });
    if (rest !== undefined && rest.length > this.offset) {
      await this.deliver(rest.subarray(this.offset), this.offset);
    }
    await this.call(this.decoder.decode());
  }

  stop(): void {
    this.aborter.abort();
  }

  private deliver(data: Uint8Array, offset: number): Promise<void> {
    this.offset = offset + data.length;
    return this.call(this.decoder.decode(data, { stream: true }));
  }

  private async call(text: string): Promise<void> {
    try {
      if (text) {
        await this.callback(text);
      }
    } catch (error) {
      throw new CallbackFailed(error);
    }
  }
}

/** All bytes of a stream, when the status has them; undefined when it hasn't. */
export function restInStatus(call: ToolCall, stream: Stream): Buffer | undefined {
  const described = call.status?.streams?.[stream];
  if (!described || described.truncated || described.invalidUTF8) {
    return undefined;
  }
  const bytes = Buffer.from(call.status?.[stream] ?? "", "utf8");
  return bytes.length === described.bytes ? bytes : undefined;
}
