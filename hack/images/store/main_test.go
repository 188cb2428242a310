package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWhatIsMissingIsSaid(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	good := options{address: "127.0.0.1:0", dir: dir, bucket: "output", access: "a", secret: "b"}
	for want, change := range map[string]func(*options){
		"-dir":                                    func(o *options) { o.dir = "" },
		"-bucket is \"\"":                         func(o *options) { o.bucket = "" },
		"-bucket is \"../up\"":                    func(o *options) { o.bucket = "../up" },
		"-bucket is \"a/b\"":                      func(o *options) { o.bucket = "a/b" },
		"AWS_ACCESS_KEY_ID and AWS_SECRET":        func(o *options) { o.secret = "" },
		"set AWS_ACCESS_KEY_ID":                   func(o *options) { o.access = "" },
		"make the bucket's folder: mkdir " + file: func(o *options) { o.dir = file },
	} {
		o := good
		change(&o)
		if err := run(t.Context(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %v, it doesn't say %q", err, want)
		}
	}
}
