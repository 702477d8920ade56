package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"flightline/services/recorder"
	"flightline/shared/events"
	"flightline/shared/queue"
	"flightline/streams"
)

// recorders is how many run at the same time. Each believes to be the active one,
// which has to do no harm.
const recorders = 2

// forgetGrace is a little longer than any call lasts, so that records whose ttl
// is cut short are removed in the middle of the turmoil.
const forgetGrace = 6 * time.Second

// runRecorder is a recorder, active from the start.
func runRecorder(ctx context.Context, cfg roleConfig) error {
	books, err := openLedger(cfg.Ledger, cfg.Name)
	if err != nil {
		return err
	}
	nc, q, err := openQueue(ctx, cfg, nil)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return fmt.Errorf("open jetstream: %w", err)
	}
	log, err := events.New(nc, js, logTo(os.Stderr))
	if err != nil {
		return err
	}
	die := deathAt(cfg, books)
	s, err := recorder.New(recorder.Config{
		Log:   logTo(os.Stderr),
		Point: func(p recorder.Point) { die(queue.Point(p)) },
	}, recorder.Deps{Queue: q, Events: log})
	if err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return q.Run(ctx) })
	g.Go(func() error { return s.Run(ctx) })
	return g.Wait()
}

// keepRecorders keeps all of them until ctx ends.
func (s *site) keepRecorders(ctx context.Context, seed uint64, calm <-chan struct{}) error {
	g, ctx := errgroup.WithContext(ctx)
	for i := range recorders {
		g.Go(func() error { return s.keepRecorder(ctx, i, seed+uint64(i), calm) }) //nolint:gosec // small
	}
	return g.Wait()
}

// lastRecorders starts those that are left alone; what they tell is audited.
func (s *site) lastRecorders() error {
	s.recording = true
	for i := range recorders {
		if _, err := s.start("recorder", roleConfig{Name: fmt.Sprintf("recorder%d-last", i)}); err != nil {
			return err
		}
	}
	return nil
}

// keepRecorder keeps a recorder until ctx ends. It dies between any two steps.
func (s *site) keepRecorder(ctx context.Context, index int, seed uint64, calm <-chan struct{}) error {
	rng := rand.New(rand.NewPCG(seed, 4)) //nolint:gosec // chance, no secret
	steps := []recorder.Point{recorder.AfterAnnounce, recorder.AfterEvents, recorder.AfterPosition}
	return s.keep(ctx, "recorder", func(n int) (roleConfig, schedule) {
		cfg := roleConfig{Name: fmt.Sprintf("recorder%d-%d", index, n)}
		select {
		case <-calm:
			return cfg, schedule{}
		default:
		}
		cfg.DieAt, cfg.DieAfter = queue.Point(steps[rng.IntN(len(steps))]), 1+rng.Int64N(30)
		return cfg, schedule{kill: between(rng, 2*time.Second, 8*time.Second)}
	})
}

// recordedTimeout is how long recorders may take to catch up once all is quiet.
const recordedTimeout = 30 * time.Second

// logged is an event as it is in the log, read with this package's own eyes.
type logged struct {
	endpoint     string
	kind         string
	job          string
	attempt, run int
}

func (l logged) String() string { return fmt.Sprintf("%s %d.%d", l.kind, l.attempt, l.run) }

// totals are the counts of an endpoint, spelled as the bucket spells them.
type totals struct {
	Completed int `json:"completed"`
	Failed    int `json:"failed"`
	Cancelled int `json:"cancelled"`
	TimedOut  int `json:"timedOut"`
	Retried   int `json:"retried"`
}

// recordOf is what the recorders made of it all.
type recordOf struct {
	log    []logged
	totals map[string]totals
}

// recorded waits until the recorders have told what was observed, or it takes
// too long, and returns what they told; nil where none ran.
func (s *site) recorded(ctx context.Context) (*recordOf, error) {
	if !s.recording {
		return nil, nil //nolint:nilnil // nobody records
	}
	within, cancel := context.WithTimeout(ctx, recordedTimeout)
	defer cancel()
	for {
		r, err := s.readRecord(ctx)
		if err != nil {
			return nil, err
		}
		writes, _ := s.observer.history()
		v := &evidence{histories: buildHistories(nil, writes), recorded: r}
		if len(v.told(s.endpointIDs())) == 0 || !wait(within, 500*time.Millisecond) {
			return r, nil
		}
	}
}

func (s *site) endpointIDs() (ids []string) {
	for _, e := range s.endpoints {
		ids = append(ids, e.ID)
	}
	return ids
}

