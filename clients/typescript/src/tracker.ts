// One watch for all calls that this client waits for: a result arrives as soon as it is written, without a
// request of its own.

import { randomBytes } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { setTimeout as sleep } from "node:timers/promises";
import type { Api } from "./api.js";
import { ApiError, ClientClosed, publicError } from "./errors.js";
import { isFinished, type ToolCall } from "./objects.js";
import { Retries } from "./retries.js";
import { deleted, eventsOf, mustBe, openWatch, PAUSE_MILLISECONDS, waitAfter } from "./watch.js";

/** Label by which the watch selects the calls of one client. */
export const CLIENT_LABEL = "toolcall.dev/client";

// The watch stays for this long after the last call, so that the next one doesn't wait for it.
const LINGER_MILLISECONDS = 60_000;

interface Waiter {
  name: string;
  uid: string | undefined;
  resolve(call: ToolCall): void;
  reject(error: unknown): void;
}

/** Somebody who waits for the end of a call. */
export interface Waiting {
  /** The finished call. */
  call: Promise<ToolCall>;
  /** Says which object the call is, once it was created. */
  created(call: ToolCall): void;
  /** Says that nobody waits any more. */
  abandon(): void;
}

/** Waits for the ends of the calls that have the label CLIENT_LABEL with its `id`. */
export class Tracker {
  /** Value of the label. */
  readonly id = randomBytes(10).toString("hex");
  private readonly waiters = new Map<string, Set<Waiter>>();
  private stop: AbortController | undefined;
  private body: IncomingMessage | undefined;
  private linger: NodeJS.Timeout | undefined;

  constructor(private readonly api: Api) {}

  /** Starts the watch if it isn't there, so that it is under way when the call is created. */
  start(): void {
    clearTimeout(this.linger);
    this.linger = undefined;
    if (!this.stop) {
      this.stop = new AbortController();
      void this.watch(this.stop.signal);
    }
  }

  /** Waits until the call has finished. Call it before the call is created: nothing is missed then. */
  finished(name: string, signal?: AbortSignal): Waiting {
    this.start();
    const waiter: Waiter = { name, uid: undefined, resolve: () => {}, reject: () => {} };
    const call = new Promise<ToolCall>((resolve, reject) => {
      const end = (settle: () => void): void => {
        signal?.removeEventListener("abort", abort);
        this.remove(waiter);
        settle();
      };
      const abort = (): void => end(() => reject(signal?.reason));
      waiter.resolve = (object) => end(() => resolve(object));
      waiter.reject = (error) => end(() => reject(error));
      signal?.addEventListener("abort", abort, { once: true });
    });
    call.catch(() => {});
    this.add(waiter);
    return { call, created: (object) => this.created(waiter, object), abandon: () => waiter.reject(undefined) };
  }

  /** Ends the watch for good. Everybody who waits is told why. */
  close(): void {
    this.end();
    this.rejectAll(new ClientClosed());
  }

  private end(): void {
    clearTimeout(this.linger);
    this.stop?.abort();
    this.stop = undefined;
  }

  private rejectAll(error: unknown): void {
    for (const waiter of this.all()) {
      waiter.reject(publicError(error, { call: waiter.name }));
    }
  }

  // Ends the watch that has this signal, unless another one took its place.
  private closeIf(signal: AbortSignal): void {
    if (this.stop?.signal === signal) {
      this.end();
    }
  }

  private created(waiter: Waiter, call: ToolCall): void {
    waiter.uid = call.metadata.uid;
    if (isFinished(call)) {
      waiter.resolve(call);
    }
  }

  private add(waiter: Waiter): void {
    const same = this.waiters.get(waiter.name) ?? new Set();
    this.waiters.set(waiter.name, same.add(waiter));
    this.body?.socket?.ref();
  }

  private remove(waiter: Waiter): void {
    const same = this.waiters.get(waiter.name);
    same?.delete(waiter);
    if (same?.size === 0) {
      this.waiters.delete(waiter.name);
    }
    if (this.waiters.size === 0 && this.stop) {
      // An idle watch doesn't keep the program from ending.
      this.body?.socket?.unref();
      clearTimeout(this.linger);
      this.linger = setTimeout(() => this.end(), LINGER_MILLISECONDS).unref();
    }
  }

  private async watch(signal: AbortSignal): Promise<void> {
    let from: string | undefined;
    const retries = new Retries(this.api.retryMilliseconds);
    while (!signal.aborted) {
      try {
        const query = { labelSelector: `${CLIENT_LABEL}=${this.id}`, resourceVersion: from };
        const body = await openWatch(this.api, "toolcalls", query, signal);
        retries.succeeded();
        this.opened(body);
        if (from === undefined) {
          // What was deleted before has no event.
          void this.lookAgain();
        }
        for await (const event of eventsOf<ToolCall>(body)) {
          from = event.object.metadata.resourceVersion;
          this.tell(event.type, event.object);
        }
        if (this.waiters.size === 0) {
          return this.closeIf(signal);
        }
        await sleep(PAUSE_MILLISECONDS);
      } catch (error) {
        from = error instanceof ApiError && error.code === 410 ? undefined : from;
        if (!(await this.goesOn(error, retries, signal))) {
          return;
        }
      }
    }
  }

  // The body's socket is gone where it has ended already.
  private opened(body: IncomingMessage): void {
    this.body = body;
    if (this.waiters.size === 0) {
      body.socket?.unref();
    }
  }

  // Waits before the next watch. False when there is none: everybody who waits is told why.
  private async goesOn(error: unknown, retries: Retries, signal: AbortSignal): Promise<boolean> {
    if (this.waiters.size === 0) {
      // A program that waits for nothing must be able to end, also while the API can't be reached.
      this.closeIf(signal);
      return false;
    }
    if (signal.aborted || (await waitAfter(error, retries))) {
      return !signal.aborted;
    }
    this.end();
    this.rejectAll(error);
    return false;
  }

  private tell(type: string, call: ToolCall): void {
    const ends = type === "DELETED" || (type !== "BOOKMARK" && isFinished(call));
    for (const waiter of ends ? [...(this.waiters.get(call.metadata.name) ?? [])] : []) {
      if (waiter.uid !== undefined && waiter.uid !== call.metadata.uid) {
        continue;
      }
      if (type === "DELETED" && !isFinished(call)) {
        waiter.reject(deleted("toolcalls", waiter.name));
      } else {
        waiter.resolve(call);
      }
    }
  }

  // Reads the objects of everybody who waits and knows that the call was created: they may be gone.
  private async lookAgain(): Promise<void> {
    for (const waiter of this.all().filter((w) => w.uid !== undefined)) {
      try {
        const path = this.api.objects("toolcalls", waiter.name);
        const call = await this.api.repeated(() => this.api.json<ToolCall>({ method: "GET", path }));
        mustBe(waiter, "toolcalls", call);
        this.created(waiter, call);
      } catch (error) {
        waiter.reject(error instanceof ApiError && error.code === 404 ? deleted("toolcalls", waiter.name) : publicError(error, { call: waiter.name }));
      }
    }
  }

  private all(): Waiter[] {
    return [...this.waiters.values()].flatMap((same) => [...same]);
  }
}
