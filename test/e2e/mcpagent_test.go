package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"toolcall.dev/operator/internal/testing/built"
)

// clientFolder makes a folder with a program and the packages that it imports.
func clientFolder(t *testing.T, packages, program string) string {
	t.Helper()
	modules, err := built.NodeModules(packages)
	must(t, err)
	source, err := os.ReadFile(program)
	must(t, err)
	folder := t.TempDir()
	must(t, os.WriteFile(filepath.Join(folder, filepath.Base(program)), source, 0o600))
	must(t, os.Symlink(modules, filepath.Join(folder, "node_modules")))
	return folder
}

// mcpTarget is a server as client.mjs takes it.
type mcpTarget struct {
	SDK   string    `json:"sdk"`
	Stdio *mcpStdio `json:"stdio,omitempty"`
	HTTP  *mcpHTTP  `json:"http,omitempty"`
}

type mcpStdio struct {
	Command string            `json:"command"`
	Args    []string          `json:"args"`
	Env     map[string]string `json:"env"`
}

type mcpHTTP struct {
	URL     string `json:"url"`
	Token   string `json:"token"`
	Session string `json:"session,omitempty"`
	// ca is the authority of the server's certificate.
	ca string
}

// mcpAgent is a running client.
type mcpAgent struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.WriteCloser

	mu      sync.Mutex
	orders  int
	waiting map[int]*order
}

// order is something that the client was told to do.
type order struct {
	id       int
	done     chan reply
	progress chan progress
}

// reply is what came of an order.
type reply struct {
	Result json.RawMessage `json:"result"`
	Error  string          `json:"error"`
	Code   any             `json:"code"`
}

// progress is one notification.
type progress struct {
	Progress float64 `json:"progress"`
	Message  string  `json:"message"`
}

// startAgent starts a client for a server. It isn't connected yet.
func startAgent(t *testing.T, target mcpTarget) *mcpAgent {
	t.Helper()
	setup, err := json.Marshal(target)
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "node", "client.mjs")
	cmd.Dir = clientFolder(t, "mcp", filepath.Join("mcp", "client.mjs"))
	cmd.Env = append(os.Environ(), "MCP_TEST="+string(setup))
	if target.HTTP != nil {
		cmd.Env = append(cmd.Env, "NODE_EXTRA_CA_CERTS="+target.HTTP.ca)
	}
	stderr := &strings.Builder{}
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	a := &mcpAgent{t: t, cmd: cmd, stdin: stdin, waiting: map[int]*order{}}
	read := make(chan struct{})
	go func() { defer close(read); a.read(stdout) }()
	t.Cleanup(func() {
		_ = stdin.Close()
		time.AfterFunc(10*time.Second, cancel)
		<-read
		_ = cmd.Wait()
		cancel()
		if t.Failed() && stderr.Len() > 0 {
			t.Logf("the client's standard error: %s", clip(stderr.String(), 4000))
		}
	})
	return a
}

// read hands on what the client says.
func (a *mcpAgent) read(stdout io.Reader) {
	lines := bufio.NewScanner(stdout)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var said struct {
			ID       int       `json:"id"`
			Progress *progress `json:"progress"`
			reply
		}
		if err := json.Unmarshal(lines.Bytes(), &said); err != nil {
			a.t.Errorf("the client said %q: %v", clip(lines.Text(), 500), err)
			continue
		}
		a.mu.Lock()
		o := a.waiting[said.ID]
		a.mu.Unlock()
		if said.Progress != nil {
			o.progress <- *said.Progress
			continue
		}
		o.done <- said.reply
	}
}

// order tells the client to do something.
func (a *mcpAgent) order(do string, more map[string]any) *order {
	a.t.Helper()
	a.mu.Lock()
	a.orders++
	o := &order{id: a.orders, done: make(chan reply, 1), progress: make(chan progress, 10000)}
	a.waiting[o.id] = o
	a.mu.Unlock()
	line := map[string]any{"id": o.id, "do": do}
	for name, value := range more {
		line[name] = value
	}
	raw, err := json.Marshal(line)
	must(a.t, err)
	if _, err := a.stdin.Write(append(raw, '\n')); err != nil {
		a.t.Fatalf("tell the client to %s: %v", do, err)
	}
	return o
}

// await waits for what came of an order.
func (a *mcpAgent) await(o *order) reply {
	a.t.Helper()
	select {
	case r := <-o.done:
		return r
	case <-time.After(patience):
		a.t.Fatalf("the client didn't answer in %s", patience)
		return reply{}
	}
}

// awaitOutput waits for a notification that tells something.
func (a *mcpAgent) awaitOutput(o *order) string {
	a.t.Helper()
	late := time.After(patience)
	for {
		select {
		case p := <-o.progress:
			if p.Message != "" {
				return p.Message
			}
		case r := <-o.done:
			a.t.Fatalf("the client was answered before any output came: %s%s", r.Error, r.Result)
		case <-late:
			a.t.Fatalf("no output came in %s", patience)
		}
	}
}

// connect connects the client and gives its session's id.
func (a *mcpAgent) connect() string {
	a.t.Helper()
	r := a.await(a.order("connect", nil))
	if r.Error != "" {
		a.t.Fatalf("connect: %s", r.Error)
	}
	var connected struct{ Session string }
	must(a.t, json.Unmarshal(r.Result, &connected))
	return connected.Session
}

// mcpAnswer is a tool's answer as an agent's framework gets it.
type mcpAnswer struct {
	IsError bool
	Content []struct{ Type, Text string }
	// Meta has the fields of all tools, for programs.
	Meta struct {
		Result mcpFields `json:"toolcall.dev/result"`
	} `json:"_meta"`
}

// mcpFields are the fields of an answer; Output is the text without the server's last line.
type mcpFields struct {
	Output, Reason, Call, Phase, Signal, Environment, Session string
	ExitCode                                                  *int32 `json:"exit_code"`
	RetrySafe                                                 *bool  `json:"retry_safe"`
	File                                                      *struct {
		SHA256     string
		NextOffset *int64 `json:"next_offset"`
		Matches    *int64
	}
	Stream *struct {
		NextOffset int64 `json:"next_offset"`
		Complete   bool
	}
	Environments []struct {
		Name           string
		Default, Ready bool
	}
}

// fields returns the fields of an answer.
func (m mcpAnswer) fields() mcpFields {
	f := m.Meta.Result
	f.Output = m.text()
	if at := strings.LastIndex(f.Output, "\n\n[reason: "); at >= 0 {
		f.Output = f.Output[:at]
	}
	return f
}

// use calls a tool and waits for its answer.
func (a *mcpAgent) use(tool string, arguments map[string]any) mcpAnswer {
	a.t.Helper()
	return a.answer(a.await(a.order("call", map[string]any{"tool": tool, "arguments": arguments})))
}

func (a *mcpAgent) answer(r reply) mcpAnswer {
	a.t.Helper()
	if r.Error != "" {
		a.t.Fatalf("the client got the error %q instead of an answer", r.Error)
	}
	var answer mcpAnswer
	must(a.t, json.Unmarshal(r.Result, &answer))
	if len(answer.Content) == 0 || answer.Content[0].Type != "text" {
		a.t.Fatalf("the answer's content: %+v", answer.Content)
	}
	return answer
}

func (m mcpAnswer) text() string { return m.Content[0].Text }
