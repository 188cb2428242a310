package envresolve

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// onDefault is a plan with variables of the default environment alone, trusted.
func onDefault(vars ...Var) *Plan {
	plan := MakePlan(Input{Default: &Environment{Name: "d", Vars: vars}, Blocklist: []string{"AWS_"}})
	return &plan
}

// fromCall is a plan with variables of the call alone, untrusted.
func fromCall(vars ...Var) *Plan {
	plan := MakePlan(Input{Default: &Environment{Name: "d"}, Call: Call{Vars: vars}, Blocklist: []string{"AWS_"}})
	return &plan
}

// usual is what a process gets of an empty image.
var usual = []string{"LANG=en_US.UTF-8", "TERM=dumb"}

func TestAHostileImageSmugglesNothing(t *testing.T) {
	t.Parallel()
	cases := []struct {
		name     string
		image    []string
		want     []string
		stripped []string
	}{
		{"an exported shell function is left out", []string{"BASH_FUNC_ls%%=() { id; }"}, nil, nil},
		{"so is one in the older form", []string{"BASH_FUNC_ls()=() { id; }"}, nil, nil},
		{"a variable without an equals sign is left out", []string{"AWS_SECRET", "", "A"}, nil, nil},
		{"a variable without a name is left out", []string{"=x", "=AWS_A=x", "==="}, nil, nil},
		{"a name with a space, dot, dash or letter beyond ASCII is left out", []string{" A=1", "a.b=1", "a-b=1", "ä=1", "A\n=1"}, nil, nil},
		{"a name that starts with a digit is left out", []string{"1A=1"}, nil, nil},
		{"a NUL can't end a name early", []string{"A\x00AWS_B=1", "C=1\x00AWS_D=2"}, nil, nil},
		{"white space before a blocked name doesn't hide it", []string{"\tAWS_A=1", "\uFEFFAWS_A=1"}, nil, nil},
		{"the first of two counts, as for getenv", []string{"A=1", "A=2"}, []string{"A=1"}, nil},
		{"both of two blocked ones go", []string{"AWS_A=1", "AWS_A=2"}, nil, []string{"AWS_A"}},
		{"a value may look like a blocked variable", []string{"A=AWS_B=1", "B=\nAWS_C=1"}, []string{"A=AWS_B=1", "B=\nAWS_C=1"}, nil},
		{"a value may hold any other byte", []string{"A=\xff\xfe\x01"}, []string{"A=\xff\xfe\x01"}, nil},
		{"one that no process could take is left out", []string{"A=" + strings.Repeat("x", MaxVarBytes)}, nil, nil},
		{"the runner's own are gone and nobody is told", []string{"RUNNER_KEY=k", "RUNNER_=", "RUNNERX=1"}, []string{"RUNNERX=1"}, nil},
		{"an image's TERM doesn't count", []string{"TERM=xterm"}, nil, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := Resolve(onDefault(), c.image, isRunners)
			if err != nil {
				t.Fatal(err)
			}
			want := append(slices.Clone(c.want), usual...)
			slices.Sort(want)
			if diff := cmp.Diff(want, got.Env); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
			if diff := cmp.Diff(c.stripped, got.Stripped, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("stripped: -want +got:\n%s", diff)
			}
		})
	}
}

func TestALayerThatCantBeUsedIsAnError(t *testing.T) {
	t.Parallel()
	half := strings.Repeat("x", MaxLayerBytes/2)
	cases := []struct {
		name string
		plan *Plan
		want string
	}{
		{"a name that hides a shell function", fromCall(Var{Name: "BASH_FUNC_ls%%"}), `variable "BASH_FUNC_ls%%" of layer Call: a name consists of letters`},
		{"an empty name", fromCall(Var{}), `variable "" of layer Call: a name consists of letters`},
		{"an equals sign in a name, which would set another variable", fromCall(Var{Name: "A=AWS_B"}), `"A=AWS_B"`},
		{"a newline in a name", fromCall(Var{Name: "A\nB"}), `"A\nB"`},
		{"a NUL byte in a value", onDefault(Var{Name: "A", Value: "x\x00y"}), `"A" of layer Default: a value must not contain a NUL byte`},
		{"a reference in a call", fromCall(Var{Name: "A", Ref: "REF"}), `"A" of layer Call: variables of a call must have a literal value`},
		{"a value and a reference", onDefault(Var{Name: "A", Value: "x", Ref: "REF"}), "both a value and a reference"},
		{"a layer of more than 128 KiB", onDefault(Var{Name: "A", Value: half}, Var{Name: "B", Value: half}), "layer Default holds 131074 bytes of variables, over the limit of 131072"},
		{"a variable that the kernel takes no longer", onDefault(Var{Name: "A", Value: strings.Repeat("x", MaxVarBytes-1)}), `"A" of layer Default: name and value take 131072 bytes, over the kernel's limit of 131071`},
		{"an empty prefix in the blocklist", &Plan{Blocklist: []string{"AWS_", ""}}, "empty prefix"},
		{"a reference with nothing behind it", onDefault(Var{Name: "A", Ref: "REF_9"}), `variable "A" of layer Default: its value comes from reference "REF_9", which doesn't exist`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := Resolve(c.plan, nil, nil)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
			if got.Env != nil {
				t.Errorf("variables came along with the error: %q", got.Env)
			}
		})
	}
}

