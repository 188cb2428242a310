package envresolve

import (
	"fmt"
	"testing"
)

// benchInput makes 200 variables: 40 each in the image, the default and named environments, the skill and
// the call, of which a quarter overrides the next less specific source.
func benchInput() (Input, []string) {
	vars := func(layer int) []Var {
		var list []Var
		for i := range 40 {
			list = append(list, Var{Name: fmt.Sprintf("VARIABLE_%03d", layer*30+i), Value: "some/value/of/usual/length"})
		}
		return list
	}
	var image []string
	for _, v := range vars(0) {
		image = append(image, v.Name+"="+v.Value)
	}
	return Input{
		Default:   &Environment{Name: "default", Vars: vars(1)},
		Skill:     vars(2),
		Named:     &Environment{Name: "named", Vars: vars(3)},
		Call:      Call{Vars: vars(4)},
		Blocklist: builtInBlocklist,
	}, image
}

var builtInBlocklist = []string{
	"TOOLCALL_", "KUBERNETES_", "AWS_", "AZURE_", "GCP_", "GOOGLE_", "OPENAI_", "ANTHROPIC_", "HF_", "HUGGING",
}

// BenchmarkMerge200 is the whole merge of 200 variables: the plan and its end in the pod.
func BenchmarkMerge200(b *testing.B) {
	in, image := benchInput()
	b.ReportAllocs()
	for b.Loop() {
		plan := MakePlan(in)
		if _, err := Resolve(&plan, image, nil); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkResolve200 is the half in the pod alone.
func BenchmarkResolve200(b *testing.B) {
	in, image := benchInput()
	plan := MakePlan(in)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Resolve(&plan, image, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkResolveDir(b *testing.B) {
	fsys := newFakeFS([]string{"/workspace/a/b/c/d", "/tmp"}, nil, map[string]string{"/workspace/l": "a/b"})
	req := DirRequest{WorkingDir: "l/../b/c/d", ImageWorkingDir: "/workspace"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := ResolveDir(fsys, req); err != nil {
			b.Fatal(err)
		}
	}
}
