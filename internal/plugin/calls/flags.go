package calls

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
	"toolcall.dev/operator/internal/network"
	"toolcall.dev/operator/internal/plugin/cli"
)

// maxStdin bounds standard input in bytes. The API bounds it in characters.
const maxStdin = 512 << 10

// Languages are those that environments have interpreters for by default.
var Languages = []string{"python", "javascript", "bash", "sh", "ruby", "perl"}

// Flags are the flags of run and check that describe a call.
type Flags struct {
	environment string
	skill       string
	Session     string
	background  bool
	Shell       string
	code        string
	filename    string
	tool        string
	arguments   string
	workingDir  string
	env         []string
	timeout     time.Duration
	ttl         time.Duration
	stdin       bool
	trusted     bool
	network     bool
	hosts       []string
	collect     []string
	name        string
	labels      map[string]string
	// Changed reports whether the user set a flag.
	Changed func(flag string) bool
}

func (f *Flags) Add(command *cobra.Command, c *cli.CLI) {
	command.Flags().SetInterspersed(false)
	cli.AddFlag(command, &f.environment, "environment", "", "ExecutionEnvironment to run in (default: the namespace's default environment)", c.Complete(cli.ListEnvironments))
	cli.AddFlag(command, &f.skill, "skill", "", "Skill to take variables from", c.Complete(cli.ListSkills))
	cli.AddFlag(command, &f.Session, "session", "", "ToolSession to run in, with its environment and skill", c.Complete(cli.ListSessions))
	f.AddAction(command)
	command.ValidArgsFunction = cli.CompleteTools(c)
}

// AddAction adds the flags that don't say where the call runs.
func (f *Flags) AddAction(command *cobra.Command) {
	flags := command.Flags()
	flags.BoolVar(&f.background, "background", false, "in a session: a server or watcher, which runs beside the session's other calls")
	flags.StringVar(&f.Shell, "shell", "", "command line for the environment's shell")
	cli.AddFlag(command, &f.code, "code", "", "language of the code in --filename", cli.CompleteFrom(Languages...))
	flags.StringVarP(&f.filename, "filename", "f", "", "with --code: file with the code, or - for standard input")
	flags.StringVar(&f.tool, "tool", "", "name of a tool as a model calls it, e.g. bash or python")
	flags.StringVar(&f.arguments, "arguments", "", "with --tool: arguments of the tool, as a JSON object")
	f.AddContext(command)
	flags.BoolVarP(&f.stdin, "stdin", "i", false, "read standard input to its end and pass it to the command")
	flags.BoolVar(&f.trusted, "trusted", false, "keep blocked variables; needs the verb \"trust\" on executionenvironments")
	flags.BoolVar(&f.network, "network", false, "with --code: request network access, which the policy must allow")
	flags.StringVar(&f.name, "name", "", "name of the call; a call with a given name runs at most once (default: generated)")
	cli.Must(command.RegisterFlagCompletionFunc("filename", cli.CompleteFiles))
}

// AddContext adds the flags that many calls can share.
func (f *Flags) AddContext(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVarP(&f.workingDir, "working-dir", "w", "", "directory to start in; a relative path is relative to the image's working directory")
	cli.AddVariableFlag(command, &f.env, "environment variable as NAME=VALUE; can be repeated")
	flags.StringArrayVar(&f.hosts, "network-host", nil, "host that the call may reach, of those that the policy allows: a name, *. and a name, an address or a CIDR; can be repeated (default: all that the policy allows)")
	flags.StringArrayVar(&f.collect, "collect", nil, "glob of files to keep as artifacts when the command has ended, e.g. 'build/**/*.xml'; can be repeated; \"artifacts\" lists and gets them")
	flags.DurationVar(&f.timeout, "timeout", 0, "time limit of the command, e.g. 30s (default: the policy's default)")
	flags.DurationVar(&f.ttl, "ttl", 0, "how long to keep the finished call, e.g. 10m (default: the environment's value; 5m in a session)")
	flags.StringToStringVarP(&f.labels, "labels", "l", nil, "labels to set on the call, e.g. team=search,kueue.x-k8s.io/queue-name=batch")
	f.Changed = flags.Changed
}

// Build builds the call from the flags and the arguments of the command line.
func (f *Flags) Build(args []string, stdin io.Reader) (*v1alpha1.ToolCall, error) {
	// A variable of a script may be empty.
	for flag, name := range map[string]string{"name": f.name, "session": f.Session, "environment": f.environment, "skill": f.skill} {
		if name == "" && f.Changed(flag) {
			return nil, fmt.Errorf("--%s: give a name, or leave the flag out", flag)
		}
	}
	call := &v1alpha1.ToolCall{}
	call.Name, call.GenerateName, call.Labels = f.name, "", f.labels
	if f.name == "" {
		call.GenerateName = "run-"
	}
	spec := &call.Spec
	spec.WorkingDir, spec.Trusted, spec.Collect = f.workingDir, f.trusted, f.collect
	variables, err := cli.Variables(f.env)
	spec.Env = variables
	if err := cmp.Or(err, f.setPlace(spec), f.setNetwork(spec), f.setLimits(spec)); err != nil {
		return nil, err
	}
	if err := f.setAction(spec, args, stdin); err != nil {
		return nil, err
	}
	if f.stdin {
		spec.Stdin, err = readText("standard input", stdin, maxStdin)
	}
	return call, err
}

