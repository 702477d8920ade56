// Package conformance runs the contract's scenarios against a server, Flightline
// or not, and reports which pass: it is `flightline conform`.
//
// Reading order: conform.go (Run), scenarios.go (the list, whose functions are in
// scenarios_*.go), play.go (one run of a scenario, and what it may require), world.go
// (the server, and what is made there), worker.go and hooks.go (conform as the worker and
// as the receiver of webhooks).
//
// It speaks HTTP and knows nothing of how the server is built. What a handler
// does on a server that is not ours cannot be known, so each scenario names
// what it needs; one whose needs are not met is skipped with the reason, and
// never passed. Everything is met when conform is the worker as well: then
// a job's input says what becomes of it.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode"

	"golang.org/x/sync/errgroup"
)

// Outcome is what became of a scenario.
type Outcome string

// The outcomes.
const (
	Pass Outcome = "pass"
	Fail Outcome = "fail"
	Skip Outcome = "skip"
)

// Result is one row of the answer.
type Result struct {
	Name    string  `json:"name"`
	Section string  `json:"section"`
	Outcome Outcome `json:"outcome"`
	// Detail says what failed, or why it was skipped; "" for a pass.
	Detail string `json:"detail,omitempty"`
	TookMs int64  `json:"tookMs"`
}

// Report is the answer: a row for each scenario that was selected, in the
// order of Scenarios.
type Report struct {
	BaseURL   string   `json:"baseUrl"`
	Passed    int      `json:"passed"`
	Failed    int      `json:"failed"`
	Skipped   int      `json:"skipped"`
	Scenarios []Result `json:"scenarios"`
}

// ErrUnreachable says that the server did not answer at all.
var ErrUnreachable = errors.New("the server cannot be reached")

// ErrFailed says that scenarios failed; the report names them.
var ErrFailed = errors.New("the server does not conform")

// scenarioTimeout and Config.FactTimeout together bound a scenario, retentionTimeout one
// that waits for the end of a retention.
const (
	scenarioTimeout  = 50 * time.Second
	retentionTimeout = 6 * time.Minute
)

// Run plays the scenarios that cfg selects and returns what became of them.
// The error is ErrUnreachable, or says what could not be set up or why cfg is
// wrong; a scenario that failed is none.
func Run(ctx context.Context, cfg Config) (Report, error) {
	if err := cfg.Check(); err != nil {
		return Report{}, err
	}
	w, err := newWorld(ctx, cfg)
	if err != nil {
		return Report{}, err
	}
	defer w.close()
	if err := w.prepare(ctx); err != nil {
		return Report{}, errors.Join(err, w.cleanUp(ctx))
	}
	chosen := cfg.choose(Scenarios())
	results := make([]Result, len(chosen))
	var played atomic.Int64
	for _, at := range []phase{beforeWork, aloneBeforeWork, atWork, lastAlone} {
		if at == atWork {
			w.startWork(ctx)
		}
		w.playPhase(ctx, at, chosen, func(i int, r Result) {
			results[i] = r
			if n := played.Add(1); cfg.Progress != nil {
				cfg.Progress(int(n), len(chosen))
			}
		})
	}
	return w.report(results), errors.Join(ctx.Err(), w.cleanUp(ctx))
}

// playPhase runs the scenarios of one phase, concurrently where that is safe. It calls done
// with each result and the scenario's index in chosen, from several goroutines.
func (w *world) playPhase(ctx context.Context, at phase, chosen []Scenario, done func(int, Result)) {
	together := w.cfg.Together
	if at == aloneBeforeWork || at == lastAlone {
		together = 1
	}
	var g errgroup.Group
	g.SetLimit(max(1, together))
	for i, s := range chosen {
		if s.when != at {
			continue
		}
		g.Go(func() error {
			done(i, w.playScenario(ctx, s))
			return nil
		})
	}
	_ = g.Wait() // nobody returns an error
}

// playScenario runs one scenario, or skips it with the reason.
func (w *world) playScenario(ctx context.Context, s Scenario) Result {
	r := Result{Name: s.Name, Section: s.Section, Outcome: Skip}
	if r.Detail = w.cfg.missing(s.Needs); r.Detail != "" {
		return r
	}
	within := scenarioTimeout + w.cfg.FactTimeout
	if slices.Contains(s.Needs, needRetention) {
		within = retentionTimeout
	}
	limited, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	began := time.Now()
	p := &play{ctx: limited, w: w}
	s.play(p)
	r.TookMs = time.Since(began).Milliseconds()
	switch {
	case ctx.Err() != nil: // the server is not to blame
		r.Detail = "interrupted"
	case p.err != nil:
		r.Outcome, r.Detail = Fail, printable(p.err.Error())
	case p.skipped != "":
		r.Detail = p.skipped
	default:
		r.Outcome = Pass
	}
	return r
}

// printable keeps what a server said from moving the cursor or breaking the
// table.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, ""))
}

func (w *world) report(results []Result) Report {
	r := Report{BaseURL: w.cfg.BaseURL, Scenarios: results}
	for _, one := range results {
		switch one.Outcome {
		case Pass:
			r.Passed++
		case Fail:
			r.Failed++
		case Skip:
			r.Skipped++
		}
	}
	return r
}

// choose keeps the scenarios that Only and Skip leave.
func (c Config) choose(all []Scenario) []Scenario {
	var chosen []Scenario
	for _, s := range all {
		if (len(c.Only) == 0 || matches(c.Only, s.Name)) && !matches(c.Skip, s.Name) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

func matches(patterns []string, name string) bool {
	for _, pattern := range patterns {
		if fits, _ := path.Match(pattern, name); fits { // Check has refused a bad pattern
			return true
		}
	}
	return false
}

// Err is ErrFailed, with the number, if a scenario failed, or if none was
// passed: a server of which nothing was seen does not conform.
func (r Report) Err() error {
	if r.Failed > 0 {
		return fmt.Errorf("%w: %d of %d scenarios failed", ErrFailed, r.Failed, len(r.Scenarios)-r.Skipped)
	}
	if r.Passed == 0 {
		return fmt.Errorf("%w: no scenario was played", ErrFailed)
	}
	return nil
}
