package plugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"toolcall.dev/operator/api/v1alpha1"
)

// maxStdin is the API's bound of stdin, in characters; as bytes it is what is read at most.
const maxStdin = 512 << 10

// callFlags describe a call. run and check have them both.
type callFlags struct {
	environment string
	skill       string
	shell       string
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
	name        string
	labels      map[string]string
	// set says whether a flag was given.
	set func(flag string) bool
}

func (f *callFlags) add(command *cobra.Command, s *session) {
	flags := command.Flags()
	flags.SetInterspersed(false)
	flags.StringVar(&f.environment, "env", "", "ExecutionEnvironment to run in; the namespace's default when unset")
	flags.StringVar(&f.skill, "skill", "", "Skill whose variables the call gets")
	flags.StringVar(&f.shell, "shell", "", "a command line for the environment's shell, instead of a program")
	flags.StringVar(&f.code, "code", "", "the language of a snippet to run, given by --filename")
	flags.StringVarP(&f.filename, "filename", "f", "", "with --code: the file with the snippet, or - for standard input")
	flags.StringVar(&f.tool, "tool", "", "a tool's name as a model calls it, e.g. bash or python, with --arguments")
	flags.StringVar(&f.arguments, "arguments", "", "with --tool: the JSON object of its arguments")
	flags.StringVarP(&f.workingDir, "working-dir", "w", "", "directory to start in; a relative one is joined with the image's")
	flags.StringArrayVarP(&f.env, "set-env", "e", nil, "a variable as NAME=VALUE, for this call alone; may be repeated")
	flags.DurationVar(&f.timeout, "timeout", 0, "time limit of the process, e.g. 30s; the policy's default when unset")
	flags.DurationVar(&f.ttl, "ttl", 0, "how long the finished call stays, e.g. 10m; the environment's value when unset")
	flags.BoolVarP(&f.stdin, "stdin", "i", false, "feed standard input, read to its end, to the process")
	flags.BoolVar(&f.trusted, "trusted", false, "keep blocked variables; needs the right to \"trust\" executionenvironments")
	flags.BoolVar(&f.network, "network", false, "with --code: ask for network access; the policy must allow it")
	flags.StringVar(&f.name, "name", "", "name of the call: a name runs at most once; made up when unset")
	flags.StringToStringVarP(&f.labels, "labels", "l", nil, "labels of the call, e.g. team=search,kueue.x-k8s.io/queue-name=batch")
	f.set = flags.Changed
	must(command.RegisterFlagCompletionFunc("env", s.completeEnvironments))
	must(command.RegisterFlagCompletionFunc("skill", s.completeSkills))
	must(command.RegisterFlagCompletionFunc("code", completeFrom("python", "javascript", "bash", "sh", "ruby", "perl")))
	must(command.MarkFlagFilename("filename"))
}

// build makes the call of the flags and the command line's arguments.
func (f *callFlags) build(args []string, stdin io.Reader) (*v1alpha1.ToolCall, error) {
	call := &v1alpha1.ToolCall{}
	call.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ToolCall"))
	call.Name, call.GenerateName, call.Labels = f.name, "", f.labels
	if f.name == "" {
		call.GenerateName = "run-"
	}
	for _, step := range []func(*v1alpha1.ToolCallSpec) error{
		func(spec *v1alpha1.ToolCallSpec) error { return f.action(spec, args, stdin) },
		f.variables, f.limits,
		func(spec *v1alpha1.ToolCallSpec) error { return f.input(spec, stdin) },
	} {
		if err := step(&call.Spec); err != nil {
			return nil, err
		}
	}
	if f.environment != "" {
		call.Spec.EnvironmentRef = &v1alpha1.LocalReference{Name: f.environment}
	}
	if f.skill != "" {
		call.Spec.SkillRef = &v1alpha1.LocalReference{Name: f.skill}
	}
	call.Spec.WorkingDir, call.Spec.Trusted = f.workingDir, f.trusted
	return call, nil
}

// errAction says what a command line must have.
var errAction = errors.New("say what to run, in one way: a program after --, --shell 'a | b', --code LANGUAGE -f FILE, or --tool NAME --arguments JSON")