// setPlace sets where the call runs.
func (f *Flags) setPlace(spec *v1alpha1.ToolCallSpec) error {
	switch {
	case f.background && f.Session == "":
		return errors.New("--background needs --session: only the pod of a session runs on when a command goes to the background; to leave a call without a session running, use --detach")
	case f.Session != "" && (f.environment != "" || f.skill != ""):
		return errors.New("--session can't be used with --environment or --skill: a call in a session has the session's environment and skill, which \"kubectl toolcall session start\" sets")
	}
	if f.Session != "" {
		spec.SessionRef = &v1alpha1.SessionReference{Name: f.Session}
	}
	spec.EnvironmentRef, spec.SkillRef, spec.Background = cli.Reference(f.environment), cli.Reference(f.skill), f.background
	return nil
}

// ReadsStdin reports whether the call has something of standard input.
func (f *Flags) ReadsStdin() bool { return f.stdin || f.filename == "-" }

// errAction names the ways to specify an action.
var errAction = errors.New("specify what to run in exactly one way: a program after --, --shell 'a | b', --code LANGUAGE -f FILE, or --tool NAME --arguments JSON")

func (f *Flags) setAction(spec *v1alpha1.ToolCallSpec, args []string, stdin io.Reader) error {
	given := 0
	for _, flag := range []bool{len(args) > 0, f.Changed("shell"), f.Changed("code"), f.Changed("tool")} {
		if flag {
			given++
		}
	}
	switch {
	case given != 1:
		return errAction
	case !f.Changed("code") && (f.filename != "" || f.network):
		return errors.New("--filename and --network can only be used with --code")
	case !f.Changed("tool") && f.arguments != "":
		return errors.New("--arguments can only be used with --tool")
	case len(args) > 0:
		spec.Structured = &v1alpha1.StructuredAction{Binary: args[0], Args: args[1:]}
	case f.Changed("shell"):
		spec.Shell = &v1alpha1.ShellAction{Command: f.Shell}
	case f.Changed("tool"):
		return f.setTool(spec)
	default:
		return f.setCode(spec, stdin)
	}
	return nil
}

func (f *Flags) setTool(spec *v1alpha1.ToolCallSpec) error {
	spec.Tool = &v1alpha1.ToolAction{Name: f.tool}
	if f.arguments == "" {
		return nil
	}
	var object map[string]any
	if err := json.Unmarshal([]byte(f.arguments), &object); err != nil || object == nil {
		return errors.New(`--arguments must be a JSON object, e.g. '{"command": "ls"}'`)
	}
	spec.Tool.Arguments = &runtime.RawExtension{Raw: []byte(f.arguments)}
	return nil
}

func (f *Flags) setCode(spec *v1alpha1.ToolCallSpec, stdin io.Reader) error {
	switch {
	case f.filename == "":
		return errors.New("specify the file with the code with --filename (-f), - for standard input")
	case f.filename == "-" && f.stdin:
		return errors.New("standard input can be the code (-f -) or the input of the command (--stdin), not both")
	}
	in, err := cli.Open(f.filename, stdin)
	if err != nil {
		return fmt.Errorf("read the code: %w", err)
	}
	defer in.Close()
	what := map[bool]string{true: "the code", false: f.filename}[f.filename == "-"]
	source, err := readText(what, in, v1alpha1.MaxSourceBytes)
	if err != nil {
		return err
	}
	spec.Code = &v1alpha1.CodeAction{Language: f.code, Source: source}
	if f.network {
		spec.Code.NetworkAccess = ptr.To(true)
	}
	return nil
}

// readText reads at most one byte more than the limit.
func readText(what string, from io.Reader, limit int) (string, error) {
	data, err := io.ReadAll(io.LimitReader(from, int64(limit)+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", what, err)
	case len(data) > limit:
		return "", fmt.Errorf("%s is longer than %d bytes: put large data into the image or a volume of the environment", what, limit)
	case !utf8.Valid(data):
		return "", fmt.Errorf("%s is not UTF-8 text: a call can only carry text, so encode the data, for example with base64", what)
	default:
		return string(data), nil
	}
}

// setNetwork sets the hosts that the call narrows its network to. Whether the policy allows them, the operator decides.
func (f *Flags) setNetwork(spec *v1alpha1.ToolCallSpec) error {
	for _, host := range f.hosts {
		_, err := network.Narrow(&network.Rules{Mode: network.Open}, []string{host})
		var wrong *network.Error
		if errors.As(err, &wrong) {
			return fmt.Errorf("--network-host: %s", wrong.Problem)
		}
	}
	if len(f.hosts) > 0 {
		spec.Network = &v1alpha1.CallNetwork{Hosts: f.hosts}
	}
	return nil
}

func (f *Flags) setLimits(spec *v1alpha1.ToolCallSpec) error {
	if f.Changed("timeout") && f.timeout < time.Second {
		return fmt.Errorf("--timeout %s: must be at least 1s", f.timeout)
	}
	return cmp.Or(
		cli.SetSeconds(&spec.TimeoutSeconds, "timeout", f.timeout, f.Changed),
		cli.SetSeconds(&spec.TTLSecondsAfterFinished, "ttl", f.ttl, f.Changed))
}
