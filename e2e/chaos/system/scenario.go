package system

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// Config are the settings of a test of the system.
type Config struct {
	// Binary is the path of the program that is tested, Handler and Poller those of
	// the commands of these names. NATS is the path of a nats-server, for scenarios of
	// three nodes; Other that of another version of Binary, "" for none.
	Binary, Handler, Poller, NATS, Other string
	// Clock is a Binary whose clock a file can set back and forth, "" for none.
	Clock string
	// Short asks for the form that fits into CI's time.
	Short bool
	// For is how long the scenario gpus goes on; 0 means a minute.
	For time.Duration
	// Seed decides what is left to chance.
	Seed uint64
	// plant is the bug that Binary has, "" for none.
	plant string
}

// scenario is one kind of fault and what is demanded of the result.
type scenario struct {
	name  string
	does  string        // in the words of the report
	needs []need        // without them it is left out, and the report says so
	rule  rule          // a lease of 0 means minLease
	limit time.Duration // for all of it; 0 means 4 minutes
	long  bool          // it is no part of the short form
	alone bool          // it takes all that the machine can do: no other is played beside it
	act   func(ctx context.Context, w *world) error
}

// need is a precondition of a scenario.
type need string

const (
	needRoot  need = "root, to mount a small file system"
	needNATS  need = "a nats-server"
	needOther need = "-other, the path of another version"
	needProc  need = "Linux, to find the processes of workers"
	needClock need = "a binary whose clock can be stepped (the full form builds it)"
)

func (n need) met(c Config) bool {
	switch n {
	case needRoot:
		return os.Geteuid() == 0 && canMount
	case needNATS:
		return c.NATS != ""
	case needOther:
		return c.Other != ""
	case needProc:
		return runtime.GOOS == "linux"
	case needClock:
		return c.Clock != ""
	}
	return false
}

// calmTimeout is how long all jobs may take to end after the last fault,
// before they count as lost.
const calmTimeout = 60 * time.Second

// scenarios are played in this order; those that take longest begin first.
func scenarios() []scenario {
	return slices.Concat(clusterScenarios(), scalerScenarios(), gpuScenarios(), freezeScenarios(), loadScenarios(), diskScenarios(), timeScenarios())
}

// Has reports whether all names are those of scenarios.
func Has(names ...string) bool {
	all := scenarios()
	return !slices.ContainsFunc(names, func(name string) bool {
		return !slices.ContainsFunc(all, func(s scenario) bool { return s.name == name })
	})
}

// perform plays a scenario and audits it.
func (s scenario) perform(ctx context.Context, cfg Config) (*Result, error) {
	r := &Result{Name: s.name, Does: s.does}
	for _, n := range s.needs {
		if !n.met(cfg) {
			r.LeftOut = string(n)
			return r, nil
		}
	}
	limit := s.limit
	if limit == 0 {
		limit = 4 * time.Minute
	}
	interrupt := ctx
	ctx, cancel := context.WithTimeout(ctx, limit+cfg.For)
	defer cancel()
	began := time.Now()
	w, err := newWorld(ctx, cfg, s)
	if err != nil {
		return nil, err
	}
	if err := s.act(ctx, w); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w (kept in %s)", s.name, err, w.dir), w.close(true))
	}
	w.settle(ctx)
	if err := interrupt.Err(); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: nothing is judged: %w", s.name, err), w.close(false))
	}
	r.take(w)
	r.Took = time.Since(began)
	keep := len(r.Violations) > 0
	if keep {
		r.Kept = w.dir
	}
	return r, w.close(keep)
}

// settle waits until all accepted jobs have ended.
func (w *world) settle(ctx context.Context) {
	_ = until(ctx, calmTimeout, func() error { // the audit says what is left
		if n := w.book.open(); n > 0 {
			return fmt.Errorf("%d jobs have not ended", n)
		}
		return nil
	})
	wait(ctx, quietTime) // for what should not come
}

// quietTime is how long a scenario waits for what should not happen.
const quietTime = time.Second

// Run plays scenarios, several at a time, and prints each result as it comes.
// No names means all of the form. The results are in the order of the table,
// with those that are played alone at the end.
func Run(ctx context.Context, cfg Config, out io.Writer, names ...string) ([]*Result, error) {
	chosen := scenarios()
	chosen = slices.DeleteFunc(chosen, func(s scenario) bool {
		if len(names) > 0 {
			return !slices.Contains(names, s.name)
		}
		return cfg.Short && s.long
	})
	slices.SortStableFunc(chosen, func(a, b scenario) int { return cmp.Compare(a.weight(), b.weight()) })
	results, errs := make([]*Result, len(chosen)), make([]error, len(chosen))
	machine := semaphore.NewWeighted(atOnce)
	var all sync.WaitGroup
	var printing sync.Mutex
	for i, s := range chosen {
		_ = machine.Acquire(context.WithoutCancel(ctx), s.weight()) // an interrupted scenario ends soon
		all.Go(func() {
			defer machine.Release(s.weight())
			if results[i], errs[i] = s.perform(ctx, cfg); errs[i] != nil {
				return
			}
			printing.Lock()
			defer printing.Unlock()
			results[i].Print(out)
		})
	}
	all.Wait()
	for i, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("scenario %s: %w", chosen[i].name, err)
		}
	}
	return results, nil
}

// atOnce is how many scenarios are played at a time; most of their time is
// waiting.
const atOnce = 5

// weight is how many of atOnce a scenario takes the place of.
func (s scenario) weight() int64 {
	if s.alone {
		return atOnce
	}
	return 1
}
