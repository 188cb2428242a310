package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// manager is the operator as a process.
type manager struct {
	command *exec.Cmd
	log     *os.File
	// logged is the length of the log of those before it.
	logged  int64
	exited  chan error
	metrics string
	pprof   string
}

// How long the operator may take to be ready and to end, and how often it is asked.
const (
	readyTimeout = 2 * time.Minute
	stopTimeout  = 30 * time.Second
	readyPoll    = 100 * time.Millisecond
)

// start runs the operator until it is ready.
func (s *server) start(ctx context.Context, o *options) (*manager, error) {
	// The same ones every time: runners come back to where the operator was.
	if s.ports == nil {
		var err error
		if s.ports, err = freePorts(4); err != nil {
			return nil, err
		}
	}
	ports := s.ports
	if err := s.mountIdentity(ctx); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(s.folder, "manager.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	before, err := log.Stat()
	if err != nil {
		return nil, err
	}
	m := &manager{log: log, logged: before.Size(), exited: make(chan error, 1), metrics: ports[1], pprof: ports[3]}
	m.command = exec.Command(o.manager,
		"--kubeconfig="+s.kubeconfig(), "--runner-image=example.com/runner:1", "--leader-elect=false",
		"--identity-dir="+s.identityDir(),
		"--dispatch-address="+ports[0], "--metrics-address="+ports[1], "--health-address="+ports[2], "--pprof-address="+ports[3])
	if o.qps > 0 {
		m.command.Args = append(m.command.Args, fmt.Sprintf("--qps=%g", o.qps))
	}
	m.command.Env = append(os.Environ(), "POD_NAMESPACE="+operatorNamespace, "POD_IP=127.0.0.1")
	m.command.Stdout, m.command.Stderr = log, log
	if err := m.command.Start(); err != nil {
		return nil, fmt.Errorf("start the operator (is it built?): %w", err)
	}
	go func() { m.exited <- m.command.Wait() }()
	return m, m.awaitReady(ctx, "http://"+ports[2]+"/readyz")
}

// freePorts are loopback addresses that nobody listened on a moment ago.
func freePorts(n int) ([]string, error) {
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

func (m *manager) awaitReady(ctx context.Context, url string) error {
	for deadline := time.Now().Add(readyTimeout); time.Now().Before(deadline); {
		if response, err := http.Get(url); err == nil {
			response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-m.exited:
			m.exited <- err
			return fmt.Errorf("the operator ended: %w\n%s", err, m.tail())
		case <-time.After(readyPoll):
		}
	}
	return fmt.Errorf("the operator is not ready after %s\n%s", readyTimeout, m.tail())
}

// tail is the end of the operator's log.
func (m *manager) tail() string {
	raw, _ := os.ReadFile(m.log.Name())
	return string(raw[max(0, len(raw)-4000):])
}

// stop ends the operator as a kubelet would.
func (m *manager) stop() error {
	defer m.log.Close()
	_ = m.command.Process.Signal(syscall.SIGTERM)
	select {
	case err := <-m.exited:
		if err != nil {
			return fmt.Errorf("the operator ended badly: %w\n%s", err, m.tail())
		}
		return nil
	case <-time.After(stopTimeout):
		_ = m.command.Process.Kill()
		return fmt.Errorf("the operator did not end within %s of SIGTERM", stopTimeout)
	}
}

// clockTicks a second is what /proc counts in, on every Linux that Go runs on.
const clockTicks = 100

// parseCPU reads user and system time, the 14th and 15th field. The second is a name that may hold anything, up to
// the last parenthesis.
func parseCPU(stat []byte) (time.Duration, error) {
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("read the operator's CPU time: %d fields are not those of /proc/PID/stat", len(fields))
	}
	ticks := 0
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(string(field))
		if err != nil {
			return 0, fmt.Errorf("read the operator's CPU time: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / clockTicks, nil
}

// memory is what the operator has of the machine, and what its heap holds.
type memory struct {
	RSS       float64 `json:"rssMiB"`
	HeapInUse float64 `json:"heapInUseMiB"`
	HeapAlloc float64 `json:"heapAllocMiB"`
}

const mebi = 1 << 20

// memory asks the process itself: its metrics have both.
func (m *manager) memory() (memory, error) {
	text, err := fetch("http://" + m.metrics + "/metrics")
	if err != nil {
		return memory{}, fmt.Errorf("read the operator's metrics: %w", err)
	}
	var found memory
	for name, into := range map[string]*float64{
		"process_resident_memory_bytes": &found.RSS,
		"go_memstats_heap_inuse_bytes":  &found.HeapInUse,
		"go_memstats_heap_alloc_bytes":  &found.HeapAlloc,
	} {
		value, err := metric(text, name)
		if err != nil {
			return memory{}, err
		}
		*into = value / mebi
	}
	return found, nil
}

// metric is the value of one without labels.
func metric(text []byte, name string) (float64, error) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("the operator's metrics have no %s", name)
}

// profile saves one of the operator's profiles in the folder, if there is one.
func (m *manager) profile(folder, name, path string) error {
	if folder == "" {
		return nil
	}
	raw, err := fetch("http://" + m.pprof + "/debug/pprof/" + path)
	if err != nil {
		return fmt.Errorf("take profile %s: %w", name, err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, name+".pprof"), raw, 0o644)
}

func fetch(url string) ([]byte, error) {
	return fetchWith(context.Background(), http.DefaultClient, url)
}

func fetchWith(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return io.ReadAll(response.Body)
}
