package result

import (
	"encoding/json"
	"strings"
	"testing"
)

// collected is an outcome with one artifact.
func collected() *Outcome {
	return &Outcome{Reason: Completed, Started: true, ExitCode: Exit(0), Artifacts: &Artifacts{
		Kept: ArtifactList{{Path: "out/plot.png", Bytes: 3, SHA256: strings.Repeat("a", 64), MediaType: "image/png"}},
	}}
}

func TestArtifactsThatNoRunnerKeepsAreRefused(t *testing.T) {
	t.Parallel()
	if err := collected().Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Outcome){
		"of no process":            func(o *Outcome) { o.Started, o.ExitCode, o.Reason = false, nil, CommandNotFound },
		"without a path":           func(o *Outcome) { o.Artifacts.Kept[0].Path = "" },
		"with a NUL":               func(o *Outcome) { o.Artifacts.Kept[0].Path = "a\x00" },
		"that isn't UTF-8":         func(o *Outcome) { o.Artifacts.Kept[0].Path = "a\xff" },
		"that JSON makes too long": func(o *Outcome) { o.Artifacts.Kept[0].Path = strings.Repeat("<", MaxArtifactPath/6+1) },
		"with a path too long":     func(o *Outcome) { o.Artifacts.Kept[0].Path = strings.Repeat("x", MaxArtifactPath+1) },
		"twice":                    func(o *Outcome) { o.Artifacts.Kept = append(o.Artifacts.Kept, o.Artifacts.Kept[0]) },
		"of less than nothing":     func(o *Outcome) { o.Artifacts.Kept[0].Bytes = -1 },
		"without a hash":           func(o *Outcome) { o.Artifacts.Kept[0].SHA256 = "" },
		"without a type":           func(o *Outcome) { o.Artifacts.Kept[0].MediaType = "" },
		"with half a type":         func(o *Outcome) { o.Artifacts.Kept[0].MediaType = "image/" },
		"with a type and a header": func(o *Outcome) { o.Artifacts.Kept[0].MediaType = "a/b\r\nX: y" },
		"less than none omitted":   func(o *Outcome) { o.Artifacts.Omitted = -1 },
		"a message in bytes":       func(o *Outcome) { o.Artifacts.Message = "\xff" },
	} {
		o := collected()
		change(o)
		if o.Validate() == nil {
			t.Errorf("artifacts %s pass", name)
		}
	}
}

func TestListsOfArtifactsAreReadUpToTheirBound(t *testing.T) {
	t.Parallel()
	var o Outcome
	if err := json.Unmarshal([]byte(`{"artifacts":{"kept":[`+strings.Repeat("{},", 5000)+`{}]}}`), &o); err != nil {
		t.Fatal(err)
	}
	if len(o.Artifacts.Kept) != MaxList+1 || o.Validate() == nil {
		t.Errorf("read %d artifacts", len(o.Artifacts.Kept))
	}
}

func TestATerminationMessageSaysThatArtifactsAreLost(t *testing.T) {
	t.Parallel()
	o := collected()
	o.Artifacts.Omitted = 2
	got, err := DecodeTermination(EncodeTermination(o, MaxTermination))
	if err != nil || got.Artifacts == nil || got.Artifacts.Omitted != 3 || len(got.Artifacts.Kept) != 0 || got.Artifacts.Message == "" {
		t.Errorf("got %+v, %v", got.Artifacts, err)
	}
	if _, err := DecodeTermination([]byte(`{"v":1,"reason":"Completed","started":true,"exitCode":0,"artifacts":-1}`)); err == nil {
		t.Error("less than no artifact is lost")
	}
}
