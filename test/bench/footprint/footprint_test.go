package footprint

import (
	"strings"
	"testing"

	"toolcall.dev/operator/test/bench/figures"
	"toolcall.dev/operator/test/bench/standalone"
)

func TestOnlyWhatIsOverItsLimitFails(t *testing.T) {
	t.Parallel()
	good := Report{
		Operator: []operatorCost{{Finished: 10, Memory: standalone.Memory{RSS: mostMemory}, Load: 0.001}},
		Runner:   &runnerCost{Hello: figures.Summarize([]float64{0.004, slowestRunner, 9}), RSS: figures.Summarize([]float64{largestRunner})},
	}
	if err := (&Command{report: good}).Verdict(); err != nil {
		t.Error(err)
	}
	bad := Report{
		Operator: []operatorCost{good.Operator[0], {Finished: 20, Memory: standalone.Memory{RSS: mostMemory + 1}}},
		Runner:   &runnerCost{Hello: figures.Summarize([]float64{9}), RSS: figures.Summarize([]float64{largestRunner + 1})},
	}
	err := (&Command{report: bad}).Verdict()
	if err == nil || strings.Count(err.Error(), "the limit is") != 3 || !strings.Contains(err.Error(), "20 finished calls") {
		t.Errorf("got %v", err)
	}
	if err := (&Command{}).Verdict(); err != nil {
		t.Error(err)
	}
	out := new(strings.Builder)
	figures.Print(out, &good, true)
	for _, want := range []string{"| 10 | 128.0 | 0.0 | 0.0 | 0.10 % | 0.0 | 0.0 |", "hello, ms | 3 | 250.0 | 9000.0 | 9000.0 | 9000.0 |", "MiB | 1 | 64.0 |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
}
