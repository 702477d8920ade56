//go:build linux

package driver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/shared/pod"
	"flightline/shared/testenv"
)

func newProcess(t *testing.T, cfg ProcessConfig) *Process {
	t.Helper()
	if cfg.Folder == "" {
		cfg.Folder = t.TempDir()
	}
	p, err := NewProcess(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { shut(t, p) })
	return p
}

// shut closes the driver, with no patience for its pods.
func shut(t *testing.T, p *Process) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := p.Close(ctx); err != nil {
		t.Error(err)
	}
}

func processRig(t *testing.T, p *Process) rig {
	t.Helper()
	name := program(t)
	return rig{driver: p, spec: func(args ...string) pod.Spec {
		return pod.Spec{Command: append([]string{name}, args...)}
	}}
}

func TestProcessConforms(t *testing.T) {
	t.Parallel()
	for name, claim := range conform {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			claim(t, processRig(t, newProcess(t, ProcessConfig{})))
		})
	}
}

// living are the processes of a fleet, or of all that a machine ever had.
func living(mark string) []int {
	return matching(func(env [][]byte) bool {
		return slices.ContainsFunc(env, func(v []byte) bool { return strings.HasPrefix(string(v), fleetVariable+"="+mark) })
	})
}

func TestAPodEndsWithAllThatItStarted(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *Process, rig){
		"stopped": func(t *testing.T, _ *Process, r rig) {
			t.Helper()
			r.stop(t, "p1", patience)
		},
		"killed": func(_ *testing.T, p *Process, _ rig) {
			_ = p.pods["p1"].cmd.Process.Kill()
		},
		"closed": func(t *testing.T, p *Process, _ rig) {
			t.Helper()
			shut(t, p)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcess(t, ProcessConfig{})
			r := processRig(t, p)
			r.start(t, "p1", "spawn")
			r.start(t, "p2", "run")
			testenv.Eventually(t, "three processes", func() bool { return len(living(p.fleet)) == 3 })
			end(t, p, r)
			r.ended(t, "p1")
			if x, _ := r.find(t, "p2"); x.Running == (name == "closed") || len(living(p.fleet)) != map[bool]int{true: 1}[x.Running] {
				t.Errorf("got %+v and processes %v, want only the other pod's", x, living(p.fleet))
			}
		})
	}
}

func TestNothingOfOursLeaksIntoAPod(t *testing.T) {
	t.Setenv("NATS_PASSWORD", "secret")
	r := processRig(t, newProcess(t, ProcessConfig{}))
	r.start(t, "p1", "env")
	var names []string
	for line := range strings.Lines(r.ended(t, "p1").Reason) {
		name, _, _ := strings.Cut(line, "=")
		names = append(names, name)
	}
	for _, name := range names {
		if !slices.Contains([]string{"PATH", "HOME", "LANG", "TMPDIR", "GREETING", fleetVariable, podVariable}, name) {
			t.Errorf("got %s among %q", name, names)
		}
	}
	if !slices.Contains(names, "PATH") {
		t.Errorf("got %q, want PATH", names)
	}
}

func TestAProcessIsListedWithItsGPUs(t *testing.T) {
	r := processRig(t, newProcess(t, ProcessConfig{}))
	if err := r.driver.Start(t.Context(), Start{PodID: "p1", Spec: r.spec("run"), GPUs: []pod.GPU{{UUID: "GPU-1"}}}); err != nil {
		t.Fatal(err)
	}
	if x, _ := r.find(t, "p1"); !slices.Equal(x.GPUs, []string{"GPU-1"}) {
		t.Errorf("got GPUs %v", x.GPUs)
	}
}

func TestWhyAPodEndedIsTheLastLines(t *testing.T) {
	folder := t.TempDir()
	r := processRig(t, newProcess(t, ProcessConfig{Folder: folder}))
	r.start(t, "p1", "write", "1000000")
	x := r.ended(t, "p1")
	if len(x.Reason) > tailBytes || !strings.HasSuffix(x.Reason, "x\nthe end") || !strings.HasPrefix(x.Reason, strings.Repeat("x", 99)+"\n") {
		t.Errorf("got %d bytes %q, want whole last lines", len(x.Reason), x.Reason)
	}
	if err := r.driver.Forget(t.Context(), "p1"); err != nil {
		t.Fatal(err)
	}
	if left, _ := os.ReadDir(filepath.Join(folder, podsFolder)); len(left) != 0 {
		t.Errorf("got %v, want nothing left", left)
	}
}

