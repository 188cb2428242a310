package guards

import (
	"strings"
	"testing"

	"toolcall.dev/operator/api/v1alpha1"
)

// deniedSources use os, subprocess or importlib in Python; each must be refused.
var deniedSources = []string{
	"import os", "import  os", "import\tos", "import\fos", "import os as o", "import os.path", "import os . path", "import math, os", "import math,os", "import math as m, os as o", "import math ,\\\n os", "import \\\n os", "import\\\nos", "import \\\r\n os", "import os;", "x=1;import os", "if 1: import os",
	"def f():\n\timport os", "import os # c", "import(os)", "try:\n import os\nexcept: pass", "\ufeffimport os", "import os\r\nimport math", "import math\rimport os", "# c\rimport os", "class A: import os", "lambda: 0; import os", "x = 1; y = 2;import os", "import posixpath, os.path as p",
	"from os import system", "from os import (system)", "from os import(system)", "from os import*", "from os import *", "from os.path import join", "from os . path import join", "from  os\timport system", "from\\\nos\\\nimport\\\nsystem", "from os\\\n import system", "from pathlib import os", "from pathlib import Path, os", "from pathlib import (Path, os)",
	"from pathlib import (Path,\n os)", "from pathlib import (Path, # c\n os)", "from pathlib import ( # c\ros)", "from pathlib import Path as p, os", "from x import(os)", "from x import(\nos\n)", "from x import (a,\n# os\n# b\nos,)", "from .x import os",
	"os.system('x')", "os .system('x')", "os\\\n.system('x')", "(os\n.system('x'))", "(os # c\n.system('x'))", "os. system('x')", "os.\\\nsystem('x')", "x=os.environ", "f(os.getcwd())", "[os.sep]", "{os.sep}", "-os.x", "~os.x", "@os.x", "self.os.x", "pathlib.os.system('x')", "os\t.x", "os\f.x",
	"__import__('os')", "__import__(\"os\")", "__import__ ('os')", "__import__( 'os' )", "__import__(\n'os')", "__import__\\\n('os')", "__import__('os.path')", "__import__(name='os')", "__import__(name = \"os\")", "__import__(*['os'])", "__import__(('os'))", "__import__(r'os')", "__import__(u'os')", "__import__('''os''')", "__import__(\"\"\"os\"\"\")",
	"__import__('o' 's')", "__import__('o' + 's')", "__import__('o'\n's')", "__import__('o'+\\\n's')", "__import__('\\x6fs')", "__import__('\\157s')", "__import__('\\u006fs')", "__import__('\\U0000006fs')", "__import__('\\N{LATIN SMALL LETTER O}s')", "__import__(f'o{\"s\"}')", "__import__(f'os')", "i=__import__; i('os')", "(__import__)('os')",
	"getattr(__builtins__, '__import__')('os')", "__builtins__.__import__('os')", "__builtins__['__import__']('os')", "globals()['__import__']('os')", "vars()['x']('os')", "importlib.import_module('os')", "import importlib", "from importlib import import_module", "importlib . import_module('os')", "import_module('os')", "import_module(name='os')",
	"exec('import os')", "exec(\"import os\")", "exec('''import os''')", "exec('x=1\\nimport os')", "exec('x=1\\n\\timport os')", "exec('imp\\x6frt os')", "exec('import\\x20os')", "exec('\\x69mport os')", "exec('im' 'port os')", "exec('im' + 'port os')", "exec('im'\n'port os')", "exec('im' \"port os\")", "exec('im'r'port os')", "exec('im'  b'port os')",
	"exec(b'import os')", "exec(r'import os')", "exec(f'import os')", "exec(u'import os')", "exec(f'im{\"port\"} os')", "eval('__import__(\"os\")')", "eval(\"__import__('os')\")", "eval('__imp' 'ort__(\"o\" \"s\")')", "exec(compile('import os','','exec'))", "compile('import os','','exec')", "exec('exec(\"import os\")')", "exec('exec(\"imp\\\\x6frt os\")')",
	"exec('impo\\\nrt os')", "exec('import \\157\\163')", "exec('\\151\\155port os')", "exec('import\\tos')", "exec('import \\\n os')", "eval('os.system')", "exec('from os import x')", "exec('from o' 's import x')", "exec('o' 's.system()')", "x='import os'; exec(x)", "exec('import os'.strip())", "exec('#\\nimport os')", "exec(\"\\u0069mport os\")", "exec('im\\\r\nport os')",
	"import ｏｓ", "import ｏs", "ｏｓ.system('x')", "from ｏｓ import x", "import 𝐨𝐬", "import 𝓸𝓼", "import ℴｓ", "import oſ", "__import__('ｏｓ')", "𝗼𝘀.system()", "import subproceſs", "exec('import ｏｓ')", "ｏｓ\\\n.x", "__𝘪mport__('os')",
	"#coding:utf-7\n+AGkAbQBwAG8AcgB0 os-", "# -*- coding: utf-7 -*-\nx", "#!/usr/bin/python\n# vim: set fileencoding=utf_7 :\nx", "# coding=unicode_escape\nx", "#coding: raw-unicode-escape\n\\u0069mport os", "\n# coding: rot13\nx", "#" + strings.Repeat("x", 5000) + "\n# coding: utf-7", "#!x\r\n# coding: utf-7\r\n", "#!x\r# coding: utf-7", "# encoding: cp037\nx", "\ufeff# coding: utf-7",
	"import subprocess", "subprocess.run(['ls'])", "from subprocess import run", "import ctypes.util", "from ctypes import *", "import marshal, math", "pickle.loads(b'')", "import shutil as s", "sys.modules['os']", "import sys", "modules['os']", "modules.get('os')", "importlib", "import _x, os",
}

