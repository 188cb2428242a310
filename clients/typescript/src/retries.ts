// How long, and how often, what failed is tried again.

import { setTimeout as sleep } from "node:timers/promises";
import { ApiError, ConnectionLost, Unreached } from "./errors.js";

const FIRST_MILLISECONDS = 50;
const LONGEST_MILLISECONDS = 3_000;
/** For how long a server is asked that has never answered. */
export const UNREACHED_MILLISECONDS = 10_000;

/** Milliseconds to wait before the same request is sent again; undefined when that won't help. */
export function pause(error: unknown, attempt: number): number | undefined {
  const backoff = Math.min(FIRST_MILLISECONDS * 2 ** attempt, LONGEST_MILLISECONDS);
  if (error instanceof ConnectionLost) {
    return backoff;
  }
  if (error instanceof ApiError && (error.code === 429 || error.code >= 500) && error.code !== 501 && error.code !== 507) {
    return error.retryAfter === undefined ? backoff : Math.max(error.retryAfter * 1_000, backoff);
  }
  return undefined;
}

/** The attempts of one piece of work. Its patience counts from the first failure after the last success. */
export class Retries {
  private attempt = 0;
  private since: number | undefined;

  constructor(
    /** Milliseconds for which failures may follow each other. */
    private readonly patience: number,
    private readonly now: () => number = Date.now,
  ) {}

  /** Says that something succeeded. */
  succeeded(): void {
    this.attempt = 0;
    this.since = undefined;
  }

  /** Milliseconds to wait after a failure; undefined when trying again won't help, or was tried for long enough. */
  next(error: unknown): number | undefined {
    const isUnreached = error instanceof Unreached;
    this.since ??= isUnreached ? error.began : this.now();
    const patience = isUnreached ? Math.min(this.patience, UNREACHED_MILLISECONDS) : this.patience;
    const wait = pause(error, this.attempt++);
    return wait === undefined || this.now() + wait - this.since > patience ? undefined : wait;
  }

  /** Waits after a failure. False when there is no use in another attempt, or the signal is aborted. */
  async wait(error: unknown, signal?: AbortSignal): Promise<boolean> {
    const milliseconds = this.next(error);
    if (milliseconds === undefined) {
      return false;
    }
    await sleep(milliseconds, undefined, signal ? { signal } : {}).catch(() => {});
    return !signal?.aborted;
  }
}
