package calls

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

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
	// Template is what the flags say of the call, without what is read when it is built.
	Template            v1alpha1.ToolCall
	filename, arguments string
	stdin, network      bool
}

func (f *Flags) Add(command *cobra.Command, c *cli.CLI) {
	spec := &f.Template.Spec
	command.Flags().SetInterspersed(false)
	cli.AddReferenceFlag(command, &spec.EnvironmentRef, "environment", "ExecutionEnvironment to run in (default: the namespace's default environment)", c.Complete(cli.ListEnvironments))
	cli.AddReferenceFlag(command, &spec.SkillRef, "skill", "Skill to take variables from", c.Complete(cli.ListSkills))
	cli.AddNameFlag(command, "session", "ToolSession to run in, with its environment and skill", c.Complete(cli.ListSessions), f.SetSession)
	f.AddAction(command)
	command.ValidArgsFunction = cli.CompleteTools(c)
}

// SetSession has the call run in the session of that name.
func (f *Flags) SetSession(name string) {
	f.Template.Spec.SessionRef = &v1alpha1.SessionReference{Name: name}
}

// AddAction adds the flags that don't say where the call runs.
func (f *Flags) AddAction(command *cobra.Command) {
	flags, spec := command.Flags(), &f.Template.Spec
	flags.BoolVar(&spec.Background, "background", false, "in a session: a server or watcher, which runs beside the session's other calls")
	flags.Func("shell", "command line for the environment's shell", func(line string) error {
		spec.Shell = &v1alpha1.ShellAction{Command: line}
		return nil
	})
	cli.AddNameFlag(command, "code", "language of the code in --filename", cli.CompleteFrom(Languages...), func(language string) {
		spec.Code = &v1alpha1.CodeAction{Language: language}
	})
	flags.StringVarP(&f.filename, "filename", "f", "", "with --code: file with the code, or - for standard input")
	cli.AddNameFlag(command, "tool", "name of a tool as a model calls it, e.g. bash or python", cli.CompleteFrom(), func(name string) {
		spec.Tool = &v1alpha1.ToolAction{Name: name}
	})
	flags.StringVar(&f.arguments, "arguments", "", "with --tool: arguments of the tool, as a JSON object")
	f.AddContext(command)
	flags.BoolVarP(&f.stdin, "stdin", "i", false, "read standard input to its end and pass it to the command")
	flags.BoolVar(&spec.Trusted, "trusted", false, "keep blocked variables; needs the verb \"trust\" on executionenvironments")
	flags.BoolVar(&f.network, "network", false, "with --code: request network access, which the policy must allow")
	f.addName(command, "name of the call; a call with a given name runs at most once (default: generated)")
	cli.Must(command.RegisterFlagCompletionFunc("filename", cli.CompleteFiles))
}

func (f *Flags) addName(command *cobra.Command, usage string) {
	cli.AddNameFlag(command, "name", usage, cli.CompleteFrom(), func(name string) { f.Template.Name = name })
}

// AddContext adds the flags that many calls can share.
func (f *Flags) AddContext(command *cobra.Command) {
	flags, spec := command.Flags(), &f.Template.Spec
	flags.StringVarP(&spec.WorkingDir, "working-dir", "w", "", "directory to start in; a relative path is relative to the image's working directory")
	cli.AddVariableFlag(command, &spec.Env, "environment variable as NAME=VALUE; can be repeated")
	flags.Func("network-host", "host that the call may reach, of those that the policy allows: a name, *. and a name, an address or a CIDR; can be repeated (default: all that the policy allows)", cli.Parsed(f.addHost))
	flags.StringArrayVar(&spec.Collect, "collect", nil, "glob of files to keep as artifacts when the command has ended, e.g. 'build/**/*.xml'; can be repeated; \"artifacts\" lists and gets them")
	cli.AddSecondsFlag(command, &spec.TimeoutSeconds, "timeout", "time limit of the command, e.g. 30s (default: the policy's default)", time.Second)
	cli.AddSecondsFlag(command, &spec.TTLSecondsAfterFinished, "ttl", "how long to keep the finished call, e.g. 10m (default: the environment's value; 5m in a session)", 0)
	flags.StringToStringVarP(&f.Template.Labels, "labels", "l", nil, "labels to set on the call, e.g. team=search,kueue.x-k8s.io/queue-name=batch")
}