// What refers to a value is no literal, and a session's variables are beside its call's.
func TestTheBoundOfALayerIsThatOfAnObjectsOwnLiterals(t *testing.T) {
	t.Parallel()
	most := Var{Name: "A", Value: strings.Repeat("x", MaxLayerBytes/2-1)}
	of := func(name string) Var { return Var{Name: name, Value: most.Value} }
	for name, plan := range map[string]*Plan{
		"references": onDefault(most, of("B"), Var{Name: "TOKEN", Ref: "REF_1"}), "a session's": fromCall(most, of("B"), of("C"), of("D")),
	} {
		if err := plan.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := fromCall(most, of("B"), of("C"), of("D"), Var{Name: "E"}).Validate(); err == nil || !strings.Contains(err.Error(), "262145") {
		t.Errorf("more than two objects can have: %v", err)
	}
}

func TestTheLongestVariablesPass(t *testing.T) {
	t.Parallel()
	longest := Var{Name: "A", Value: strings.Repeat("x", MaxVarBytes-2)}
	if _, err := Resolve(onDefault(longest), nil, nil); err != nil {
		t.Error(err)
	}
}

func TestMoreThanAProcessCanTakeIsAnError(t *testing.T) {
	t.Parallel()
	var image []string
	for i := range 9 {
		image = append(image, fmt.Sprintf("A%d=%s", i, strings.Repeat("x", 120_000)))
	}
	_, err := Resolve(onDefault(), image, nil)
	if err == nil || !strings.Contains(err.Error(), "in total, over the limit of 1048576") {
		t.Errorf("got %v", err)
	}
}

func TestErrorsNeverHoldAValue(t *testing.T) {
	t.Parallel()
	const secret = "hunter2"
	long := secret + strings.Repeat("x", MaxVarBytes)
	plans := []*Plan{
		onDefault(Var{Name: "1A", Value: secret}), onDefault(Var{Name: "A", Value: secret + "\x00"}),
		onDefault(Var{Name: "A", Value: secret, Ref: "R"}), onDefault(Var{Name: "A", Value: long}),
		onDefault(Var{Name: "A", Ref: "LONG"}),
	}
	for _, plan := range plans {
		_, err := Resolve(plan, []string{"LONG=" + long}, nil)
		if err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("got %v", err)
		}
	}
}