func (f *callFlags) action(spec *v1alpha1.ToolCallSpec, args []string, stdin io.Reader) error {
	ways := 0
	for _, given := range []bool{len(args) > 0, f.set("shell"), f.set("code"), f.set("tool")} {
		if given {
			ways++
		}
	}
	switch {
	case ways != 1:
		return errAction
	case !f.set("code") && (f.filename != "" || f.network):
		return errors.New("--filename and --network belong to --code LANGUAGE")
	case !f.set("tool") && f.arguments != "":
		return errors.New("--arguments belongs to --tool NAME")
	case len(args) > 0:
		spec.Structured = &v1alpha1.StructuredAction{Binary: args[0], Args: args[1:]}
	case f.set("shell"):
		spec.Shell = &v1alpha1.ShellAction{Command: f.shell}
	case f.set("tool"):
		return f.toolCall(spec)
	default:
		return f.snippet(spec, stdin)
	}
	return nil
}

func (f *callFlags) toolCall(spec *v1alpha1.ToolCallSpec) error {
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

func (f *callFlags) snippet(spec *v1alpha1.ToolCallSpec, stdin io.Reader) error {
	var source string
	var err error
	switch f.filename {
	case "":
		return errors.New("name the snippet's file with --filename (-f), - for standard input")
	case "-":
		if f.stdin {
			return errors.New("standard input can be the snippet (-f -) or the process's input (--stdin), not both")
		}
		source, err = readText("the snippet", stdin, v1alpha1.MaxSourceBytes)
	default:
		source, err = readFile(f.filename)
	}
	if err != nil {
		return err
	}
	spec.Code = &v1alpha1.CodeAction{Language: f.code, Source: source}
	if f.network {
		spec.Code.NetworkAccess = ptr.To(true)
	}
	return nil
}

func readFile(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("read the snippet: %w", err)
	}
	defer file.Close()
	return readText(name, file, v1alpha1.MaxSourceBytes)
}

// readText reads no more than is needed to see that there is too much.
func readText(what string, from io.Reader, limit int) (string, error) {
	data, err := io.ReadAll(io.LimitReader(from, int64(limit)+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("read %s: %w", what, err)
	case len(data) > limit:
		return "", fmt.Errorf("%s is longer than %d bytes: put large data into the environment's image or a volume", what, limit)
	case !utf8.Valid(data):
		return "", fmt.Errorf("%s isn't UTF-8 text, and a call can carry nothing else: encode it, e.g. with base64", what)
	default:
		return string(data), nil
	}
}

func (f *callFlags) variables(spec *v1alpha1.ToolCallSpec) error {
	for _, pair := range f.env {
		name, value, ok := strings.Cut(pair, "=")
		if !ok || name == "" {
			return fmt.Errorf("-e %q: write a variable as NAME=VALUE", pair)
		}
		spec.Env = append(spec.Env, v1alpha1.CallEnvVar{Name: name, Value: value})
	}
	return nil
}

func (f *callFlags) limits(spec *v1alpha1.ToolCallSpec) error {
	if f.set("timeout") {
		if f.timeout < time.Second {
			return fmt.Errorf("--timeout %s: give at least 1s", f.timeout)
		}
		limit, err := seconds("timeout", f.timeout)
		if err != nil {
			return err
		}
		spec.TimeoutSeconds = &limit
	}
	if f.set("ttl") {
		keep, err := seconds("ttl", f.ttl)
		if err != nil {
			return err
		}
		spec.TTLSecondsAfterFinished = &keep
	}
	return nil
}

func seconds(flag string, d time.Duration) (int32, error) {
	if d < 0 || d%time.Second != 0 || d/time.Second > 1<<31-1 {
		return 0, fmt.Errorf("--%s %s: give whole seconds, e.g. 90s or 5m", flag, d)
	}
	return int32(d / time.Second), nil
}

func (f *callFlags) input(spec *v1alpha1.ToolCallSpec, stdin io.Reader) (err error) {
	if !f.stdin {
		return nil
	}
	spec.Stdin, err = readText("standard input", stdin, maxStdin)
	return err
}
