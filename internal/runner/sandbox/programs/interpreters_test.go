package programs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestTheInterpreterOfAScript(t *testing.T) {
	for line, want := range map[string]string{
		"#!/bin/sh\necho":                "/bin/sh",
		"#! \t/bin/sh -e\n":              "/bin/sh",
		"#!/usr/bin/env python3":         "/usr/bin/env",
		"#!\n":                           "",
		"#!":                             "",
		"#!" + strings.Repeat("a", 5000): strings.Repeat("a", 254),
		"#!/bin/sh\r\n":                  "/bin/sh\r",
	} {
		if got := ScriptInterpreter([]byte(line)); got != want {
			t.Errorf("%.40q: got %q, want %q", line, got, want)
		}
	}
}

func TestTheLoaderOfThisMachine(t *testing.T) {
	loaders, _ := filepath.Glob("/lib*/ld-linux-*.so.*")
	if len(loaders) == 0 {
		t.Skip("there is no loader of the usual name")
	}
	f, err := openPath("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if got := readInterpreters(f); got != (interpreters{loader: loaders[0]}) {
		t.Errorf("got %+v, want the loader %s", got, loaders[0])
	}
	loader, err := openPath(loaders[0])
	if err != nil {
		t.Fatal(err)
	}
	defer loader.close()
	if got := readInterpreters(loader); got != (interpreters{isLoader: true}) {
		t.Errorf("the loader itself: got %+v", got)
	}
}

func FuzzInterpreters(f *testing.F) {
	program, err := os.ReadFile("/bin/sh")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(program[:headSize])
	f.Add([]byte("#! /bin/sh -x\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := openPath(path)
		if err != nil {
			t.Fatal(err)
		}
		defer file.close()
		got := readInterpreters(file)
		if got.isLoader && got.loader != "" || got.script != "" && (got.loader != "" || !strings.Contains(string(content), got.script)) {
			t.Errorf("got %+v", got)
		}
	})
}
