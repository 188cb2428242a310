import assert from "node:assert/strict";
import net, { type AddressInfo } from "node:net";
import { describe, it } from "node:test";
import { KubeConfig } from "@kubernetes/client-node";
import { InvalidArgument, Toolcall, ToolcallError, Unauthenticated, Unavailable } from "../../src/index.js";
import { configFor, hangUp, refuse, rejection, sendJSON, Server } from "./server.js";

const DESK = { metadata: { name: "desk", uid: "u1" }, spec: {}, status: { phase: "Ready" } };

describe("a client's first request", () => {
  it("says which server can't be reached", { timeout: 20_000 }, async (t) => {
    const silent = net.createServer();
    await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
    t.after(() => silent.close());
    const closed = net.createServer();
    await new Promise<void>((resolve) => closed.listen(0, "127.0.0.1", resolve));
    const ports = [silent, closed].map((server) => (server.address() as AddressInfo).port);
    closed.close();
    for (const port of ports) {
      const client = new Toolcall({ namespace: "agents", kubeConfig: configFor(`http://127.0.0.1:${port}`), patience: 1 });
      const error = await rejection(client.connect("desk"));
      assert.ok(error instanceof Unavailable && error.message.includes(`http://127.0.0.1:${port} can't be reached`), String(error));
      // Only what was connected may have taken the request.
      const unknown = await rejection(client.run("true"));
      assert.ok(unknown instanceof Unavailable && unknown.retrySafe === (port === ports[1]), String(unknown));
    }
  });

  it("isn't one to a server that answered once", async (t) => {
    const answers = [true, false, false, true];
    const server = await Server.listen(t, (_, answer) => (answers.shift() ? sendJSON(answer, DESK) : hangUp(answer)));
    const client = server.client();
    await client.connect("desk");
    assert.equal((await client.connect("desk")).name, "desk");
  });

  it("says of a token that isn't accepted when it expires", async (t) => {
    const server = await Server.listen(t, (_, answer) => refuse(answer, 401, "Unauthorized"));
    const token = (claims: object): string => `h.${Buffer.from(JSON.stringify(claims)).toString("base64url")}.s`;
    for (const [given, says] of [
      [token({ exp: 1700000000 }), /the credentials, whose token expired at 2023-11-14T22:13:20Z$/],
      [token({ exp: 4102444800 }), /expires at 2100-/],
      [token({}), /the credentials$/],
      ["opaque", /the credentials$/],
    ] as const) {
      const kubeConfig = new KubeConfig();
      kubeConfig.loadFromClusterAndUser({ name: "test", server: server.address, skipTLSVerify: true }, { name: "test", token: given });
      const error = await rejection(server.client({ kubeConfig }).run("true"));
      assert.ok(error instanceof Unauthenticated && error.message.includes(server.address), String(error));
      assert.match(error.message, says);
      assert.deepEqual([error.reason, error.retrySafe], ["Unauthorized", true]);
    }
  });

  it("isn't sent where there is neither a kubeconfig nor a pod", (t) => {
    const { HOME, KUBECONFIG } = process.env;
    t.after(() => Object.assign(process.env, { HOME }, KUBECONFIG === undefined ? {} : { KUBECONFIG }));
    process.env.HOME = import.meta.dirname;
    delete process.env.KUBECONFIG;
    assert.throws(() => new Toolcall({ namespace: "agents" }), { name: "InvalidArgument", message: /^no kubeconfig at .* set KUBECONFIG/ });
  });

  it("isn't sent with what can't be a name", async (t) => {
    const server = await Server.listen(t, (_, answer) => sendJSON(answer, DESK));
    const client = server.client();
    const { commands } = await client.connect("desk");
    for (const name of ["", "..", "a/b", "A"]) {
      for (const work of [client.connect(name), client.cancel(name), client.output(name), commands.connect(name), commands.artifact(name, "a")]) {
        const error = await rejection(work);
        assert.ok(error instanceof InvalidArgument && error.retrySafe && error.message.includes(JSON.stringify(name)), String(error));
      }
    }
    for (const namespace of ["", ".."]) {
      assert.throws(() => server.client({ namespace }), InvalidArgument);
    }
    assert.throws(() => client.calls({ session: "a,status.phase=Running" }), InvalidArgument);
    assert.throws(() => client.calls({ phase: "Running,metadata.name=a" as "Running" }), InvalidArgument);
    assert.equal(server.received.length, 1);
  });

  it("goes to the context's namespace, and to default as kubectl's where there is none", () => {
    const kubeConfig = configFor("http://127.0.0.1:1");
    assert.equal(new Toolcall({ kubeConfig }).namespace, "default");
    kubeConfig.addContext({ name: "named", cluster: "test", user: "test", namespace: "agents" });
    kubeConfig.setCurrentContext("named");
    assert.deepEqual([new Toolcall({ kubeConfig }).namespace, new Toolcall({ namespace: "tools", kubeConfig }).namespace], ["agents", "tools"]);
  });

  it("isn't sent with a kubeconfig that can't be used", () => {
    assert.throws(() => new Toolcall({ namespace: "agents", kubeConfig: configFor("nowhere") }), InvalidArgument);
  });
});

describe("an answer that isn't the API server's", () => {
  it("is an error of the library's own, and says nothing of what ran", async (t) => {
    for (const [code, body, reason] of [
      [200, "<html>Sign in</html>", "UnexpectedAnswer"],
      [200, "null", "UnexpectedAnswer"],
      [200, "[]", "UnexpectedAnswer"],
      [200, '{"error":"no"}', "UnexpectedAnswer"],
      [200, '{"metadata":{}}', "UnexpectedAnswer"],
      [302, "elsewhere", "HTTP302"],
    ] as const) {
      const server = await Server.listen(t, (_, answer) => answer.writeHead(code).end(body));
      const client = server.client();
      for (const [work, call] of [[() => client.connect("desk"), undefined], [() => client.run("true", { key: "k" }), "k"]] as const) {
        const error = await rejection(work());
        assert.ok(error instanceof ToolcallError && error.reason === reason && error.message.includes(body), String(error));
        assert.ok(!error.retrySafe || code === 302);
        assert.equal(error.call, call);
      }
      for (const work of [() => client.calls().next(), () => client.cancel("k")]) {
        const error = await rejection(work());
        assert.ok(error instanceof ToolcallError && error.reason === reason, String(error));
      }
      assert.equal(server.count("POST", /./), 1);
    }
  });

  it("isn't waited for with arguments that can't be sent", async (t) => {
    const server = await Server.listen(t, () => assert.fail("it was sent"));
    const error = await rejection(server.client().run({ tool: "t", arguments: { n: 1n } }));
    assert.ok(error instanceof InvalidArgument && error.retrySafe, String(error));
    const noFunction = await rejection(server.client().run("true", { onStdout: process.stdout as unknown as () => void }));
    assert.ok(noFunction instanceof InvalidArgument && noFunction.retrySafe, String(noFunction));
  });
});
