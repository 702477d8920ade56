package system

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"flightline/e2e/chaos/ledger"
	"flightline/shared/testenv/port"
)

// world is one installation and its callers, in a folder and on ports of its
// own.
type world struct {
	cfg     Config
	dir     string // logs, data and ledger
	rng     *rand.Rand
	book    *book
	callers *callers

	dev      *process // of a world with `flightline dev`
	devEnv   []string
	devArgs  []string
	program  string // of dev
	devShell string // a line of shell to run before dev, "" for none
	// mayRefuse lets dev refuse to start.
	mayRefuse bool
	tampered  bool   // files of dev were changed
	cutShort  bool   // a SIGKILL may have cut a write of dev short: what it had written then is a torn end
	listen    string // host:port of its HTTP
	natsAt    string // host:port of its NATS
	cluster   *cluster
	follower  sync.WaitGroup
	closers   []func()
	// workerEnv is the environment of workers, on top of the test's.
	workerEnv []string
	jobs      *httpHandler // nil if workers run a command

	ends    sync.WaitGroup
	mu      sync.Mutex
	running []*process
	done    map[string]int // how often each fault was done
	found   []violation
	notes   []string
}

const (
	apiKey       = "fl_chaos_system_key" //nolint:gosec // of an installation on loopback that lives for a test
	endpointName = "work"
	// minLease is the shortest that an endpoint may have.
	minLease = 10 * time.Second
)

// newWorld makes the folder, and begins to read the ledger.
func newWorld(ctx context.Context, cfg Config, s scenario) (*world, error) {
	dir, err := os.MkdirTemp("", "chaos-"+s.name+"-")
	if err != nil {
		return nil, fmt.Errorf("make folder: %w", err)
	}
	if s.rule.lease == 0 {
		s.rule.lease = minLease
	}
	w := &world{
		cfg: cfg, dir: dir, done: map[string]int{}, book: newBook(s.rule), program: cfg.Binary,
		rng: rand.New(rand.NewPCG(cfg.Seed, 1)), //nolint:gosec // chance, no secret
	}
	ports, err := port.Free(2)
	if err != nil {
		return nil, err
	}
	w.listen, w.natsAt = ports[0], ports[1]
	w.callers = newCallers(w, "http://"+w.listen)
	r, err := ledger.Open(w.ledger())
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	w.callers.stopReading = stop
	w.follower.Go(func() {
		defer r.Close() //nolint:errcheck // it was only read
		if err := w.book.follow(ctx, r); err != nil {
			w.violate(ruleOutcome, "%v", err)
		}
	})
	w.follower.Go(func() {
		if err := watchStalls(ctx, filepath.Join(dir, "stalls"), w.book.stalled); err != nil {
			w.violate(ruleProcess, "%v", err)
		}
	})
	return w, nil
}

func (w *world) ledger() string { return filepath.Join(w.dir, "ledger") }

func (w *world) data() string { return filepath.Join(w.dir, "data") }

// violate notes a broken promise that is no single job's.
func (w *world) violate(rule, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, violation{rule, fmt.Sprintf(format, args...)})
}

// note adds a line to the report.
func (w *world) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notes = append(w.notes, fmt.Sprintf(format, args...))
}

// count notes that a fault was done.
func (w *world) count(fault string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.done[fault]++
}

// startDev starts `flightline dev` as shipped, with more arguments, and waits
// until it is ready. A later start gets the same.
func (w *world) startDev(ctx context.Context, args ...string) error {
	if w.dev == nil {
		w.devArgs = append([]string{
			"dev", "--data", w.data(), "--listen", w.listen, "--nats-listen", w.natsAt, "--metrics-listen", "off",
		}, args...)
	}
	program, all := w.program, w.devArgs
	w.cutShort = w.cutShort || w.dev != nil && w.dev.wasKilled()
	if w.devShell != "" {
		program, all = "/bin/sh", append([]string{"-c", w.devShell + ` && exec "$0" "$@"`, w.program}, w.devArgs...)
	}
	var err error
	if w.dev, err = w.start("dev", append(w.devEnv, "FLIGHTLINE_API_KEY="+apiKey), program, all...); err != nil {
		return err
	}
	w.dev.harmed.Store(w.mayRefuse)
	return w.ready(ctx)
}

