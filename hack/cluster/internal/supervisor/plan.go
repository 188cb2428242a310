// Package supervisor is the first process inside the node's namespaces. It sets
// up mounts and the network from a plan, starts the plan's components in order,
// restarts those that end, reaps every orphan, and answers on a control socket.
// It knows nothing of Kubernetes. When it ends, the kernel ends all that runs
// below it, and takes the mounts and interfaces along.
package supervisor

import (
	"encoding/json"
	"fmt"
	"os"
)

// Plan is what one node consists of.
type Plan struct {
	Hostname  string
	StateDir  string
	Hide      []string
	Binds     []Bind
	Interface string
	Address   string
	Routes    []string
	// Pods is the pods' network: what they send elsewhere leaves with the node's address.
	Pods          string
	ControlSocket string
	LogDir        string
	Env           []string
	Components    []Component
}

// Bind makes the folder From visible as To.
type Bind struct {
	From, To string
}

// Component is one program that is kept running. Ready is an address whose
// answer means that those who come After may start.
type Component struct {
	Name  string
	Args  []string
	After []string
	Ready string
}

// ReadPlan reads what the starting side wrote.
func ReadPlan(path string) (Plan, error) {
	var p Plan
	text, err := os.ReadFile(path)
	if err != nil {
		return p, fmt.Errorf("reading the node's plan: %w", err)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return p, fmt.Errorf("reading the node's plan %s: %w", path, err)
	}
	return p, nil
}
