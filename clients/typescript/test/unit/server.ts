// A local HTTP server as the other end of a client: it answers as the test says, also with what a cluster seldom does.

import http from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import { KubeConfig } from "@kubernetes/client-node";
import { Toolcall, type ToolcallOptions } from "../../src/index.js";

/** A request that arrived, with its body. */
export interface Received {
  method: string;
  url: URL;
  headers: http.IncomingHttpHeaders;
  body: string;
  bytes: Buffer;
}

/** Answers a request. */
export type Handler = (request: Received, answer: http.ServerResponse) => unknown;

/** The server of one test. */
export class Server {
  /** What was asked, in its order. */
  readonly received: Received[] = [];
  private readonly server: http.Server;
  private readonly clients: Toolcall[] = [];

  private constructor(handler: Handler) {
    this.server = http.createServer(async (incoming, answer) => {
      const parts: Buffer[] = [];
      try {
        for await (const part of incoming) {
          parts.push(part as Buffer);
        }
      } catch {
        return; // The client gave the request up.
      }
      const url = new URL(incoming.url ?? "", "http://server");
      const bytes = Buffer.concat(parts);
      const request = { method: incoming.method ?? "", url, headers: incoming.headers, body: bytes.toString(), bytes };
      this.received.push(request);
      await handler(request, answer);
    });
  }

  /** Listens until the test ends. */
  static async listen(test: TestContext, handler: Handler): Promise<Server> {
    const server = new Server(handler);
    test.after(() => server.close());
    await new Promise<void>((resolve) => server.server.listen(0, "127.0.0.1", resolve));
    return server;
  }

  get address(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /** How many requests of a method there were whose path matches. */
  count(method: string, path: RegExp): number {
    return this.received.filter((request) => request.method === method && path.test(request.url.pathname + request.url.search)).length;
  }

  /** A client of the server. It repeats requests for two seconds. */
  client(options: ToolcallOptions = {}): Toolcall {
    const client = new Toolcall({ namespace: "agents", kubeConfig: configFor(this.address), patience: 2, ...options });
    this.clients.push(client);
    return client;
  }

  private close(): void {
    for (const client of this.clients) {
      client.close();
    }
    this.server.close();
    this.server.closeAllConnections();
  }
}

/** Leads to a server, without credentials. */
export function configFor(server: string): KubeConfig {
  const config = new KubeConfig();
  config.loadFromClusterAndUser({ name: "test", server, skipTLSVerify: true }, { name: "test" });
  return config;
}

/** Answers with JSON. */
export function sendJSON(answer: http.ServerResponse, body: object, code = 200): void {
  answer.writeHead(code, { "content-type": "application/json" }).end(JSON.stringify(body));
}

/** Refuses a request as the API server does. */
export function refuse(answer: http.ServerResponse, code: number, reason: string, message: string = reason): void {
  sendJSON(answer, { kind: "Status", status: "Failure", code, reason, message }, code);
}

/** Breaks the connection instead of answering. */
export function hangUp(answer: http.ServerResponse): void {
  answer.socket?.destroy();
}

/** What a promise rejects with. */
export async function rejection(work: Promise<unknown>): Promise<unknown> {
  return work.then(
    (value) => {
      throw new Error(`it should throw, and gave ${JSON.stringify(value)}`);
    },
    (error: unknown) => error,
  );
}
