// Command provisioner makes the volumes of the local node's claims. Each volume is a file system in a file of the
// claim's size, so it is full where the claim ends. It runs inside the node's mount namespace: the mounts end with the
// node, and so do their loop devices.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/sig-storage-lib-external-provisioner/v13/controller"
)

type options struct {
	kubeconfig  string
	name        string
	node        string
	dir         string
	metricsPort int
}

func main() {
	var o options
	flag.StringVar(&o.kubeconfig, "kubeconfig", "", "file with the API server's address and this program's identity")
	flag.StringVar(&o.name, "name", "", "the provisioner that StorageClasses name")
	flag.StringVar(&o.node, "node", "", "name of the node that this program runs on")
	flag.StringVar(&o.dir, "dir", "", "folder to keep volumes in")
	flag.IntVar(&o.metricsPort, "metrics-port", 0, "port of the loopback address to serve /metrics on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "provisioner:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	if o.kubeconfig == "" || o.name == "" || o.node == "" || o.dir == "" || o.metricsPort == 0 {
		return errors.New("give every flag: -kubeconfig, -name, -node, -dir, -metrics-port")
	}
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make the client: %w", err)
	}
	p := &provisioner{node: o.node, disks: disks{dir: o.dir}}
	controller.NewProvisionController(ctx, client, o.name, p,
		controller.LeaderElection(false),
		// A volume that is deleted before its claim is removed too.
		controller.AddFinalizer(true),
		controller.MetricsAddress("127.0.0.1"),
		controller.MetricsPort(int32(o.metricsPort)),
	).Run(ctx)
	return nil
}
