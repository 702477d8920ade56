package process_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"flightline/shared/process"
)

var (
	errBroken = errors.New("broken")
	silent    = slog.New(slog.DiscardHandler)
)

// diary notes what happened, in order.
type diary struct {
	mu    sync.Mutex
	lines []string
}

func (d *diary) note(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, line)
}

// obedient is a part that stops when told to, taking its time, and returns err.
func (d *diary) obedient(name string, takes time.Duration, err error) process.Part {
	return process.Part{Name: name, Run: func(ctx context.Context) error {
		<-ctx.Done()
		<-time.After(takes)
		d.note(name)
		return err
	}}
}

func TestPartsStopInReverseOrderOneAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var d diary
		began := time.Now()
		err := process.Run(ctx, silent,
			d.obedient("bus", time.Second, nil), d.obedient("api", 2*time.Second, nil), d.obedient("worker", 3*time.Second, nil))
		if err != nil {
			t.Errorf("got %v, want nil: nothing failed", err)
		}
		if want := []string{"worker", "api", "bus"}; !slices.Equal(d.lines, want) {
			t.Errorf("got order %v, want %v", d.lines, want)
		}
		if got, want := time.Since(began), time.Minute+6*time.Second; got != want {
			t.Errorf("got an end after %v, want %v", got, want)
		}
	})
}

func TestTheFirstErrorStopsTheOthersAndNoErrorIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		worse := errors.New("worse")
		broken := process.Part{Name: "api", Run: func(context.Context) error { return errBroken }}
		err := process.Run(t.Context(), silent, d.obedient("bus", 0, worse), broken, d.obedient("worker", 0, context.Canceled))
		if !errors.Is(err, errBroken) || !errors.Is(err, worse) {
			t.Errorf("got %v, want both errors", err)
		}
		if errors.Is(err, context.Canceled) {
			t.Errorf("got %v: stopping when told to is no error", err)
		}
		if got := err.Error(); !strings.Contains(got, "bus: worse") || !strings.Contains(got, "api: broken") {
			t.Errorf("got %q, want the parts' names", got)
		}
		if want := []string{"worker", "bus"}; !slices.Equal(d.lines, want) {
			t.Errorf("got order %v, want %v", d.lines, want)
		}
	})
}

func TestTheOthersGoOnWithoutAnOptionalPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var logged strings.Builder
		var d diary
		broken := process.Part{Name: "metrics", Optional: true, Run: func(context.Context) error { return errBroken }}
		done := make(chan error, 1)
		log := slog.New(slog.NewTextHandler(&logged, nil))
		go func() { done <- process.Run(ctx, log, broken, d.obedient("api", 0, nil)) }()
		synctest.Wait()
		if want := "part=metrics err=broken"; len(d.lines) > 0 || !strings.Contains(logged.String(), want) {
			t.Errorf("got ends %v and the log %q, want none and %q", d.lines, logged.String(), want)
		}
		stop()
		if err := <-done; err != nil {
			t.Errorf("got %v, want nil", err)
		}
	})
}

func TestAPartThatIsDoneLeavesTheOthersRunning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		var d diary
		began := time.Now()
		brief := process.Part{Name: "demo", Run: func(context.Context) error { return nil }}
		if err := process.Run(ctx, silent, brief, d.obedient("api", 0, nil)); err != nil {
			t.Errorf("got %v, want nil", err)
		}
		if got := time.Since(began); got != time.Hour {
			t.Errorf("got an end after %v, want %v", got, time.Hour)
		}
	})
}

func TestRunEndsWhenAllPartsAreDone(t *testing.T) {
	brief := process.Part{Name: "demo", Run: func(context.Context) error { return nil }}
	if err := process.Run(t.Context(), silent, brief, brief); err != nil {
		t.Errorf("got %v, want nil", err)
	}
}

func TestAStuckPartIsGivenUpAfterItsGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tests := map[string]struct{ grace, want time.Duration }{
			"unless said otherwise": {0, process.StopGrace},
			"its own":               {time.Minute, time.Minute},
		}
		for name, test := range tests {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			var d diary
			release := make(chan struct{})
			stuck := process.Part{Name: "stuck", Grace: test.grace, Run: func(context.Context) error {
				<-release
				return nil
			}}
			began := time.Now()
			err := process.Run(ctx, silent, d.obedient("bus", 0, nil), stuck)
			if !errors.Is(err, process.ErrStuck) {
				t.Errorf("%s: got %v, want ErrStuck", name, err)
			}
			if got := time.Since(began); got != test.want {
				t.Errorf("%s: got %v, want %v", name, got, test.want)
			}
			if want := []string{"bus"}; !slices.Equal(d.lines, want) {
				t.Errorf("%s: got stopped %v, want %v: the others stop all the same", name, d.lines, want)
			}
			close(release)
		}
	})
}

func TestPartsKeepTheValuesOfTheContext(t *testing.T) {
	type key struct{}
	ctx := context.WithValue(t.Context(), key{}, "kept")
	err := process.Run(ctx, silent, process.Part{Name: "p", Run: func(ctx context.Context) error {
		if got := ctx.Value(key{}); got != "kept" {
			t.Errorf("got %v, want kept", got)
		}
		return nil
	}})
	if err != nil {
		t.Error(err)
	}
}

func TestASignalEndsTheContext(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		ctx, stop := process.Signals(t.Context())
		raise(t, sig)
		<-ctx.Done()
		stop()
	}
}

// A terminal that is closed sends it to its shell and to the programs of the shell, and the
// shell to them too.
func TestASecondHangupEndsNoProcess(t *testing.T) {
	ctx, stop := process.Signals(t.Context())
	defer stop()
	raise(t, syscall.SIGHUP)
	<-ctx.Done()
	stop()
	seen := make(chan os.Signal, 1)
	signal.Notify(seen, syscall.SIGHUP) //nolint:forbidigo // it knows when the signal has come
	raise(t, syscall.SIGHUP)
	<-seen
}

// nohup starts a program so.
func TestAHangupThatIsIgnoredStaysSo(t *testing.T) {
	signal.Ignore(syscall.SIGHUP)
	defer func() { // Reset alone would leave it ignored
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGHUP) //nolint:forbidigo // for the other tests
		signal.Stop(c)
	}()
	_, stop := process.Signals(t.Context())
	defer stop()
	if !signal.Ignored(syscall.SIGHUP) {
		t.Error("a hangup is no longer ignored")
	}
}

func raise(t *testing.T, sig os.Signal) {
	t.Helper()
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := self.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

// Somebody who pressed Ctrl-C sees after a second what is waited for.
func TestASlowStopNamesWhatItWaitsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		var d diary
		var logged strings.Builder
		slow := d.obedient("worker", 5*time.Second, nil)
		slow.Waiting = func() string { return "2 running jobs" }
		nameless := d.obedient("http", 2*time.Second, nil)
		log := slog.New(slog.NewTextHandler(&logged, nil))
		if err := process.Run(ctx, log, d.obedient("bus", process.NoticeDelay/2, nil), nameless, slow); err != nil {
			t.Error(err)
		}
		lines := strings.Split(strings.TrimSpace(logged.String()), "\n")
		want := []string{`second Ctrl-C ends the process at once" waiting_for="worker (2 running jobs)" at_most=10s`, "waiting_for=http at_most=10s"}
		if len(lines) != len(want) || !strings.HasSuffix(lines[0], want[0]) || !strings.HasSuffix(lines[1], want[1]) {
			t.Errorf("got %q, want lines with %q", lines, want)
		}
	})
}
