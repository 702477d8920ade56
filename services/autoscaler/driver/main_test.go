package driver

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"flightline/shared/testenv"
)

func TestMain(m *testing.M) {
	testenv.SetParallel()
	if program := programs[flag.Arg(0)]; program != nil {
		program(flag.Args()[1:])
	}
	goleak.VerifyTestMain(cleaner{m})
}

// cleaner removes what the tests share.
type cleaner struct{ *testing.M }

func (c cleaner) Run() int {
	code := c.M.Run()
	removeImage()
	if name, err := helper(); err == nil {
		_ = os.RemoveAll(filepath.Dir(name))
	}
	return code
}

// helper is testdata/pod, linked statically; built once.
var helper = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "flightline-driver")
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "pod")
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", name, "./testdata/pod")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", errors.Join(errors.New(string(out)), err)
	}
	return name, nil
})

func program(t *testing.T) string {
	t.Helper()
	name, err := helper()
	if err != nil {
		t.Fatal(err)
	}
	return name
}
