package events

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"sort"
	"sync"
	"time"

	"flightline/shared/job"
	"flightline/shared/retry"
	"flightline/streams"
)

const (
	// maxWatchPage is about how many events a watch returns at once.
	maxWatchPage = 200
	// maxWatchEntries is how many entries a watch reads at once.
	maxWatchEntries = 8
)

// Watching says what is watched.
type Watching struct {
	// Endpoint of "" means all endpoints, a Job of "" all jobs, and no Kinds all kinds.
	Endpoint string
	Job      job.ID
	Kinds    []Kind
	// Submitted leaves out jobs that were submitted before, as to an endpoint of
	// the same id that was deleted. The zero time leaves out none.
	Submitted time.Time

	// After is the sequence behind which it begins, if Resume is set; beyond the log's
	// end, as after a restore, it begins with what the log has. Else it begins with what was written at Since or later, and without Since with
	// what is written from now on.
	After  uint64
	Resume bool
	Since  time.Time
	// NotBefore is an instant before which nothing of the kind was written, so that
	// the log before it need not be read. The zero time means that it is unknown.
	NotBefore time.Time
	// Once ends it with the last event that there is now, or, if Attempt is set, with
	// the end of that attempt of the Job.
	Once    bool
	Attempt int
}

// Watch passes each event to one watcher once, in the order of the log. It is for
// one goroutine, but for Close.
type Watch struct {
	t      *Tail
	w      Watching
	filter string
	after  uint64 // all up to it was passed on
	until  uint64 // where a watch that is Once ends
	ended  bool   // it has had the end of Watching.Attempt
	close  func()
}

// Watch begins to watch; the caller must Close it. Where it begins is on the
// disk: else a power loss could give the sequences before to other events, which
// it would not tell. It returns bus.ErrUnavailable.
func (t *Tail) Watch(ctx context.Context, w Watching) (*Watch, error) {
	v := &Watch{t: t, w: w, filter: streams.EntryFilters(cmp.Or(w.Endpoint, "*"), "")[0]}
	server := t.log.Server()
	last, err := t.log.lastSequence(ctx)
	if err == nil {
		err = t.log.safe(ctx, t.durable, server)
	}
	if err != nil {
		return nil, err
	}
	v.until = last
	if v.after, err = v.begin(ctx, last); err != nil {
		return nil, err
	}
	t.enter()
	v.close = sync.OnceFunc(t.leave)
	return v, nil
}

// begin is the sequence behind which the watch begins; last is the log's end.
func (v *Watch) begin(ctx context.Context, last uint64) (uint64, error) {
	since := v.w.NotBefore
	switch {
	case v.w.Resume && v.w.After > last: // of a log that was replaced
		v.w.After = 0
	case v.w.Resume:
	case v.w.Since.IsZero():
		return last, nil
	case v.w.Since.After(since):
		since = v.w.Since
	}
	if since.IsZero() {
		return v.w.After, nil
	}
	first, err := v.t.log.firstSince(ctx, v.filter, since)
	switch {
	case err != nil:
		return 0, err
	case first == 0:
		return max(v.w.After, last), nil
	}
	return max(v.w.After, min(endOf(first-1), last)), nil
}

// Close ends the watch. Further calls do nothing.
func (v *Watch) Close() { v.close() }

// After is the sequence up to which all was passed on, or left out: another watch
// that resumes there misses nothing.
func (v *Watch) After() uint64 { return v.after }

// Next returns the next events, not more than some entries have, and waits for them. When ctx
// ends it returns none, and no error; at the end of a watch that is Once
// io.EOF; and bus.ErrUnavailable, after which it may be called again.
func (v *Watch) Next(ctx context.Context) ([]Event, error) {
	for ctx.Err() == nil {
		if v.over() {
			return nil, io.EOF
		}
		some, news, reached, behind := v.recent()
		if behind {
			var err error
			if some, err = v.catchUp(ctx, reached); err != nil && ctx.Err() == nil {
				return nil, err
			}
		}
		if len(some) > 0 {
			last := some[len(some)-1]
			v.ended = v.w.Attempt > 0 && last.Attempt >= v.w.Attempt && last.Status.Terminal()
			return some, nil
		}
		if behind || v.over() {
			continue
		}
		select {
		case <-news:
		case <-ctx.Done():
		}
	}
	return nil, nil
}

// over reports whether a watch that is Once has passed on all.
func (v *Watch) over() bool { return v.w.Once && (v.ended || v.after >= v.until) }

// recent takes what the tail remembers. behind says that it does not remember
// all that there is up to reached.
func (v *Watch) recent() (some []Event, news <-chan struct{}, reached uint64, behind bool) {
	t := v.t
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.placed || v.after >= t.reached:
		return nil, t.news, 0, false
	case v.after < t.from:
		return nil, nil, t.reached, true
	}
	first := sort.Search(len(t.recent), func(i int) bool { return t.recent[i].Seq > v.after })
	for _, e := range t.recent[first:] {
		v.after = e.Seq
		if v.wants(e) {
			if some = append(some, e); len(some) == maxWatchPage {
				return some, nil, 0, false
			}
		}
	}
	v.after = max(v.after, t.reached)
	return some, t.news, 0, false
}

// catchUp reads the next entries from the log itself, no further than reached,
// and moves on: to reached, if nothing comes before.
func (v *Watch) catchUp(ctx context.Context, reached uint64) ([]Event, error) {
	r := reading{filter: v.filter, job: v.w.Job, from: entryAfter(v.after), most: maxWatchEntries}
	if r.job != "" {
		r.most = maxEntries // few of them are decoded
	}
	got, err := v.t.log.read(ctx, r)
	if err != nil {
		return nil, err
	}
	var some []Event
	for _, entry := range got.entries {
		for _, e := range entry.Events {
			if e.Seq > v.after && e.Seq <= reached && v.wants(e) {
				some = append(some, e)
			}
		}
	}
	if seen := endOf(got.next - 1); seen < reached {
		v.after = max(v.after, seen)
		if got.more {
			return some, nil
		}
		newest, _, err := v.t.log.last(ctx, v.filter) // it is all, unless a replica lags
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return some, tolerate(err, len(some))
		case newest >= got.next:
			return some, tolerate(retry.Sleep(ctx, lagPause), len(some))
		}
	}
	v.after = reached
	return some, nil
}

// tolerate forgets an error that comes after events, which must be passed on first:
// they count as passed on.
func tolerate(err error, events int) error {
	if events > 0 {
		return nil
	}
	return err
}

// wants reports whether the event is among those that are watched.
func (v *Watch) wants(e Event) bool {
	switch {
	case v.w.Endpoint != "" && e.Endpoint != v.w.Endpoint:
		return false
	case v.w.Job != "" && e.Job != v.w.Job, v.w.Once && e.Seq > v.until:
		return false
	case len(v.w.Kinds) > 0 && !slices.Contains(v.w.Kinds, e.Kind):
		return false
	}
	return !e.Submitted.Before(v.w.Submitted)
}