// deniedIn is deniedSources for what "importlib" alone can't be refused for.
var notUses = map[string]bool{"importlib": true}

// joinedSources use a denied module through strings over comments, names of characters, and names of constants.
var joinedSources = map[string][]string{
	"python": {
		"__import__('o' # x\r\n's')", "__import__('o' # x\r's')", "__import__(('o' # a\n # b\n\n 's'))", "exec('imp' # 'x'\n 'ort os')", "__import__('o' + # c\n 's')", "__import__('o' # c\n + 's')", "exec('im\\N{LATIN SMALL LETTER P}ort os')",
		"exec('import \\N{FULLWIDTH LATIN SMALL LETTER O}s')", "exec('import \\N{MATHEMATICAL BOLD SMALL O}s')", "exec('import \\N{latin small letter long s}')", "find_spec(n); n='os'",
	},
	"javascript": {
		"const n='fs';import(n)", "const n='fs';require(n)", "const n='f'/* x */+'s';import(n)", "const n=`fs`; await import(n)", "let n='node:fs'; import(n)", "const r=require;r('fs')", "import(\n/* c */ n); n='fs'",
		"(0,fetch)('x')", "const f=fetch;f('x')", "globalThis['fetch']('x')", "globalThis[`fetch` ]('x')", "const {fetch:f}=globalThis;f('x')", "Reflect.apply(fetch,null,['x'])", "[fetch][0]('x')", "(fetch)('x')", "const f = globalThis.fetch\nf('x')", "var f=fetch||0;f('x')", "f=c?fetch:0",
	},
}

// plainSources are close to joinedSources, and use nothing.
var plainSources = map[string][]string{
	"python":     {"x='\\N{BULLET} \\N{EM DASH}'", "x='\\N{GREEK SMALL LETTER ALPHA}'", "x='\\N{LATIN SMALL LETTER E WITH ACUTE}'", "x = 'a' # os\ny='b'", "import math # 'os'\nx='a'"},
	"javascript": {"// fetch the data\nconsole.log(1)", "const prefetch=1", "let s='we fetch data'", "import x from 'path'", "const m = await import('path'); let a='fs'", "let x = 'fetch'"},
}

func TestJoinedAndNamedModulesAreFound(t *testing.T) {
	t.Parallel()
	for language, denied := range map[string][]string{"python": nil, "javascript": {"child_process", "fs"}} {
		policy := codePolicy(t, v1alpha1.CodePolicy{Languages: []string{}, DeniedModules: denied})
		for _, source := range joinedSources[language] {
			if checkCode(policy, language, source) == nil {
				t.Errorf("allowed: %q", source)
			}
		}
		for _, source := range plainSources[language] {
			if denial := checkCode(policy, language, source); denial != nil {
				t.Errorf("refused: %q: %s", source, denial.Message)
			}
		}
	}
}

// allowedSources are ordinary code that a careless scanner refuses.
var allowedSources = []string{
	"print(1)", "import math\nprint(math.pi)", "import subprocesses", "myos.path", "# subprocess comment with no code", "import json, re", "from collections import OrderedDict", "import osxpath", "from mypkg.os_utils import x", "xos.y", "os_x.y", "_os.x", "print('the os')", "osmosis = 1", "cos = 2", "x = 'boss.name'", "sysadmin = 1", "sys_ = 1; sys_.x = 2",
	"import oss", "import os2", "from oss import x", "imports = 1", "reimport = 'os'", "x = {'os': 1}", "print('os')", "d['sys']", "name = \"os\"", "f('socket')", "import requests_mock", "def prefetch(x): pass\nprefetch(1)", "x.prefetch()", "import numpy as np\nnp.array([1])", "from pathlib import Path\nPath('.').exists()", "print(\"os\" + 'x')",
	"s = 'a\\nb\\tc\\x41'", "s = \"it's\" ' fine'", "re.compile(r'\\d+\\.\\w')", "x = 'https://example.com/requests'", "importos = 1", "x = '''doc\nstring'''", "é = 1; print(é)", "print('日本')", "# coding: utf-8\nprint(1)", "# -*- coding: latin-1 -*-\nx=1", "# encoding=ascii", "x = 'coding: is fun'", "\n\n\n# coding: utf-7 is not read here", "http_status = 200",
	"class Httpx2: pass", "from x import y as z", "import a.b.c", "import foo.os_path", "lambda os: os", "os = 1\nprint(os)", "a, os = 1, 2", "if os: pass", "", " ", "'", "\"", "\\", "import", "from", "import (", "from x import (", "__import__(", "__import__('json')", "importer('os')", "x = [i for i in range(3)]",
}

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

