package fleets

import (
	"io/fs"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"flightline/shared/testenv/program"
)

// whatPython asks an interpreter where it and its packages are.
const whatPython = `
import json, os, sys, sysconfig
get = sysconfig.get_path
print(json.dumps({
    "binary": os.path.realpath(sys.executable),
    "library": get("stdlib"),
    "packages": sorted({get("purelib"), get("platlib")}),
}))`

// idlePython are folders and files that no worker reads; without them an image
// is small. A file that is not named here does no harm.
var idlePython = []string{
	"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "ensurepip", "tkinter", "turtledemo", "pydoc_data", "config-*",
	"_tkinter*", "*.opt-?.pyc", "*.a", "pip", "setuptools", "pkg_resources", "openai", "botocore", "pygments", "uvloop",
}

// pythonFiles is what an image needs to run this script with this interpreter:
// both, the standard library, the packages and the shared libraries of all
// these, each at the path that it has here.
func pythonFiles(t *testing.T, python, script string) (files map[string]string, entrypoint []string, env map[string]string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), python, "-c", whatPython).Output()
	if err != nil {
		t.Fatal(err)
	}
	var is struct {
		Binary, Library string
		Packages        []string
	}
	program.Decode(t, string(out), &is)
	files = map[string]string{is.Binary: is.Binary, script: script}
	for _, dir := range append(is.Packages, is.Library) {
		addPython(t, files, dir)
	}
	addLibraries(t, files, is.Binary)
	return files, []string{is.Binary, script}, map[string]string{"PYTHONPATH": strings.Join(is.Packages, ":")}
}

// addPython adds what is in a folder of modules, but what is idle.
func addPython(t *testing.T, files map[string]string, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		idle := slices.ContainsFunc(idlePython, func(pattern string) bool {
			matched, _ := filepath.Match(pattern, entry.Name()) // the patterns are good
			return matched
		})
		switch {
		case idle && entry.IsDir():
			return fs.SkipDir
		case !idle && !entry.IsDir():
			files[path] = path
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// addLibraries adds what the program and the modules among the files load.
func addLibraries(t *testing.T, files map[string]string, program string) {
	t.Helper()
	load := []string{program}
	for path := range files {
		if strings.HasSuffix(path, ".so") {
			load = append(load, path)
		}
	}
	out, err := exec.CommandContext(t.Context(), "ldd", load...).Output()
	if err != nil {
		t.Fatalf("ldd: %v", err)
	}
	for word := range strings.FieldsSeq(string(out)) {
		if filepath.IsAbs(word) && !strings.HasSuffix(word, ":") { // that names who loads
			files[word] = word
		}
	}
}
