package guards

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"toolcall.dev/operator/api/v1alpha1"
)

// Compile applies spec to the built-in defaults; a nil spec leaves the defaults as they are. The error names the field
// that is invalid and the values that are valid. It doesn't rely on the API's schema, and is stricter.
func Compile(spec *v1alpha1.ExecutionPolicySpec) (*Policy, error) {
	if spec == nil {
		spec = &v1alpha1.ExecutionPolicySpec{}
	}
	p := &Policy{}
	steps := []func(*v1alpha1.ExecutionPolicySpec) error{
		p.compileAccess, p.compileShell, p.compileBinaries, p.files.compile, p.compileArguments, p.compileEnv,
		p.compileTimeouts, p.code.compile, p.compileNetwork, p.compileOutput,
	}
	for _, step := range steps {
		if err := step(spec); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// oneOf returns value, which must be one of two, or the value that an empty one stands for.
func oneOf[T ~string](field string, value, unset, other T) (T, error) {
	switch value {
	case "":
		return unset, nil
	case unset, other:
		return value, nil
	default:
		return "", fmt.Errorf("%s: %s is not known: use %s or %s", field, quote(string(value)), unset, other)
	}
}

// between returns the value, which must be within the bounds, or the value that nil stands for.
func between[T int32 | int64](field string, value *T, unset, low, high T) (T, error) {
	if value == nil {
		return unset, nil
	}
	if *value < low || *value > high {
		return 0, fmt.Errorf("%s: %d is out of range: use %d to %d", field, *value, low, high)
	}
	return *value, nil
}

func (p *Policy) compileAccess(spec *v1alpha1.ExecutionPolicySpec) (err error) {
	p.access, err = oneOf("spec.access", spec.Access, v1alpha1.AccessRBAC, v1alpha1.AccessOpen)
	return err
}

func (p *Policy) compileShell(spec *v1alpha1.ExecutionPolicySpec) error {
	if spec.Shell == nil {
		return nil
	}
	mode, err := oneOf("spec.shell.commands", spec.Shell.Commands, v1alpha1.ShellUnrestricted, v1alpha1.ShellAllowlisted)
	if err != nil {
		return err
	}
	p.shellEnabled = spec.Shell.Enabled != nil && *spec.Shell.Enabled
	p.allowlisted = mode == v1alpha1.ShellAllowlisted
	return nil
}

func isSpaceOrControl(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

func (p *Policy) compileArguments(spec *v1alpha1.ExecutionPolicySpec) error {
	p.denyMeta = true
	if spec.Arguments == nil {
		return nil
	}
	mode, err := oneOf("spec.arguments.metacharacters", spec.Arguments.Metacharacters,
		v1alpha1.MetacharactersDeny, v1alpha1.MetacharactersAllow)
	p.denyMeta = mode != v1alpha1.MetacharactersAllow
	return err
}

func (p *Policy) compileEnv(spec *v1alpha1.ExecutionPolicySpec) error {
	p.envBlocklist = defaultEnvBlocklist()
	if spec.EnvBlocklist != nil {
		p.envBlocklist = slices.Clone(spec.EnvBlocklist)
	}
	if i := slices.Index(p.envBlocklist, ""); i >= 0 {
		return fmt.Errorf("spec.envBlocklist[%d]: the prefix is empty and would block every variable: use at least one character", i)
	}
	protected := defaultProtectedEnv()
	if spec.ProtectedEnv != nil {
		protected = spec.ProtectedEnv
	}
	for i, pattern := range protected {
		if !isName(strings.TrimSuffix(pattern, "*")) {
			return fmt.Errorf("spec.protectedEnv[%d]: %s is not a valid variable name: use letters, digits and underscores, with a \"*\" at the end for a prefix", i, quote(pattern))
		}
	}
	p.protected = newNameSet(protected)
	return nil
}

func (p *Policy) compileTimeouts(spec *v1alpha1.ExecutionPolicySpec) error {
	timeouts := spec.Timeouts
	if timeouts == nil {
		timeouts = &v1alpha1.TimeoutsPolicy{}
	}
	limit, err := between("spec.timeouts.defaultSeconds", timeouts.DefaultSeconds, int32(defaultTimeout/time.Second), 1, limitSeconds)
	if err != nil {
		return err
	}
	highest, err := between("spec.timeouts.maxSeconds", timeouts.MaxSeconds, int32(defaultMaxTime/time.Second), 1, limitSeconds)
	if err != nil {
		return err
	}
	if limit > highest {
		return fmt.Errorf("spec.timeouts.defaultSeconds: %d is above spec.timeouts.maxSeconds, %d: use %d or less", limit, highest, highest)
	}
	p.timeout = time.Duration(limit) * time.Second
	p.maxTimeout = time.Duration(highest) * time.Second
	return nil
}

func (p *Policy) compileOutput(spec *v1alpha1.ExecutionPolicySpec) error {
	output := spec.Output
	if output == nil {
		output = &v1alpha1.OutputPolicy{}
	}
	size, err := between("spec.output.maxBytesPerStream", output.MaxBytesPerStream, defaultMaxBytes, 1, limitBytes)
	if err != nil {
		return err
	}
	p.bounds.MaxBytesPerStream = int(size)
	p.bounds.KeepBytesPerStream, err = between("spec.output.keepBytesPerStream", output.KeepBytesPerStream, defaultKeepBytes, 0, limitKeepBytes)
	if err != nil {
		return err
	}
	p.artifacts, err = compileArtifacts(output.Artifacts)
	return err
}