func TestSourcesThatUseDeniedModulesAreRefused(t *testing.T) {
	t.Parallel()
	policy := codePolicy(t, v1alpha1.CodePolicy{})
	for _, source := range deniedSources {
		denial := checkCode(policy, "python", source)
		if (denial == nil || denial.Reason != v1alpha1.ReasonModuleNotAllowed) && !notUses[source] {
			t.Errorf("%q: %+v", source, denial)
		}
	}
}

func TestOrdinarySourcesAreAllowed(t *testing.T) {
	t.Parallel()
	policy := codePolicy(t, v1alpha1.CodePolicy{})
	for _, source := range allowedSources {
		if denial := checkCode(policy, "python", source); denial != nil {
			t.Errorf("%q: %s: %s", source, denial.Reason, denial.Message)
		}
	}
}

// javascriptCases are for deniedModules child_process, fs, os.path and @x/y-z; the first character says whether
// the source is refused for a module (-), for network (!) or allowed (+).
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
-require('node:fs/promises')
-require?.('fs')
-module.require('fs')
-(require)('fs')
-(0,require)('fs')
-require.call(null,'fs')
-const r = require; r('fs')
-globalThis['require']('fs')
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
-require('f'+'s')
-require('f' + "s")
-require('\x66s')
-require('\u0066s')
-require('\u{66}s')
-require("f\s")
-\u0072equire('fs')
-r\u{65}quire('fs')
-eval("require('fs')")
-eval('req'+'uire("fs")')
-new Function("return require('fs')")()
-import fs from 'fs'
-require('@x/y-z')
-import z from '@x/y-z/sub'
-createRequire(x)('fs')
-process.getBuiltinModule('fs')
-process.binding('fs')
-fs.readFileSync('x')
-fs?.readFileSync('x')
-const {a} = require('fs')
-import x, {y} from // c
'fs'
-import path from 'os.path'
-const {require: r} = module; r('fs')
-let r = require // c
r('fs')
-require <!-- c
('fs')
!fetch('https://x')
!fetch ('x')
!fetch(url)
!window.fetch('x')
!await fetch¬x¬
!fetch.call(null,'x')
!fetch?.('x')
!import http from 'http'
!require('http')
!http.get('x')
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
+import { readFile } from 'fs-extra'
+'@x/y-zz'
`

func TestJavaScriptForms(t *testing.T) {
	t.Parallel()
	policy := codePolicy(t, v1alpha1.CodePolicy{
		Languages: []string{}, DeniedModules: []string{"child_process", "fs", "os.path", "@x/y-z"},
	})
	want := map[byte]string{'-': v1alpha1.ReasonModuleNotAllowed, '!': v1alpha1.ReasonNetworkNotAllowed}
	for source := range strings.SplitSeq(strings.TrimSpace(strings.NewReplacer("// c\n", "// c\r", "<!-- c\n", "<!-- c\r").Replace(javascriptCases)), "\n") {
		source = strings.ReplaceAll(source, "¬", "`")
		denial := checkCode(policy, "javascript", source[1:])
		reason := ""
		if denial != nil {
			reason = denial.Reason
		}
		if reason != want[source[0]] {
			t.Errorf("%q: %+v", source, denial)
		}
	}
}

func TestDottedModulesAreLiteral(t *testing.T) {
	t.Parallel()
	policy := codePolicy(t, v1alpha1.CodePolicy{DeniedModules: []string{"os.path", "xml.dom"}})
	for source, denied := range map[string]bool{
		"import os.path": true, "from os.path import join": true, "from os import path": true, "from os import sep, path": true, "from os import (sep,\n path)": true, "os.path.join('a')": true, "import os.path.x": true, "__import__('os.path')": true,
		"import os": false, "import osxpath": false, "from os import sep": false, "os.sep": false, "import os.pathx": false, "from os import pathlike": false, "xml.dom": true, "import xml.sax": false, "from xml import dom as d": true, "os . path": true,
	} {
		if denial := checkCode(policy, "python", source); (denial != nil) != denied {
			t.Errorf("%q: %+v", source, denial)
		}
	}
}
