package standalone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/figures"
)

// Manager is the operator as a process.
type Manager struct {
	// Ready is how long it took to be ready.
	Ready time.Duration

	began   time.Time
	command *exec.Cmd
	log     *os.File
	// logged is the length of the log of those before it.
	logged         int64
	exited         chan struct{}
	failed         error
	metrics, pprof string
}

// stopTimeout is how long the operator may take to end.
const stopTimeout = 30 * time.Second

// admissionAge is how old the admission policies must be before the operator believes what they stamped, and more.
const admissionAge = 5 * time.Second

// learned is what the operator logs when it knows which calls had ended before it began.
const learned = "Know which calls ended before"

// StartManager runs the operator's program until it is ready, with more arguments if there are any.
func (s *Server) StartManager(ctx context.Context, program string, args ...string) (*Manager, error) {
	// The same ports every time: runners come back to where the operator was.
	if s.ports == nil {
		var err error
		if s.ports, err = freePorts(4); err != nil {
			return nil, err
		}
	}
	ports := s.ports
	if err := cluster.Pause(ctx, time.Until(s.admission.Add(admissionAge))); err != nil {
		return nil, err
	}
	if err := s.mountIdentity(ctx); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(s.path(managerLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	before, err := log.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, err
	}
	m := &Manager{began: time.Now(), log: log, logged: before, exited: make(chan struct{}), metrics: "http://" + ports[1], pprof: "http://" + ports[3]}
	m.command = exec.Command(program, append([]string{
		"--kubeconfig=" + s.path(kubeconfig), "--runner-image=example.com/runner:1", "--leader-elect=false", "--output-api=false", "--identity-dir=" + s.path(identity),
		"--dispatch-address=" + ports[0], "--metrics-address=" + ports[1], "--health-address=" + ports[2], "--pprof-address=" + ports[3],
	}, args...)...)
	m.command.Env = append(os.Environ(), "POD_NAMESPACE="+operatorNamespace, "POD_IP=127.0.0.1")
	m.command.Stdout, m.command.Stderr = log, log
	if err := m.command.Start(); err != nil {
		return nil, fmt.Errorf("start the operator (is it built?): %w", err)
	}
	go func() {
		m.failed = m.command.Wait()
		close(m.exited)
	}()
	if err := m.awaitReady(ctx, "http://"+ports[2]+"/readyz"); err != nil {
		return nil, errors.Join(err, m.Stop())
	}
	return m, nil
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

func (m *Manager) awaitReady(ctx context.Context, url string) error {
	err := cluster.Eventually(ctx, "the operator to be ready", func(ctx context.Context) (bool, error) {
		select {
		case <-m.exited:
			return false, fmt.Errorf("it ended: %w", m.failed)
		default:
		}
		_, err := get(ctx, http.DefaultClient, url)
		return err == nil, nil
	})
	m.Ready = time.Since(m.began)
	return err
}

// AwaitLearned waits until the operator knows which calls ended before it began, and says how long that took from its
// start on: it asks for them when it is ready, and works meanwhile.
func (m *Manager) AwaitLearned(ctx context.Context) (time.Duration, error) {
	err := cluster.Eventually(ctx, "the operator to know which calls have ended", func(context.Context) (bool, error) {
		log, err := os.ReadFile(m.log.Name())
		return err == nil && bytes.Contains(log[m.logged:], []byte(learned)), err
	})
	return time.Since(m.began), err
}

// Stop ends the operator as a kubelet would.
func (m *Manager) Stop() error {
	defer m.log.Close()
	_ = m.command.Process.Signal(syscall.SIGTERM)
	select {
	case <-m.exited:
		if m.failed != nil {
			return fmt.Errorf("the operator ended badly: %w", m.failed)
		}
		return nil
	case <-time.After(stopTimeout):
		_ = m.command.Process.Kill()
		return fmt.Errorf("the operator did not end within %s of SIGTERM", stopTimeout)
	}
}

// Memory is what the operator has of the machine, and what its heap holds.
type Memory struct {
	RSS       float64 `json:"rssMiB"`
	HeapInUse float64 `json:"heapInUseMiB"`
	HeapAlloc float64 `json:"heapAllocMiB"`
}

// String is the memory as cells of a table.
func (m Memory) String() string {
	return fmt.Sprintf("%.1f|%.1f|%.1f", m.RSS, m.HeapInUse, m.HeapAlloc)
}

// Mebi is bytes in a MiB.
const Mebi = 1 << 20

// Memory asks the process itself: its metrics have both.
func (m *Manager) Memory(ctx context.Context) (Memory, error) {
	page, err := get(ctx, http.DefaultClient, m.metrics+"/metrics")
	if err != nil {
		return Memory{}, fmt.Errorf("read the operator's metrics: %w", err)
	}
	metrics, err := figures.ReadMetrics(bytes.NewReader(page))
	mebi := func(name string) float64 { return figures.Sum(metrics, name) / Mebi }
	return Memory{mebi("process_resident_memory_bytes"), mebi("go_memstats_heap_inuse_bytes"), mebi("go_memstats_heap_alloc_bytes")}, err
}

// Profile saves one of the operator's profiles in the folder, if there is one.
func (m *Manager) Profile(ctx context.Context, folder, name, profile string) error {
	return saveProfile(ctx, http.DefaultClient, m.pprof, folder, name, profile)
}

func saveProfile(ctx context.Context, from *http.Client, host, folder, name, profile string) error {
	if folder == "" {
		return nil
	}
	raw, err := get(ctx, from, strings.TrimSuffix(host, "/")+"/debug/pprof/"+profile)
	if err == nil {
		err = os.MkdirAll(folder, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name+".pprof"), raw, 0o644)
	}
	if err != nil {
		return fmt.Errorf("take profile %s: %w", name, err)
	}
	return nil
}

func get(ctx context.Context, from *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := from.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return io.ReadAll(response.Body)
}
