package standalone

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"toolcall.dev/operator/internal/testing/apiservertest"
	"toolcall.dev/operator/test/bench/cluster"
	"toolcall.dev/operator/test/bench/measure"
)

// Manager is the operator as a process.
type Manager struct {
	command        *exec.Cmd
	log            *os.File
	exited         chan struct{}
	failed         error
	metrics, pprof string
}

// stopTimeout is how long the operator may take to end.
const stopTimeout = 30 * time.Second

// admissionAge is how old the admission policies must be before the operator believes what they stamped, and more.
const admissionAge = 5 * time.Second

// StartManager runs the program of the checkout's operator until it is ready.
func (s *Server) StartManager(ctx context.Context) (*Manager, error) {
	ports, err := freePorts(4)
	if err != nil {
		return nil, err
	}
	if err := measure.Pause(ctx, time.Until(s.admission.Add(admissionAge))); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(s.path(managerLog), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	m := &Manager{log: log, exited: make(chan struct{}), metrics: "http://" + ports[1], pprof: "http://" + ports[3]}
	m.command = exec.Command(filepath.Join(s.Checkout, "bin/manager"),
		"--kubeconfig="+s.path(kubeconfig), "--runner-image=example.com/runner:1",
		"--leader-elect=false", "--output-api=false", "--identity-dir="+s.path(identity),
		"--dispatch-address="+ports[0], "--metrics-address="+ports[1], "--health-address="+ports[2], "--pprof-address="+ports[3])
	m.command.Env = append(os.Environ(), "POD_NAMESPACE="+apiservertest.OperatorNamespace, "POD_IP=127.0.0.1")
	m.command.Stdout, m.command.Stderr = log, log
	if err := m.command.Start(); err != nil {
		return nil, fmt.Errorf("start the operator (is it built?): %w", err)
	}
	s.processes[m.command.Process.Pid] = Operator
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
	return cluster.Eventually(ctx, "the operator to be ready", func(ctx context.Context) (bool, error) {
		select {
		case <-m.exited:
			return false, fmt.Errorf("it ended: %w", m.failed)
		default:
		}
		_, err := get(ctx, url)
		return err == nil, nil
	})
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

// Memory is what the operator has of the machine, and what its heap holds after a collection, in MiB.
type Memory struct{ Resident, Heap float64 }

// Mebi is bytes in a MiB.
const Mebi = 1 << 20

// Memory asks the process itself.
func (m *Manager) Memory(ctx context.Context) (Memory, error) {
	before, err := m.readMetrics(ctx)
	if err != nil {
		return Memory{}, err
	}
	// That collects the garbage.
	if _, err := get(ctx, m.pprof+"/debug/pprof/heap?gc=1"); err != nil {
		return Memory{}, err
	}
	after, err := m.readMetrics(ctx)
	return Memory{before["process_resident_memory_bytes"] / Mebi, after["go_memstats_heap_alloc_bytes"] / Mebi}, err
}

func (m *Manager) readMetrics(ctx context.Context) (map[string]float64, error) {
	page, err := get(ctx, m.metrics+"/metrics")
	if err != nil {
		return nil, err
	}
	return measure.ReadMetrics(page)
}

func get(ctx context.Context, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, response.Status)
	}
	return io.ReadAll(response.Body)
}
