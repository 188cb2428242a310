package guards

import (
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

func codePolicy(t testing.TB, code v1alpha1.CodePolicy) *Policy {
	t.Helper()
	policy, err := Compile(&v1alpha1.ExecutionPolicySpec{Access: v1alpha1.AccessOpen, Code: &code})
	if err != nil {
		t.Fatal(err)
	}
	return policy
}

func checkCode(policy *Policy, language, source string) *Denial {
	return policy.Check(Input{Action: &Action{Type: v1alpha1.ActionCode, Language: language, Source: source}})
}

// deniedSources use a denied module by a form that is looked for.
var deniedSources = []string{
	"import os", "import os as o", "import os.path", "import json, os", "import os, json", "import\tos", "import\fos", "import os;x=1", "x=1;import os", "x=1\nimport os", "  import os", "if x: import os", "import a.b, os.path as p", "import \\\n os", "import os # c",
	"from os import path", "from os.path import join", "from os import (path,\n sep)", "from  os  import x", "from os import*", "from subprocess import run", "from importlib import import_module",
	"os.system('x')", "os .system('x')", "x=os.environ", "f(os.getcwd())", "self.os.x", "os\t.x", "subprocess.run(['ls'])", "pickle.loads(b'')", "sys.modules['os']", "import ctypes.util", "import marshal, math", "import shutil as s",
	"import a as b, os", "import a, \\\n os", "import a as b, \\\r\n os as c", "import os\n", "exec(\"import a, os\")", "os.\\\nsystem('x')", "(os\n .system)('x')", "os. system('x')", "os./* c */system('x')", "# the os.\nos.x", "(os.\n system)('x')", "x = [a for a in os.\n\n environ]", "f(os. # c\n  name)", "if x and os. name: pass", "from os . path import join", "import os . path", "\treturn os.\tname",
	"__import__(r'os')", "import_module(u\"os\")", "__import__( rb'os')", "__import__(F'os')",
	"__import__('os')", "__import__(\"os\")", "__import__ ( 'os' )", "__import__(\n'os')", "__import__('os.path')", "importlib.import_module('os')", "import_module('os')", "eval('__import__(\"os\")')", "exec('import os')", "# import os", "'''import os'''", "\ufeffimport os",
}

// allowedSources are ordinary code that a careless scanner refuses, and code that would have to be decoded, joined or evaluated.
var allowedSources = []string{
	"print(1)", "import math\nprint(math.pi)", "import subprocesses", "myos.path", "# subprocess comment with no code", "import json, re", "from collections import OrderedDict", "import osxpath", "from mypkg.os_utils import x", "xos.y", "os_x.y", "_os.x", "print('the os')", "osmosis = 1", "x = 'boss.name'", "sysadmin = 1",
	"import oss", "import os2", "from oss import x", "imports = 1", "reimport = 'os'", "x = {'os': 1}", "print('os')", "d['sys']", "name = \"os\"", "f('socket')", "import requests_mock", "def prefetch(x): pass\nprefetch(1)", "x.prefetch()", "import numpy as np\nnp.array([1])", "print(\"os\" + 'x')",
	"importos = 1", "é = 1; print(é)", "# coding: utf-7\nprint(1)", "http_status = 200", "lambda os: os", "os = 1\nprint(os)", "if os: pass", "", " ", "'", "\\", "import", "from", "import (", "from x import (", "__import__(", "__import__('json')", "importer('os')",
	"# Count the requests.\ncount = 0", "# Run it in a subprocess.\n# Then:\nx = 1", "'''Opens a socket.\n\n    Returns it.'''", "print('Opening the socket.\\n')", "print(\"no os.\\tsorry\")", "# uses the os.", "(see sys.)", "# Uses the os. Then\nx = 1", "# what a sys. is", "# The number of requests.\nn = 1", "print('socket.\\n')", "x = 'pickle.'\ny = 1", "# import the rows and pickle them", "import numpy # and os", "import numpy\nos = 1",
	"__import__('o' + 's')", "__import__('\\x6fs')", "exec('im' 'port os')", "i=__import__; i(n)", "import ｏｓ", "x\ufeffimport os", "x\u00a0import os",
}

func TestSourcesThatUseDeniedModulesAreRefused(t *testing.T) {
	t.Parallel()
	policy := codePolicy(t, v1alpha1.CodePolicy{})
	for _, source := range deniedSources {
		if denial := checkCode(policy, "python", source); denial == nil || denial.Reason != v1alpha1.ReasonModuleNotAllowed {
			t.Errorf("%q: %+v", source, denial)
		}
	}
	for _, source := range allowedSources {
		if denial := checkCode(policy, "python", source); denial != nil {
			t.Errorf("%q: %s: %s", source, denial.Reason, denial.Message)
		}
	}
}

// javascriptCases are for deniedModules child_process, fs, os.path and @x/y-z; the first character says whether
// the source is refused for a module (-), for network (!) or allowed (+). ¦ is white space of each kind.
const javascriptCases = `
-require('child_process')
-require("child_process")
-require(¬child_process¬)
-require( 'fs' )
-require/**/('fs')
-require ('fs')
-require('fs/promises')
-require('node:fs')
-require("node:child_process").exec('x')
-module.require('fs')
-import fs from 'fs'
-import fs from"fs"
-import{x}from'fs'
-import*as f from 'fs'
-import { a, b as c } from "node:fs"
-import 'fs'
-import"fs"
-import('fs')
-await import ( 'fs' )
-import(/* c */ 'fs')
-export * from 'fs'
-export { x } from "fs"
-import cp, { exec } from 'child_process'
-eval("require('fs')")
-require('@x/y-z')
-import z from '@x/y-z/sub'
-process.getBuiltinModule('fs')
-const r = require; r('node:fs')
-for (const m of ["path", "node:fs/promises"]) r(m)
!const r = require; r(¬node:http¬)
-fs.readFileSync('x')
-fs?.readFileSync('x')
-const {a} = require('fs')
-import path from 'os.path'
-¦import 'fs'
-x;¦import¦fs¦from¦'fs'
-fs¦.readFileSync('x')
!fetch¦('x')
!fetch('https://x')
!fetch ('x')
!fetch(url)
!window.fetch('x')
!import http from 'http'
!require('http')
!http.get('x')
-import x, { y } from 'fs'
-import x, * as y from "node:fs"
-import type { x } from 'fs'
-import { x as y, z } from ¬fs¬
-import { http } from 'fs'
-import (¦'fs')
-import((('fs')))
-switch (1) { case fs. x: }
-class A extends fs.¦x {}
-require (¦¬fs¬)
-import fs = require('fs')
-return fs.¦  promises.¦  readFile('x')
-fs.\u0072eadFile('x')
!import x, { y } from 'http'
+import { fs } from './x.js'
+import { http, fetch } from './api.js'
+import x, { fs as y } from './x.js'
+// Reads the fs.¦
+const x = 1
+prefetch('x')
+fetchAll('x')
+require('path')
+require('./fs-extra')
+require('fsx')
+import fsx from 'fsx'
+const $fs = 1; $fs.x
+console.log('fs')
+x.fsync()
+require('node:path')
+r('node:fsx', 'nodes:fs', 'x node:fs', 'node', 'fs')
+const x = {node:fs}
+import { readFile } from 'fs-extra'
+'@x/y-zz'
+require('f'+'s')
+const r = require; r(n)
`

func TestJavaScriptForms(t *testing.T) {
	t.Parallel()
	policy := codePolicy(t, v1alpha1.CodePolicy{
		Languages: []string{}, DeniedModules: []string{"child_process", "fs", "os.path", "@x/y-z"},
	})
	want := map[byte]string{'-': v1alpha1.ReasonModuleNotAllowed, '!': v1alpha1.ReasonNetworkNotAllowed}
	for source := range strings.SplitSeq(strings.TrimSpace(javascriptCases), "\n") {
		source = strings.ReplaceAll(source, "¬", "`")
		for _, space := range []string{" ", "\ufeff", "\u00a0", "\u3000", "\u2028"} {
			spaced := strings.ReplaceAll(source, "¦", space)
			denial := checkCode(policy, []string{"javascript", "js", "node", "typescript", "ts"}[len(source)%5], spaced[1:])
			reason := ""
			if denial != nil {
				reason = denial.Reason
			}
			if reason != want[source[0]] {
				t.Errorf("%q: %+v", spaced, denial)
			}
		}
	}
}

func TestDottedModulesAreLiteral(t *testing.T) {
	t.Parallel()
	policy := codePolicy(t, v1alpha1.CodePolicy{DeniedModules: []string{"os.path", "xml.dom"}})
	for source, denied := range map[string]bool{
		"import os.path": true, "from os.path import join": true, "from os import path": true, "from os import sep, path": true, "from os import (sep,\n path)": true, "os.path.join('a')": true, "import os.path.x": true, "__import__('os.path')": true,
		"import os": false, "import osxpath": false, "from os import (\n  sep, # c\n  path as p,\n)": true, "from os import sep as s, path": true, "from os import sep, \\\n path": true, "from os import sep\npath = sep": false, "from os import sep as path": false, "from os import (sep)\npath = sep": false, "import a, os.path": true,
		"from os import sep": false, "os.sep": false, "import os.pathx": false, "from os import pathlike": false, "xml.dom": true, "import xml.sax": false, "from xml import dom as d": true, "os . path": true,
	} {
		if denial := checkCode(policy, "python", source); (denial != nil) != denied {
			t.Errorf("%q: %+v", source, denial)
		}
	}
}

// FuzzCode checks that no source makes a guard fail.
func FuzzCode(f *testing.F) {
	for _, source := range append(append([]string{}, allowedSources...), deniedSources...) {
		f.Add(source)
	}
	policy := codePolicy(f, v1alpha1.CodePolicy{})
	f.Fuzz(func(t *testing.T, source string) {
		for _, language := range []string{"python", "javascript"} {
			if denial := checkCode(policy, language, source); denial != nil && denial.Reason == v1alpha1.ReasonGuardError {
				t.Errorf("%s: %s", language, denial.Message)
			}
		}
	})
}
