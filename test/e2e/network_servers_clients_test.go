package e2e

import (
	"testing"

	"toolcall.dev/operator/internal/testing/built"
)

// fetching is a shell line that fetches from $HOST, whose certificate the file ca.pem is for, and what it prints.
type fetching struct{ command, want string }

// clients are programs that use the network each in its own way: the C library's resolver or one of their own, blocking sockets and
// others, IPv4 sockets and those that do both, threads. A host says hello.
func clients(hello string) map[string]fetching {
	return map[string]fetching{
		"bash":          {`exec 3<>/dev/tcp/$HOST/80; printf 'GET /hello HTTP/1.0\r\nHost: %s\r\n\r\n' $HOST >&3; tail -n 1 <&3`, hello},
		"curl":          {`curl -sS http://$HOST/hello`, hello},
		"curl by TLS":   {`curl -sS --cacert ca.pem https://$HOST/hello`, hello},
		"git":           {`git clone --quiet http://$HOST/files/project.git && ls project`, "main.py\n"},
		"git by TLS":    {`GIT_SSL_CAINFO=$PWD/ca.pem git clone --quiet https://$HOST/files/project.git && ls project`, "main.py\n"},
		"pip":           {`pip install --quiet --target lib --trusted-host $HOST --index-url http://$HOST/files/simple/ greeting && ls lib/greeting.py`, "lib/greeting.py\n"},
		"pip by TLS":    {`pip install --quiet --target lib --cert ca.pem --index-url https://$HOST/files/simple/ greeting && ls lib/greeting.py`, "lib/greeting.py\n"},
		"python by TLS": {`python3 -c 'import os, ssl, urllib.request as r; print(r.urlopen("https://"+os.environ["HOST"]+"/hello", context=ssl.create_default_context(cafile="ca.pem")).read().decode(), end="")'`, hello},
		"node":          {`node -e "$FETCH" http://$HOST/hello`, hello},
		"node by TLS":   {`NODE_EXTRA_CA_CERTS=ca.pem node -e "$FETCH" https://$HOST/hello`, hello},
		"npm":           {`node /opt/npm/bin/npm-cli.js install --silent --no-audit --registry http://$HOST/npm/ greeting && node -p 'require("greeting")("world")'`, "hello world\n"},
		"npm by TLS":    {`NODE_EXTRA_CA_CERTS=ca.pem node /opt/npm/bin/npm-cli.js install --silent --no-audit --registry https://$HOST/npm/ greeting && node -p 'require("greeting")("world")'`, "hello world\n"},
		"musl":          {`musl-fetch $HOST`, hello},
		"java":          {`printf %s "$JAVA" > Fetch.java; /opt/java/bin/java Fetch.java http://$HOST/hello`, hello + hello},
		"java by TLS": {`printf %s "$JAVA" > Fetch.java; said=$(/opt/java/bin/keytool -importcert -noprompt -storepass changeit -keystore trusted -file ca.pem 2>&1) || echo "$said"
/opt/java/bin/java -Djavax.net.ssl.trustStore=trusted -Djavax.net.ssl.trustStorePassword=changeit Fetch.java https://$HOST/hello`, hello + hello},
		"a static program of Go": {`kubectl --server=https://$HOST --certificate-authority=ca.pem --token=none get --raw /hello`, hello},
		"a slow server":          {`curl -sS http://$HOST/slow`, "line 0\nline 1\nline 2\nline 3\n"},
		"gigabytes":              {`curl -sS http://$HOST/zeros/2147483649 | wc -c`, "2147483649\n"},
		"gigabytes to a server":  {`head -c 1073741825 /dev/zero | curl -sS -T - http://$HOST/count`, "1073741825 <nil>\n"},
	}
}

// nodeFetch and javaFetch print what the URL in their argument has. Java has two clients for it.
const (
	nodeFetch = `fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t))`
	javaFetch = `
import java.net.URI;
import java.net.http.*;

class Fetch {
    public static void main(String[] args) throws Exception {
        URI uri = URI.create(args[0]);
        System.out.print(new String(uri.toURL().openStream().readAllBytes()));
        System.out.print(HttpClient.newHttpClient().send(HttpRequest.newBuilder(uri).build(), HttpResponse.BodyHandlers.ofString()).body());
    }
}`
)

// clientsImage has the tool image's programs and more clients.
const clientsImage = "toolcall.dev/clients:dev"

// loadClients makes the image known to the node.
func loadClients(t *testing.T) {
	t.Helper()
	image, err := built.Helper("clients.tar")
	must(t, err)
	program, err := built.Helper("cluster")
	must(t, err)
	must(t, run(t.Context(), program, "load", image))
}
