package main

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const measured = `{"totals":{"Job":{"p50":3,"p90":3.1,"p99":3.2},"Warm":{"p50":0.01,"p90":0.02,"p99":0.03}},
"bursts":[{"size":10,"kind":"Warm","seconds":0.2,"each":{"p50":0.1,"p90":0.15,"p99":0.2}}],
"rates":[{"kind":"Warm","rate":1,"each":{"p50":0.01,"p90":0.01,"p99":0.02}},{"kind":"Warm","rate":2,"each":{"p50":0.01,"p90":0.01,"p99":2}}]}`

func TestAPlotIsAnImageWithAPanelForEachPart(t *testing.T) {
	t.Parallel()
	widths := map[string]int{}
	for name, figures := range map[string]string{"all": measured, "rounds": measured[:strings.Index(measured, ",\n")] + "}"} {
		in, out := filepath.Join(t.TempDir(), "in.json"), filepath.Join(t.TempDir(), "out.png")
		if err := os.WriteFile(in, []byte(figures), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run([]string{"-in", in, "-out", out}, new(strings.Builder)); err != nil {
			t.Fatal(err)
		}
		raw, err := os.ReadFile(out)
		if err != nil {
			t.Fatal(err)
		}
		image, err := png.Decode(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		widths[name] = image.Bounds().Dx()
	}
	if widths["rounds"] == 0 || widths["all"] < 3*widths["rounds"]-5 {
		t.Errorf("widths are %v", widths)
	}
}

func TestWhatCannotBeDrawnIsSaid(t *testing.T) {
	t.Parallel()
	for figures, want := range map[string]string{"{}": "nothing to draw", "[": "not a benchmark's", "": "not a benchmark's"} {
		in := filepath.Join(t.TempDir(), "in.json")
		if err := os.WriteFile(in, []byte(figures), 0o600); err != nil {
			t.Fatal(err)
		}
		err := run([]string{"-in", in, "-out", in + ".png"}, new(strings.Builder))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", figures, err)
		}
	}
	for _, args := range [][]string{nil, {"-in", "x"}, {"-in", "none.json", "-out", "x"}, {"-in", "a", "-out", "b", "c"}} {
		if err := run(args, new(strings.Builder)); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}
