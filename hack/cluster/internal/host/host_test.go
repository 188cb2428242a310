package host

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTheSupervisorIsKnownByItsCommandLine(t *testing.T) {
	t.Parallel()
	cases := map[string]bool{
		"/s/cluster\x00node-init\x00/s/node.json\x00": true,
		"/s/cluster\x00up\x00/s/node.json\x00":        false,
		"vim\x00node-init\x00/s/node.json\x00":        false,
		"/s/cluster\x00node-init\x00/x/node.json\x00": false,
		"": false,
		"grep\x00/s/cluster node-init /s/node.json\x00": false,
	}
	for cmdline, want := range cases {
		if dir, ok := parseInit(cmdline); ok != want || (ok && dir != "/s") {
			t.Errorf("%q: %q, %t", cmdline, dir, ok)
		}
	}
}

func TestOnlyAClaimedFolderIsRemoved(t *testing.T) {
	t.Parallel()
	foreign := t.TempDir()
	precious := filepath.Join(foreign, "precious")
	if err := os.WriteFile(precious, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Claim(foreign); err == nil {
		t.Fatal("a folder with somebody's files was claimed")
	}
	if err := removeState(foreign); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Fatal("somebody's file is gone")
	}
	own := filepath.Join(t.TempDir(), "own")
	if err := Claim(own); err != nil {
		t.Fatal(err)
	}
	if err := removeState(own); err != nil || Claimed(own) {
		t.Fatalf("the cluster's own folder is still there: %v", err)
	}
}

func TestTheLockIsHeldByOne(t *testing.T) {
	t.Parallel()
	name := "@toolcall-lock-test"
	release, err := Lock(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(name, 0); err == nil {
		t.Fatal("the lock was given twice")
	}
	time.AfterFunc(50*time.Millisecond, release)
	again, err := Lock(name, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	again()
}

func TestAProcessThatIsGoneIsNotAlive(t *testing.T) {
	t.Parallel()
	_, started := processState(os.Getpid())
	if here := (&Running{PID: os.Getpid(), started: started}); !here.Alive() {
		t.Error("this process isn't alive")
	}
	if reused := (&Running{PID: os.Getpid(), started: "1"}); reused.Alive() {
		t.Error("a reused process id counts as the old process")
	}
}