func (s *site) readRecord(ctx context.Context) (*recordOf, error) {
	return persist(ctx, func() (*recordOf, error) {
		r := &recordOf{totals: map[string]totals{}}
		err := s.each(ctx, streams.Events, func(m *jetstream.RawStreamMsg) {
			r.log = append(r.log, loggedIn(m.Subject, m.Data)...)
		})
		if err != nil {
			return nil, err
		}
		err = s.each(ctx, streams.Bucket(streams.BucketCounts), func(m *jetstream.RawStreamMsg) {
			var n totals
			if json.Unmarshal(m.Data, &n) == nil {
				r.totals[m.Subject[strings.LastIndexByte(m.Subject, '.')+1:]] = n
			}
		})
		return r, err
	})
}

// loggedIn reads an entry of the log, in the form that docs/events.md describes.
func loggedIn(subject string, data []byte) (list []logged) {
	var entry struct {
		Attempts []struct {
			Job     string `json:"job"`
			Attempt int    `json:"attempt"`
			Events  []struct {
				Kind string `json:"kind"`
				Run  int    `json:"run"`
			} `json:"events"`
		} `json:"attempts"`
	}
	if json.Unmarshal(data, &entry) != nil {
		return nil
	}
	endpoint := strings.Split(subject, ".")[1]
	for _, a := range entry.Attempts {
		run := 0
		for _, e := range a.Events {
			run = max(run, e.Run)
			list = append(list, logged{endpoint, e.Kind, a.Job, max(1, a.Attempt), run})
		}
	}
	return list
}

// told: the log has every event of every attempt, once and in order, and
// nothing else; and the counts are those of the log.
func (v *evidence) told(endpoints []string) []violation {
	if v.recorded == nil {
		return nil
	}
	const rule = "events and counts"
	var found []violation
	byJob, counted := map[string][]logged{}, map[string]totals{}
	for _, e := range v.recorded.log {
		byJob[e.job] = append(byJob[e.job], e)
		counted[e.endpoint] = counted[e.endpoint].with(e)
	}
	for _, id := range v.ids() {
		found = append(found, v.histories[id].compare(rule, byJob[id])...)
		delete(byJob, id)
	}
	for _, id := range slices.Sorted(maps.Keys(byJob)) {
		found = append(found, violation{rule, id, fmt.Sprintf("%v, but no record was seen", byJob[id])})
	}
	for _, id := range endpoints {
		if got, want := v.recorded.totals[id], counted[id]; got != want {
			found = append(found, violation{rule, "-", fmt.Sprintf("%s counts %+v, its events %+v", id, got, want)})
		}
	}
	return found
}

func (t totals) with(e logged) totals {
	switch e.kind {
	case "completed":
		t.Completed++
	case "failed":
		t.Failed++
	case "cancelled":
		t.Cancelled++
	case "timed_out":
		t.TimedOut++
	case "started":
		if e.run > 1 {
			t.Retried++
		}
	case "queued":
		if e.attempt > 1 {
			t.Retried++
		}
	}
	return t
}

// compare holds the events of a job against the writes of its records.
func (s *history) compare(rule string, got []logged) []violation {
	var found []violation
	for attempt := 1; attempt <= max(s.attempts(), most(got)); attempt++ {
		var have []string
		for _, e := range got {
			if e.attempt == attempt {
				have = append(have, e.String())
			}
		}
		want, optional := s.wanted(attempt)
		full := have
		if optional != "" && len(have) > 0 && have[len(have)-1] == optional {
			have = have[:len(have)-1]
		}
		if !slices.Equal(have, want) {
			found = append(found, violation{rule, s.id, fmt.Sprintf("attempt %d: got %v, want %v (%s)", attempt, full, want, optional)})
		}
	}
	return found
}

func most(list []logged) (attempt int) {
	for _, e := range list {
		attempt = max(attempt, e.attempt)
	}
	return attempt
}

// wanted lists the events of an attempt, and an event that may be there or not: an
// outcome that was written when the ttl was just over, or whose ttl was cut
// below the present afterwards.
func (s *history) wanted(attempt int) (want []string, optional string) {
	runs, seen := 0, false
	for _, w := range s.writes {
		if w.attempt == attempt {
			seen, runs = true, max(runs, w.Run)
		}
	}
	if !seen {
		return nil, ""
	}
	want = append(want, logged{kind: "queued", attempt: attempt}.String())
	for run := 1; run <= runs; run++ {
		want = append(want, logged{kind: "started", attempt: attempt, run: run}.String())
	}
	first, ok := s.outcome(attempt)
	if !ok {
		return want, ""
	}
	end := logged{kind: strings.ToLower(first.Status), attempt: attempt, run: first.Run}.String()
	if s.doubtful(attempt) {
		return want, end
	}
	return append(want, end), ""
}

// doubtful reports whether a terminal write of the attempt came after the ttl
// that it names.
func (s *history) doubtful(attempt int) bool {
	return slices.ContainsFunc(s.writes, func(w write) bool {
		return w.attempt == attempt && terminal(w.Status) && w.at.UnixMilli() >= w.Expires
	})
}
