package guards

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"mvdan.cc/sh/v3/syntax"

	"toolcall.dev/operator/api/v1alpha1"
)

// Compile applies spec to the built-in defaults; a nil spec leaves the defaults as they are. The error names the field
// that is invalid and the values that are valid. It doesn't rely on the API's schema, and is stricter.
func Compile(spec *v1alpha1.ExecutionPolicySpec) (*Policy, error) {
	if spec == nil {
		spec = &v1alpha1.ExecutionPolicySpec{}
	}
	p, c := &Policy{}, &compiler{spec: spec}
	for _, step := range []func(*compiler){
		p.compileAccess, p.compileShell, p.compileBinaries, p.files.compile, p.compileArguments, p.compileEnv,
		p.compileTimeouts, p.code.compile, p.compileNetwork, p.compileOutput,
	} {
		if step(c); c.err != nil {
			return nil, c.err
		}
	}
	return p, nil
}

// compiler is what a policy is compiled from, and the first error that was found in it. What is read after one doesn't count.
type compiler struct {
	spec *v1alpha1.ExecutionPolicySpec
	err  error
}

func (c *compiler) fail(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// oneOf returns value, which must be one of two, or the value that an empty one stands for.
func oneOf[T ~string](c *compiler, field string, value, unset, other T) T {
	switch value {
	case unset, other:
		return value
	case "":
	default:
		c.fail("%s: %s is not known: use %s or %s", field, quote(string(value)), unset, other)
	}
	return unset
}

// span is what a number may be, and what it is where it isn't set.
type span[T int32 | int64] struct{ unset, low, high T }

// between returns the value, which must be within the span.
func between[T int32 | int64](c *compiler, field string, value *T, in span[T]) T {
	if value == nil {
		return in.unset
	}
	if *value < in.low || *value > in.high {
		c.fail("%s: %d is out of range: use %d to %d", field, *value, in.low, in.high)
	}
	return *value
}

func (p *Policy) compileAccess(c *compiler) {
	p.access = oneOf(c, "spec.access", c.spec.Access, v1alpha1.AccessRBAC, v1alpha1.AccessOpen)
}

func (p *Policy) compileShell(c *compiler) {
	if shell := c.spec.Shell; shell != nil {
		p.shellEnabled = isTrue(shell.Enabled)
		p.allowlisted = oneOf(c, "spec.shell.commands", shell.Commands, v1alpha1.ShellUnrestricted, v1alpha1.ShellAllowlisted) == v1alpha1.ShellAllowlisted
	}
}

func isSpaceOrControl(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }

func (p *Policy) compileArguments(c *compiler) {
	p.denyMeta = true
	if arguments := c.spec.Arguments; arguments != nil {
		p.denyMeta = oneOf(c, "spec.arguments.metacharacters", arguments.Metacharacters,
			v1alpha1.MetacharactersDeny, v1alpha1.MetacharactersAllow) == v1alpha1.MetacharactersDeny
	}
}

func (p *Policy) compileEnv(c *compiler) {
	p.envBlocklist, p.protectedEnv = defaultEnvBlocklist(), defaultProtectedEnv()
	if c.spec.EnvBlocklist != nil {
		p.envBlocklist = slices.Clone(c.spec.EnvBlocklist)
	}
	if i := slices.Index(p.envBlocklist, ""); i >= 0 {
		c.fail("spec.envBlocklist[%d]: the prefix is empty and would block every variable: use at least one character", i)
	}
	if c.spec.ProtectedEnv != nil {
		p.protectedEnv = slices.Clone(c.spec.ProtectedEnv)
	}
	for i, pattern := range p.protectedEnv {
		if !syntax.ValidName(strings.TrimSuffix(pattern, "*")) {
			c.fail("spec.protectedEnv[%d]: %s is not a valid variable name: use letters, digits and underscores, with a \"*\" at the end for a prefix", i, quote(pattern))
		}
	}
}

func (p *Policy) compileTimeouts(c *compiler) {
	timeouts := cmp.Or(c.spec.Timeouts, &v1alpha1.TimeoutsPolicy{})
	limit := between(c, "spec.timeouts.defaultSeconds", timeouts.DefaultSeconds, span[int32]{int32(defaultTimeout / time.Second), 1, limitSeconds})
	highest := between(c, "spec.timeouts.maxSeconds", timeouts.MaxSeconds, span[int32]{int32(defaultMaxTime / time.Second), 1, limitSeconds})
	p.timeout = time.Duration(limit) * time.Second
	p.maxTimeout = time.Duration(highest) * time.Second
}

func (p *Policy) compileOutput(c *compiler) {
	output := cmp.Or(c.spec.Output, &v1alpha1.OutputPolicy{})
	p.bounds.MaxBytesPerStream = int(between(c, "spec.output.maxBytesPerStream", output.MaxBytesPerStream, span[int32]{defaultMaxBytes, 1, limitBytes}))
	p.bounds.KeepBytesPerStream = between(c, "spec.output.keepBytesPerStream", output.KeepBytesPerStream, span[int64]{defaultKeepBytes, 0, limitKeepBytes})
	p.artifacts = compileArtifacts(c, cmp.Or(output.Artifacts, &v1alpha1.ArtifactsPolicy{}))
}
