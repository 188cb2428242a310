// Package operator puts the operator together: caches, controllers, the listener for runners, and the
// identity that all replicas share. It decides nothing about calls.
package operator

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"toolcall.dev/operator/internal/jobspec"
	"toolcall.dev/operator/internal/output/store"
	"toolcall.dev/operator/internal/tracing"
)

// Options are what the command line and the pod say.
type Options struct {
	RunnerImage string
	// RunnerDelivery is how the runner comes into pods: DeliverAuto, DeliverMounted or DeliverCopied.
	RunnerDelivery  string
	DispatchAddress string
	IdentityDir     string
	MetricsAddress  string
	HealthAddress   string
	PprofAddress    string
	LeaderElect     bool
	ConcurrentCalls int
	QPS             float64
	// Namespaces are those to work in; empty for the whole cluster.
	Namespaces []string
	// MaxPendingCalls and MaxPendingBytes bound what one requester keeps pending; 0 for no bound.
	MaxPendingCalls int
	MaxPendingBytes int64
	// OutputAPI serves the output of calls as an aggregated API, at an address that a Service leads to.
	OutputAPI        bool
	OutputAPIAddress string
	// OutputAPICertDir has the certificate of the aggregated API that somebody else makes; empty for the operator's own.
	OutputAPICertDir string
	// OutputStore is where output is kept that is more than the status of a call holds; empty for nowhere.
	OutputStore string
	// AuditLog is the file that records are written to, auditToStdout for the standard output; empty for none. The file is rotated
	// at AuditLogMaxMegabytes, and AuditLogMaxFiles are kept.
	AuditLog             string
	AuditLogMaxMegabytes int
	AuditLogMaxFiles     int
	// Trace says what spans hold of calls besides names.
	Trace tracing.Options
	// Users are those that the calls of namespaces run as.
	Users jobspec.UserRange

	// Namespace and PodIP are the operator's own.
	Namespace string
	PodIP     string
}

// What is in the operator's namespace, by the names that its manifests and its rights have: the Service that leads to the address for
// runners, the one that leads to the aggregated API, and the Secret of the identity, which is made when it isn't there.
const (
	dispatchService  = "toolcall-dispatch"
	outputAPIService = "toolcall-subresources"
	identityName     = "toolcall-identity"
)

// How the runner comes into pods.
const (
	// DeliverAuto is DeliverMounted where the API server and every node have image volumes, and DeliverCopied elsewhere.
	DeliverAuto = "Auto"
	// DeliverMounted mounts the runner's image as a volume.
	DeliverMounted = "ImageVolume"
	// DeliverCopied has an init container copy the runner.
	DeliverCopied = "InitContainer"
)

// Lease timing. A leader that is gone without saying so is followed after leaseDuration.
const (
	leaseDuration = 8 * time.Second
	renewDeadline = 4 * time.Second
	retryPeriod   = time.Second
)

// Bind defines the flags.
func (o *Options) Bind(fs *flag.FlagSet, getenv func(string) string) {
	fs.StringVar(&o.RunnerImage, "runner-image", "", "image that holds /runner, which is the first process of every tool pod (required)")
	fs.StringVar(&o.RunnerDelivery, "runner-delivery", DeliverAuto, "how the runner comes into pods: ImageVolume mounts its image, InitContainer copies it, Auto mounts it if the API server and every node can when the operator starts")
	fs.StringVar(&o.DispatchAddress, "dispatch-address", ":9443", "address to listen on for runners")
	fs.StringVar(&o.IdentityDir, "identity-dir", "/etc/toolcall/identity", "where the identity's Secret is mounted")
	fs.StringVar(&o.MetricsAddress, "metrics-address", ":8080", "address to serve metrics on, 0 for none")
	fs.StringVar(&o.HealthAddress, "health-address", ":8081", "address to serve health and readiness on")
	fs.StringVar(&o.PprofAddress, "pprof-address", "", "loopback address to serve Go's profiles on, e.g. 127.0.0.1:6060; empty for none. They show memory: never serve them to others")
	fs.BoolVar(&o.LeaderElect, "leader-elect", true, "work only while holding the lease; needed for more than one replica")
	fs.IntVar(&o.ConcurrentCalls, "concurrent-calls", 16, "calls that are reconciled at the same time")
	fs.Float64Var(&o.QPS, "qps", 1000, "requests to the API server per second, with bursts of twice that")
	fs.Func("namespaces", "`names` of the namespaces to work in, commas between; empty for all. The rights of the operator's account must cover them", func(text string) error {
		o.Namespaces = nil
		for name := range strings.SplitSeq(text, ",") {
			// Each is followed once, so that nothing is recorded twice.
			if name = strings.TrimSpace(name); name != "" && !slices.Contains(o.Namespaces, name) {
				o.Namespaces = append(o.Namespaces, name)
			}
		}
		return nil
	})
	fs.IntVar(&o.MaxPendingCalls, "max-pending-calls", 2000, "calls that one requester may keep pending; more are denied with BudgetExceeded. 0 for no bound")
	fs.Int64Var(&o.MaxPendingBytes, "max-pending-bytes", 64<<20, "bytes of input that the pending calls of one requester may hold; more is denied with BudgetExceeded. 0 for no bound")
	fs.BoolVar(&o.OutputAPI, "output-api", true, "serve the output of calls as the aggregated API subresources.toolcall.dev. Turn it off only where its APIService isn't installed: one that doesn't answer keeps every namespace from being deleted")
	fs.StringVar(&o.OutputAPIAddress, "output-api-address", ":10250", "address to serve the aggregated API on")
	fs.StringVar(&o.OutputAPICertDir, "output-api-cert-dir", "", "`folder` with tls.crt and tls.key, which cert-manager for example renews, for the aggregated API. Whoever makes them also writes the APIService's caBundle. Empty: the operator makes its own, and writes it")
	fs.StringVar(&o.OutputStore, "output-store", "", "`location` of the output store, which keeps what the status of a call leaves out of its output: s3://BUCKET, gs://BUCKET, azblob://CONTAINER, or file:///FOLDER with one replica only; empty for none. Give the credentials to the pod. No other operator may use the location")
	fs.StringVar(&o.AuditLog, "audit-log", "", "`file` that a record of each ended call and session and of each transfer is written to, - for the standard output; empty for none. A file must be on a volume that all replicas mount, or each of them writes a log of its own")
	fs.IntVar(&o.AuditLogMaxMegabytes, "audit-log-max-megabytes", 100, "size in MiB at which the file of --audit-log is rotated")
	fs.IntVar(&o.AuditLogMaxFiles, "audit-log-max-files", 10, "files of --audit-log that are kept, with the one that is written to; the oldest is deleted")
	fs.BoolVar(&o.Trace.Arguments, "trace-arguments", false, "record the command, source or arguments of calls in their spans, up to 4 KiB; not of calls with more input than that. Whoever reads traces reads them")
	fs.BoolVar(&o.Trace.Results, "trace-results", false, "record the output of calls in their spans, up to 4 KiB. Whoever reads traces reads it")
	fs.Func("user-ids", "`range` of user IDs, FIRST-LAST, such as 1000000000-1999999999: calls of each namespace run as a user and group of their own from it, unless the environment names others. Empty: all run as 1000, and share what the kernel counts for a user", func(text string) (err error) {
		o.Users, err = jobspec.ParseUserRange(text)
		return err
	})
	o.Namespace = getenv("POD_NAMESPACE")
	o.PodIP = getenv("POD_IP")
}