func TestTheEndOfALongLineHidesSecrets(t *testing.T) {
	const secret = "s3cr3t-abcdefghijklmnopqrstuvwxyz-0123456789"
	long := strings.Repeat("0123456789", 600) + "end-of-the-key"
	env := map[string]string{"DB_PASSWORD": secret, "LONG_KEY": long}
	rest := strings.Repeat("x", tailBytes)
	for name, tc := range map[string]struct{ printed, want string }{
		"nothing":                      {"", ""},
		"a secret in a short line":     {"a " + secret + " b\n", "a *** b"},
		"lines before a short one":     {secret + rest + "\nlast\n", "last"},
		"it begins before a secret":    {rest + "password " + secret, rest[:tailBytes-len("password "+secret)] + "password ***"},
		"it begins within a secret":    {"a " + secret + rest[20:], rest[:tailBytes-32]},
		"within one in JSON":           {`{"a":"` + secret + `","b":"` + rest[20:] + `"}`, rest[:tailBytes-32-2-len(`"}`)+2] + `"}`},
		"within one of another length": {long + rest[100:], rest[:tailBytes-128]},
		"all of it is of a secret":     {long, ""},
		"within a login":               {"https://me:" + strings.Repeat("p", 50) + "@host/" + rest[30:], rest[:tailBytes-32]},
		"within what is no secret":     {rest + rest, rest},
	} {
		end := &tail{conceal: pod.Concealer(env)}
		for part := range slices.Chunk([]byte(tc.printed), 1000) {
			_, _ = end.Write(part)
		}
		if got := end.text(); got != tc.want {
			t.Errorf("%s: got %d bytes %.80q … %.20q, want %d bytes", name, len(got), got, got[max(0, len(got)-20):], len(tc.want))
		}
	}
}

func TestAFolderIsOneDrivers(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	first := newProcess(t, ProcessConfig{Folder: folder})
	if _, err := NewProcess(t.Context(), ProcessConfig{Folder: folder}); !errors.Is(err, ErrBusy) {
		t.Errorf("got %v, want ErrBusy", err)
	}
	id, _, _ := first.Machine(t.Context())
	shut(t, first)
	again, _, _ := newProcess(t, ProcessConfig{Folder: folder}).Machine(t.Context())
	other, _, _ := newProcess(t, ProcessConfig{}).Machine(t.Context())
	if id != again || id == other {
		t.Errorf("got %q, again %q, elsewhere %q", id, again, other)
	}
}