// addHost adds a host that the call narrows its network to. Whether the policy allows it, the operator decides.
func (f *Flags) addHost(host string) error {
	_, err := network.Narrow(&network.Rules{Mode: network.Open}, []string{host})
	var wrong *network.Error
	if errors.As(err, &wrong) {
		return fmt.Errorf("--network-host: %s", wrong.Problem)
	}
	spec := &f.Template.Spec
	if spec.Network == nil {
		spec.Network = &v1alpha1.CallNetwork{}
	}
	spec.Network.Hosts = append(spec.Network.Hosts, host)
	return nil
}

// Build builds the call from the flags and the arguments of the command line.
func (f *Flags) Build(args []string, stdin io.Reader) (*v1alpha1.ToolCall, error) {
	call := f.Template.DeepCopy()
	if call.Name == "" {
		call.GenerateName = "run-"
	}
	spec := &call.Spec
	switch {
	case spec.Background && spec.SessionRef == nil:
		return nil, errors.New("--background needs --session: only the pod of a session runs on when a command goes to the background; to leave a call without a session running, use --detach")
	case spec.SessionRef != nil && (spec.EnvironmentRef != nil || spec.SkillRef != nil):
		return nil, errors.New("--session can't be used with --environment or --skill: a call in a session has the session's environment and skill, which \"kubectl toolcall session start\" sets")
	}
	err := f.checkTexts(args)
	if err == nil {
		err = f.setAction(spec, args, stdin)
	}
	if err != nil {
		return nil, err
	}
	if f.stdin {
		spec.Stdin, err = readText("standard input", stdin, maxStdin)
	}
	return call, err
}

// checkTexts checks the texts that the command line gives.
func (f *Flags) checkTexts(args []string) error {
	spec := &f.Template.Spec
	if spec.Shell != nil {
		if err := cli.CheckText("the line", spec.Shell.Command); err != nil {
			return err
		}
	}
	for _, text := range slices.Concat(args, spec.Collect, []string{spec.WorkingDir, f.arguments}) {
		if err := cli.CheckText(strconv.Quote(text), text); err != nil {
			return err
		}
	}
	return nil
}

// ReadsStdin reports whether the call has something of standard input.
func (f *Flags) ReadsStdin() bool { return f.stdin || f.filename == "-" }

// errAction names the ways to specify an action.
var errAction = errors.New("specify what to run in exactly one way: a program after --, --shell 'a | b', --code LANGUAGE -f FILE, or --tool NAME --arguments JSON")

func (f *Flags) setAction(spec *v1alpha1.ToolCallSpec, args []string, stdin io.Reader) error {
	given := 0
	for _, way := range []bool{len(args) > 0, spec.Shell != nil, spec.Code != nil, spec.Tool != nil} {
		if way {
			given++
		}
	}
	switch {
	case given != 1:
		return errAction
	case spec.Code == nil && (f.filename != "" || f.network):
		return errors.New("--filename and --network can only be used with --code")
	case spec.Tool == nil && f.arguments != "":
		return errors.New("--arguments can only be used with --tool")
	case len(args) > 0:
		spec.Structured = &v1alpha1.StructuredAction{Binary: args[0], Args: args[1:]}
	case f.arguments != "":
		return f.setArguments(spec.Tool)
	case spec.Code != nil:
		return f.readCode(spec.Code, stdin)
	}
	return nil
}

func (f *Flags) setArguments(tool *v1alpha1.ToolAction) error {
	var object map[string]any
	if err := json.Unmarshal([]byte(f.arguments), &object); err != nil || object == nil {
		return errors.New(`--arguments must be a JSON object, e.g. '{"command": "ls"}'`)
	}
	tool.Arguments = &runtime.RawExtension{Raw: []byte(f.arguments)}
	return nil
}

func (f *Flags) readCode(code *v1alpha1.CodeAction, stdin io.Reader) error {
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
	code.Source, err = readText(what, in, v1alpha1.MaxSourceBytes)
	if f.network {
		code.NetworkAccess = ptr.To(true)
	}
	return err
}

// readText reads at most one byte more than the limit.
func readText(what string, from io.Reader, limit int) (string, error) {
	data, err := io.ReadAll(io.LimitReader(from, int64(limit)+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", what, err)
	case len(data) > limit:
		return "", fmt.Errorf("%s is longer than %d bytes: put large data into the image or a volume of the environment", what, limit)
	default:
		return string(data), cli.CheckText(what, string(data))
	}
}