// ready waits until dev is.
func (w *world) ready(ctx context.Context) error {
	began := time.Now()
	err := until(ctx, readyTimeout, func() error {
		select {
		case <-w.dev.gone:
			return fmt.Errorf("dev ended: %s", w.dev.lastLine())
		default:
		}
		return w.callers.readyz(ctx)
	})
	if err != nil {
		return err
	}
	w.note("dev ready after %s", time.Since(began).Round(100*time.Millisecond))
	return w.undamaged()
}

// undamaged returns an error if dev found damage in files that nothing changed.
func (w *world) undamaged() error {
	printed, err := os.ReadFile(w.dev.log)
	if w.cutShort {
		printed = bytes.ReplaceAll(printed, []byte("the end of a file of the store is torn"), nil)
	}
	if err == nil && !w.tampered && bytes.Contains(printed, []byte("a file of the store")) {
		return fmt.Errorf("dev found damage in files that nothing changed: see %s", w.dev.log)
	}
	return err
}

// endpoint makes the endpoint of the test, as a user does: by the command line.
func (w *world) endpoint(ctx context.Context, args ...string) error {
	args = append([]string{
		"endpoint", "create", endpointName, "--url", "http://" + w.listen, "--api-key", apiKey, "--retry-timeout", "1m",
		"--lease", w.book.rule.lease.String(),
	}, args...)
	_, err := w.output(ctx, w.cfg.Binary, args...)
	return err
}

// workerSlots is how many jobs a worker runs at once, unless a scenario says
// otherwise.
const workerSlots = 4

// worker starts `flightline worker` and waits until it is ready. No two workers
// of a world have the same name.
func (w *world) worker(ctx context.Context, name string) (*process, error) {
	p, err := w.beginWorker(name, workerSlots)
	if err != nil {
		return nil, err
	}
	return p, p.says(ctx, "flightline worker ready")
}

// beginWorker is worker with so many slots, and without the wait.
func (w *world) beginWorker(name string, slots int) (*process, error) {
	env := append(slices.Clone(w.workerEnv), "CHAOS_WORKER="+name)
	args := []string{"worker", endpointName, "--concurrency", strconv.Itoa(slots), "--id", name, "--log-level", "warn"}
	if w.cluster == nil {
		args = append(args, "--data", w.data())
	}
	if w.jobs != nil {
		return w.start(name, env, w.cfg.Binary, append(args, "--url", w.jobs.url+name)...)
	}
	return w.start(name, env, w.cfg.Binary, append(args, "--", w.cfg.Handler, w.ledger())...)
}

// harmWorker kills, freezes or asks a worker and notes it.
func (w *world) harmWorker(kind harm, p *process) (over func(), err error) {
	over = w.book.harm(kind, p.name)
	w.count("worker " + string(kind))
	switch kind {
	case killed:
		p.kill()
	case frozen:
		err = p.freeze()
	case asked:
		err = p.ask()
	}
	return over, err
}

// close ends all processes. After violations the folder is kept.
func (w *world) close(keep bool) error {
	w.mu.Lock()
	running := w.running
	w.running = nil
	w.mu.Unlock()
	for _, p := range running {
		p.kill()
	}
	for _, end := range w.closers {
		end()
	}
	w.ends.Wait()
	if w.cluster != nil && w.cluster.wires != nil {
		w.cluster.wires.Close()
	}
	w.callers.stopReading()
	w.follower.Wait()
	if keep {
		return nil
	}
	if err := os.RemoveAll(w.dir); err != nil {
		return fmt.Errorf("remove the folder: %w", err)
	}
	return nil
}

// begun waits until so many runs have begun.
func (w *world) begun(ctx context.Context, runs int) error {
	return until(ctx, readyTimeout, func() error {
		if n := w.book.runs(); n < runs {
			return fmt.Errorf("%d runs have begun, want %d", n, runs)
		}
		return nil
	})
}

// open makes the file that gates wait for.
func (w *world) open(gate string) error {
	if err := os.WriteFile(gate, nil, 0o600); err != nil {
		return fmt.Errorf("open a gate: %w", err)
	}
	return nil
}

// gate is the path of a file for Input.Gate.
func (w *world) gate(name string) string { return filepath.Join(w.dir, "gate-"+name) }
