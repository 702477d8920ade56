package console

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"flightline/shared/client"
	"flightline/shared/retry"
)

const (
	// eventsShown is how many events a tail keeps, eventsPast how old they may be when it
	// begins.
	eventsShown, eventsPast = 200, 10 * time.Minute
	// tailIdle is how long a tail goes on that nobody looks at.
	tailIdle = 30 * time.Second
	// tailPatience is how long the first look waits for what there is already.
	tailPatience = 700 * time.Millisecond
)

// eventTypes are the types that the filter offers.
var eventTypes = []string{"job.queued", "job.started", "job.completed", "job.failed", "job.cancelled", "job.timed_out"}

type eventsData struct {
	Endpoint, Type, Job string
	Types               []string
	Events              []client.Event // the newest first
	Filtered            bool
}

func loadEvents(v *visit) (any, error) {
	d := &eventsData{Endpoint: v.query.Get("endpoint"), Type: v.query.Get("type"), Job: v.query.Get("job"), Types: eventTypes}
	if !slices.Contains(eventTypes, d.Type) {
		d.Type = ""
	}
	t := v.s.tails.of(v, d.Endpoint, d.Type)
	t.wait(v.ctx)
	list, err := t.list()
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		if d.Job == "" || string(e.Job) == d.Job {
			d.Events = append(d.Events, e)
		}
	}
	d.Filtered = d.Endpoint != "" || d.Type != "" || d.Job != ""
	v.follow(d.Endpoint)
	return d, nil
}

// tails has the last events of what open pages show: they are read once, as they come.
type tails struct {
	mu   sync.Mutex
	list map[tailID]*tail
}

type tailID struct{ apiKey, endpoint, kind string }

func newTails() *tails { return &tails{list: map[tailID]*tail{}} }

// tail has the last events of an endpoint, "" for all, that a key may read.
type tail struct {
	begun chan struct{} // closed with the first event, or the end

	mu     sync.Mutex
	events []client.Event // the oldest first
	asked  time.Time
	err    error
	signal sync.Once
}

// of is the tail of what a visit shows; it begins with the first one.
func (t *tails) of(v *visit, endpoint, kind string) *tail {
	id := tailID{v.apiKey, endpoint, kind}
	t.mu.Lock()
	defer t.mu.Unlock()
	if found := t.list[id]; found != nil {
		found.touch()
		return found
	}
	made := &tail{begun: make(chan struct{}), asked: time.Now()}
	o := client.EventsOptions{Since: time.Now().Add(-eventsPast)}
	if kind != "" {
		o.Types = []string{kind}
	}
	follow := v.api.Events(endpoint, o)
	began := v.s.start(v.ctx, func(ctx context.Context) {
		made.run(ctx, follow)
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.list, id)
	})
	if began {
		t.list[id] = made
	}
	return made
}

// run reads events until nobody has looked for a while, or they break off.
func (t *tail) run(ctx context.Context, follow *client.Events) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer t.signal.Do(func() { close(t.begun) })
	idle := time.AfterFunc(tailIdle, stop)
	defer idle.Stop()
	for e, err := range follow.All(ctx) {
		t.mu.Lock()
		if t.err = err; err == nil {
			if t.events = append(t.events, e); len(t.events) > 2*eventsShown {
				t.events = slices.Clone(t.events[len(t.events)-eventsShown:])
			}
		}
		idle.Reset(tailIdle - time.Since(t.asked))
		t.mu.Unlock()
		t.signal.Do(func() { close(t.begun) })
	}
}

func (t *tail) touch() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked = time.Now()
}

// wait lets a tail that just began find what there is.
func (t *tail) wait(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, tailPatience)
	defer cancel()
	select {
	case <-t.begun:
		_ = retry.Sleep(ctx, tailPatience/10) // what came with the first one
	case <-ctx.Done():
	}
}

// list returns the events, the newest first.
func (t *tail) list() ([]client.Event, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := slices.Clone(t.events[max(0, len(t.events)-eventsShown):])
	slices.Reverse(list)
	if t.err != nil && len(list) == 0 && !errors.Is(t.err, context.Canceled) {
		return nil, t.err
	}
	return list, nil
}
