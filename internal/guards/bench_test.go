package guards

import (
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

// benchmarkScript has about 2 KiB.
var benchmarkScript = strings.Repeat(`set -e
for f in *.txt; do
  if [ -f "$f" ] && grep -q pattern "$f"; then
    echo "found in $f" | cat
    n=$((1 + 2))
  fi
done
find . -name '*.go' -exec cat {} +
ls -la | grep foo | head -n 5 > out.txt 2>&1 || echo "failed: $?"
cat <<'EOF'
some text that is written to a file
EOF
`, 7) + "echo the end of a script that has about two kilobytes in all, as scripts go"

var benchmarkSource = strings.Repeat(`def compute(values, factor=2):
    """Multiply every value and return the sum of what is left."""
    total = 0
    for index, value in enumerate(values):
        if value % 3 == 0:  # skip multiples
            continue
        total += value * factor + index
    return {"total": total, "count": len(values), "name": "result\n"}

`, 200)[:65536]

func benchmarkCheck(b *testing.B, policy *Policy, action *Action) {
	b.Helper()
	if denial := policy.Check(Input{Action: action}); denial != nil {
		b.Fatalf("%s: %s", denial.Reason, denial.Message)
	}
	b.ReportAllocs()
	for b.Loop() {
		policy.Check(Input{Action: action})
	}
}

func BenchmarkStructured(b *testing.B) {
	policy := kernelPolicy(b, "git", "ls")
	benchmarkCheck(b, policy, &Action{Type: v1alpha1.ActionStructured, Binary: "git", Args: []string{"log", "--oneline", "-n", "3", "--", "a.txt"}})
}

func BenchmarkStructuredDefaults(b *testing.B) {
	policy, err := Compile(&v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen})
	if err != nil {
		b.Fatal(err)
	}
	benchmarkCheck(b, policy, &Action{Type: v1alpha1.ActionStructured, Binary: "ls", Args: []string{"-la", "/workspace", "--color=never"}})
}

func BenchmarkShell2KiB(b *testing.B) {
	policy := kernelPolicy(b, "echo", "ls", "grep", "cat", "find", "head")
	b.SetBytes(int64(len(benchmarkScript)))
	benchmarkCheck(b, policy, &Action{Type: v1alpha1.ActionShell, Command: benchmarkScript})
}

func BenchmarkCode64KiB(b *testing.B) {
	policy := codePolicy(b, v1alpha1.CodePolicy{})
	b.SetBytes(int64(len(benchmarkSource)))
	benchmarkCheck(b, policy, &Action{Type: v1alpha1.ActionCode, Language: "python", Source: benchmarkSource})
}

func BenchmarkCompile(b *testing.B) {
	spec := &v1alpha1.ExecutionPolicySpec{}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Compile(spec); err != nil {
			b.Fatal(err)
		}
	}
}