func TestHowAPodEndedSurvivesARestart(t *testing.T) {
	folder := t.TempDir()
	first := newProcess(t, ProcessConfig{Folder: folder})
	r := processRig(t, first)
	r.start(t, "p1", "exit", "3", "why")
	want := r.ended(t, "p1")
	shut(t, first)
	if err := first.Start(t.Context(), Start{PodID: "p2", Spec: r.spec("run")}); !errors.Is(err, errClosed) {
		t.Errorf("got %v, want errClosed", err)
	}
	r = processRig(t, newProcess(t, ProcessConfig{Folder: folder}))
	if got, _ := r.find(t, "p1"); got.Code != 3 || got.Reason != "why" || !got.Started.Equal(want.Started) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// beParent is the program that is killed: it starts the pods "p-<argument>"
// and never ends.
func beParent(folder string, podArgs []string) {
	p, err := NewProcess(context.Background(), ProcessConfig{Folder: folder, Reaper: []string{os.Args[0], "reaper"}})
	for _, arg := range podArgs[1:] {
		if err == nil {
			err = p.Start(context.Background(), Start{PodID: "p-" + arg, Spec: pod.Spec{Command: []string{podArgs[0], arg}}})
		}
	}
	fmt.Println("fleet", p.fleet, err) //nolint:forbidigo // the test reads it
	select {}
}

// beReaper is the program that ends what the killed one left.
func beReaper(mark, grace string) {
	d, err := time.ParseDuration(grace)
	if err == nil {
		err = RunReaper(context.Background(), os.Stdin, mark, d)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:forbidigo // it is a program
	}
	os.Exit(0) //nolint:forbidigo // it is a program
}

// killedParent starts a program that runs pods, and kills it.
func killedParent(t *testing.T, folder string, pods ...string) (fleet string) {
	t.Helper()
	fleet, kill := startParent(t, folder, pods...)
	testenv.Eventually(t, "the processes", func() bool {
		return len(living(fleet)) == len(pods)+strings.Count(strings.Join(pods, ""), "spawn")
	})
	kill()
	return fleet
}

// startParent starts a program that runs pods.
func startParent(t *testing.T, folder string, pods ...string) (fleet string, kill func()) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, append([]string{"parent", folder, program(t)}, pods...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	words := strings.Fields(line)
	if err != nil || len(words) != 3 || words[2] != "<nil>" {
		t.Fatalf("got %q, %v", line, err)
	}
	return words[1], func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
}

func TestNothingOutlivesAKilledParent(t *testing.T) {
	t.Parallel()
	fleet := killedParent(t, t.TempDir(), "run", "spawn", "stubborn")
	testenv.Eventually(t, "all processes ended", func() bool { return len(living(fleet)) == 0 && !hasReaper(fleet) })
}

// As when a driver stops a pod: it is asked to end, and its jobs' commands, which have groups
// of their own, are its to end.
func TestOnlyTheFirstGroupOfAPodIsAskedToEnd(t *testing.T) {
	t.Parallel()
	noted := func(name string) bool {
		_, err := os.Stat(filepath.Join(filepath.Dir(program(t)), name))
		return err == nil
	}
	fleet, kill := startParent(t, t.TempDir(), "delegate")
	testenv.Eventually(t, "the pod's own process", func() bool { return noted("ready") })
	kill()
	testenv.Eventually(t, "all processes ended", func() bool { return len(living(fleet)) == 0 && !hasReaper(fleet) })
	if !noted("delegate") {
		t.Error("the pod was not asked to end")
	}
	if noted("witness") {
		t.Error("what the pod runs in a group of its own was asked to end, want the pod alone")
	}
}

func TestWhatAKilledParentLeftIsKilledByTheNext(t *testing.T) {
	folder := t.TempDir()
	fleet := killedParent(t, folder, "spawn", "stubborn")
	p := newProcess(t, ProcessConfig{Folder: folder}) // sooner than the reaper
	if left := living(p.machine + "."); len(left) != 0 {
		t.Errorf("got %v, want none", left)
	}
	r := processRig(t, p)
	r.start(t, "p1", "run")
	for _, id := range []string{"p-spawn", "p-stubborn"} {
		if x, found := r.find(t, id); !found || x.Running || x.Code != -1 || x.Reason == "" {
			t.Errorf("got %+v %v, want it ended", x, found)
		}
	}
	testenv.Eventually(t, "the first one's reaper left", func() bool { return !hasReaper(fleet) })
	if x, _ := r.find(t, "p1"); !x.Running {
		t.Errorf("got %+v, want it left alone", x)
	}
}

// As when a data folder is copied to try another version on the same machine.
func TestADriverOfACopiedFolderLeavesTheOthersPodsAlone(t *testing.T) {
	folder, copied := t.TempDir(), filepath.Join(t.TempDir(), "copied")
	first := newProcess(t, ProcessConfig{Folder: folder})
	r := processRig(t, first)
	r.start(t, "p1", "run")
	if err := os.CopyFS(copied, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	second := newProcess(t, ProcessConfig{Folder: copied})
	if x, found := processRig(t, second).find(t, "p1"); !found || x.Running {
		t.Errorf("got %+v %v by the copy, want it ended", x, found)
	}
	if x, _ := r.find(t, "p1"); !x.Running || len(living(first.fleet)) != 1 {
		t.Errorf("got %+v and processes %v, want the pod left alone", x, living(first.fleet))
	}
}

// As on a full disk.
func TestADriverStartsThoughItCanRecordNoEnd(t *testing.T) {
	folder := t.TempDir()
	killedParent(t, folder, "stubborn")
	inTheWay := filepath.Join(folder, podsFolder, "p-stubborn"+recordEnd+".new", "x")
	if err := os.MkdirAll(inTheWay, 0o700); err != nil {
		t.Fatal(err)
	}
	p := newProcess(t, ProcessConfig{Folder: folder})
	if x, found := processRig(t, p).find(t, "p-stubborn"); !found || x.Running || len(living(p.machine+".")) != 0 {
		t.Errorf("got %+v %v, want it ended", x, found)
	}
}

// A process that hangs in the kernel goes on after SIGKILL: here a process that was not
// waited for.
func TestNothingWaitsWithoutEndForAPodThatHangs(t *testing.T) {
	folder := t.TempDir()
	p := newProcess(t, ProcessConfig{Folder: folder})
	p.hangs = 50 * time.Millisecond
	cmd := exec.Command("true")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	p.pods["p1"] = &process{cmd: cmd, done: make(chan struct{}), record: record{PodID: "p1"}}
	const want = "pod p1: process"
	if err := p.Stop(t.Context(), "p1", 0); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("stop: got %v, want an error with %q", err, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Close(ctx); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("close: got %v, want an error with %q", err, want)
	}
	newProcess(t, ProcessConfig{Folder: folder}) // the folder is free
}

// What ctx ends is the look for processes that do not end on SIGKILL.
func TestADriverStartsThoughWhatAnEarlierOneLeftGoesOn(t *testing.T) {
	folder := t.TempDir()
	killedParent(t, folder, "spawn")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p, err := NewProcess(ctx, ProcessConfig{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	shut(t, p)
}

func TestAPodKeepsItsGraceWhenTheContextOfItsStopEnds(t *testing.T) {
	t.Parallel()
	p := newProcess(t, ProcessConfig{})
	ready := filepath.Join(t.TempDir(), "ready")
	script := "trap 'sleep 1; exit 5' TERM; : > " + ready + "; while :; do sleep 0.05; done"
	if err := p.Start(t.Context(), Start{PodID: "p1", Spec: pod.Spec{Command: []string{"sh", "-c", script}}}); err != nil {
		t.Fatal(err)
	}
	testenv.Eventually(t, "it is ready", func() bool { _, err := os.Stat(ready); return err == nil })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := p.Stop(ctx, "p1", patience); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want Canceled", err)
	}
	if x := processRig(t, p).ended(t, "p1"); x.Code != 5 {
		t.Errorf("got code %d (%s), want 5: it was killed at once", x.Code, x.Reason)
	}
}

// hasReaper reports whether the fleet still has its reaper.
func hasReaper(fleet string) bool {
	names, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	return slices.ContainsFunc(names, func(name string) bool {
		text, _ := os.ReadFile(name)
		return strings.Contains(string(text), "reaper\x00"+fleetVariable+"="+fleet)
	})
}