func TestReferences(t *testing.T) {
	t.Parallel()
	image := []string{"REF_1=one", "REF_2=", "X=image"}
	cases := []struct {
		name string
		plan *Plan
		want []string
	}{
		{"a reference gives its value", onDefault(Var{Name: "A", Ref: "REF_1"}), []string{"A=one", "X=image"}},
		{"an empty value is a value", onDefault(Var{Name: "A", Ref: "REF_2"}), []string{"A=", "X=image"}},
		{"two variables may share one", onDefault(Var{Name: "A", Ref: "REF_1"}, Var{Name: "B", Ref: "REF_1"}), []string{"A=one", "B=one", "X=image"}},
		{"an absent optional one lets the less specific source through", onDefault(Var{Name: "X", Ref: "REF_9", Optional: true}), []string{"X=image"}},
		{"an absent one that another source overrides isn't needed", overridden(), []string{"X=call"}},
		{"a blocked absent one isn't needed", blockedRef(), []string{"B=", "X=image"}},
		{"a value isn't looked up again", onDefault(Var{Name: "A", Value: "REF_1"}), []string{"A=REF_1", "X=image"}},
		{"nothing in a value is expanded", onDefault(Var{Name: "A", Value: "$X $(X) ${X} `X`"}), []string{"A=$X $(X) ${X} `X`", "X=image"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := Resolve(c.plan, image, func(name string) bool { return strings.HasPrefix(name, "REF_") })
			if err != nil {
				t.Fatal(err)
			}
			env := slices.DeleteFunc(got.Env, func(kv string) bool { return slices.Contains(usual, kv) })
			if diff := cmp.Diff(c.want, env); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func overridden() *Plan {
	plan := MakePlan(Input{
		Default: &Environment{Vars: []Var{{Name: "X", Ref: "REF_9"}}},
		Call:    Call{Vars: []Var{{Name: "X", Value: "call"}}},
	})
	return &plan
}

func blockedRef() *Plan {
	plan := MakePlan(Input{
		Named:     &Environment{Vars: []Var{{Name: "AWS_X", Ref: "REF_9"}, {Name: "B", Ref: "REF_2"}}},
		Blocklist: []string{"AWS_"},
	})
	return &plan
}

func TestNeededRefsLeavesOutWhatCantReachTheProcess(t *testing.T) {
	t.Parallel()
	in := Input{
		Default: &Environment{Vars: []Var{{Name: "A", Ref: "R1"}, {Name: "B", Ref: "R2"}, {Name: "AWS_X", Ref: "R3"}, {Name: "C", Ref: "R4"}}},
		Skill:   []Var{{Name: "B", Ref: "R5", Optional: true}, {Name: "D", Ref: "R5"}},
		Call:    Call{Vars: []Var{{Name: "A", Value: "1"}}}, Blocklist: []string{"AWS_"},
	}
	plan := MakePlan(in)
	if diff := cmp.Diff([]string{"R2", "R4", "R5"}, plan.NeededRefs()); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	in.TrustedRequested = true
	plan = MakePlan(in)
	if diff := cmp.Diff([]string{"R2", "R3", "R4", "R5"}, plan.NeededRefs()); diff != "" {
		t.Errorf("trusted: -want +got:\n%s", diff)
	}
}

func TestAMissingReferenceSaysWhichOne(t *testing.T) {
	t.Parallel()
	_, err := Resolve(onDefault(Var{Name: "A", Ref: "REF_7"}), []string{"REF_77=x"}, nil)
	if err == nil || err.Error() != `variable "A" of layer Default: its value comes from reference "REF_7", which doesn't exist` {
		t.Errorf("got %v", err)
	}
}

func TestALayerCantSetARunnersVariable(t *testing.T) {
	t.Parallel()
	got, err := Resolve(onDefault(Var{Name: "RUNNER_MODE", Value: "x"}, Var{Name: "A", Ref: "REF_1"}, Var{Name: "REF_1", Value: "x"}),
		[]string{"REF_1=secret", "RUNNER_MODE=real"}, isRunners)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"A=secret", usual[0], usual[1]}, got.Env); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"REF_1", "RUNNER_MODE"}, got.Stripped); diff != "" {
		t.Errorf("stripped: -want +got:\n%s", diff)
	}
}

func TestTheBlocklistHoldsForTheDefaultsToo(t *testing.T) {
	t.Parallel()
	plan := MakePlan(Input{Default: &Environment{Vars: []Var{{Name: "TERM", Value: "xterm"}}}, Blocklist: []string{"LANG", "TERM"}})
	got, err := Resolve(&plan, []string{"LANG=C"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Resolved{Env: []string{"TERM=xterm"}, Vars: []ResolvedVar{{"TERM", SourceDefault}}, Stripped: []string{"LANG", "TERM"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestLookalikePrefixesAreNotBlocked(t *testing.T) {
	t.Parallel()
	got, err := Resolve(fromCall(Var{Name: "AWS", Value: "1"}, Var{Name: "Aws_A", Value: "1"}, Var{Name: "_AWS_A", Value: "1"}, Var{Name: "AWS_A"}), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"AWS=1", "Aws_A=1", "LANG=en_US.UTF-8", "TERM=dumb", "_AWS_A=1"}, got.Env); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"AWS_A"}, got.Stripped); diff != "" {
		t.Errorf("stripped: -want +got:\n%s", diff)
	}
}
