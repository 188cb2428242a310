// Command cluster runs a single-node Kubernetes for development and tests, from
// unmodified upstream programs. The whole node lives in namespaces of its own,
// so that taking it down takes everything down.
package main

import (
	"errors"
	"fmt"
	"os"

	"toolcall.dev/operator/hack/cluster/internal/host"
	"toolcall.dev/operator/hack/cluster/internal/settings"
	"toolcall.dev/operator/hack/cluster/internal/supervisor"
)

const usage = `usage: cluster COMMAND

  up                      build what is missing, start, wait until the node is ready
  down                    stop everything and remove every trace but the build cache
  status                  say what runs; fails when nothing does
  kubeconfig              print the path of the kubeconfig
  load IMAGE.tar...       make images known to the node
  build                   build every program into the cache
  program NAME            build a program of the node if it is missing, print its path
  assets [--version 1.33] build etcd, kube-apiserver and kubectl, print their folder
  exec -- COMMAND...      run a command inside the node
  certificate FOLDER NAME...
                          make a self-signed server certificate: tls.crt and tls.key
  stop|start|restart|kill COMPONENT
                          for fault tests; stop lasts until start, kill is SIGKILL

environment:
  TOOLCALL_CLUSTER_DIR       state (/var/lib/toolcall-cluster)
  TOOLCALL_CACHE             built programs (~/.cache/toolcall-operator)
  TOOLCALL_CLUSTER_KUBERNETES  minor version on the node: 1.34, or empty for the newest
  TOOLCALL_CLUSTER_GVISOR=1  a node with gVisor as a second runtime, runsc
  TOOLCALL_CLUSTER_NO_FSYNC=1  etcd doesn't wait for the disk
  TOOLCALL_CLUSTER_SLOW=5    multiplies how long a start may take: for a translated processor
  TOOLCALL_NO_INSTALL=1      name missing Debian packages instead of installing
`

var errNotRunning = errors.New("the local cluster isn't running: make cluster-up starts it")

type app struct {
	settings settings.Settings
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return errors.New("no command given")
	}
	if args[0] == host.InitCommand && len(args) == 2 {
		return supervisor.Run(args[1], os.Stdin)
	}
	s, err := settings.FromEnv(os.Getenv)
	if err != nil {
		return err
	}
	return app{settings: s}.dispatch(args[0], args[1:])
}

func (a app) dispatch(command string, args []string) error {
	alone := func(run func() error) func([]string) error { return func([]string) error { return run() } }
	control := func(args []string) error { return a.control(command, args) }
	help := func([]string) error { _, err := fmt.Print(usage); return err }
	run, ok := map[string]func([]string) error{
		"up": alone(a.up), "down": alone(a.down), "status": alone(a.status), "kubeconfig": alone(a.kubeconfig), "build": alone(a.build),
		"load": a.load, "program": a.program, "assets": a.assets, "certificate": certificate, "exec": a.exec,
		"stop": control, "start": control, "restart": control, "kill": control,
		"help": help, "-h": help, "--help": help,
	}[command]
	if !ok {
		fmt.Fprint(os.Stderr, usage)
		return fmt.Errorf("%q is no command", command)
	}
	return run(args)
}