// Validate says what is missing or can't be.
func (o *Options) Validate() error {
	_, err := portOf("--dispatch-address", o.DispatchAddress)
	wrong := []error{err, o.checkPprof()}
	check := func(isGood bool, format string, args ...any) {
		if !isGood {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	check(o.RunnerImage != "", "--runner-image is required: the image that holds the runner")
	check(slices.Contains([]string{DeliverAuto, DeliverMounted, DeliverCopied}, o.RunnerDelivery),
		"--runner-delivery is %q, it must be %s, %s or %s", o.RunnerDelivery, DeliverAuto, DeliverMounted, DeliverCopied)
	check(o.Namespace != "" && o.PodIP != "", "variables POD_NAMESPACE and POD_IP are required: set them from the pod's fields")
	check(o.ConcurrentCalls >= 1 && o.ConcurrentCalls <= 1024, "--concurrent-calls is %d, it must be between 1 and 1024", o.ConcurrentCalls)
	check(o.MaxPendingCalls >= 0 && o.MaxPendingBytes >= 0,
		"--max-pending-calls is %d and --max-pending-bytes %d: neither may be below 0", o.MaxPendingCalls, o.MaxPendingBytes)
	for _, name := range o.Namespaces {
		problems := validation.IsDNS1123Label(name)
		check(len(problems) == 0, "--namespaces: %q is no name of a namespace: %s", name, strings.Join(problems, "; "))
	}
	check(o.QPS > 0, "--qps is %g, it must be above 0", o.QPS)
	if o.OutputAPI {
		_, err := portOf("--output-api-address", o.OutputAPIAddress)
		wrong = append(wrong, err)
	}
	if o.OutputStore != "" {
		_, err := store.ParseLocation(o.OutputStore)
		check(err == nil, "--output-store: %w", err)
	}
	check(o.AuditLog == "" || isWithin(o.AuditLogMaxMegabytes, maxAuditMegabytes) && isWithin(o.AuditLogMaxFiles, maxAuditFiles),
		"--audit-log-max-megabytes is %d and --audit-log-max-files %d: they must be between 1 and %d, and 1 and %d",
		o.AuditLogMaxMegabytes, o.AuditLogMaxFiles, maxAuditMegabytes, maxAuditFiles)
	return errors.Join(wrong...)
}

func isWithin(n, most int) bool { return n >= 1 && n <= most }

// checkPprof keeps profiles on this machine: whoever can read them can read what is in memory.
func (o *Options) checkPprof() error {
	if o.PprofAddress == "" {
		return nil
	}
	host, _, err := net.SplitHostPort(o.PprofAddress)
	if err != nil {
		return fmt.Errorf("--pprof-address %q: %w", o.PprofAddress, err)
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--pprof-address %q must be on a loopback address, e.g. 127.0.0.1:6060", o.PprofAddress)
	}
	return nil
}

// portOf is the port of an address that a flag gives.
func portOf(name, address string) (int32, error) {
	_, text, err := net.SplitHostPort(address)
	if err != nil {
		return 0, fmt.Errorf("%s %q: %w", name, address, err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return 0, fmt.Errorf("%s %q: the port must be a number between 1 and 65535", name, address)
	}
	return int32(port), nil
}
