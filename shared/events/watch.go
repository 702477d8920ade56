package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"flightline/shared/job"
	"flightline/shared/retry"
	"flightline/streams"
)

const (
	// maxWatchPage is how many events a watch returns at once.
	maxWatchPage = 200
	// lagPause is the wait for a replica that has not got what the leader has.
	lagPause = 50 * time.Millisecond
)

// Watching says what is watched.
type Watching struct {
	// Endpoint is required; a Job of "" means all of its jobs, no Kinds all kinds.
	Endpoint string
	Job      job.ID
	Kinds    []Kind
	// Submitted leaves out jobs that were submitted before, as to an endpoint of
	// the same id that was deleted. The zero time leaves out none.
	Submitted time.Time

	// After is the sequence behind which it begins, if Resume is set. Else it
	// begins with what was written at Since or later, and without Since with
	// what is written from now on.
	After  uint64
	Resume bool
	Since  time.Time
	// Once ends it with the last event that there is now.
	Once bool
}

// Watch passes each event to one watcher once, in the order of the log. It is for
// one goroutine, but for Close.
type Watch struct {
	t      *Tail
	w      Watching
	filter string
	after  uint64 // all up to it was passed on
	until  uint64 // where a watch that is Once ends
	close  func()
}

// Watch begins to watch; the caller must Close it. Where it begins is on the
// disk: else a power loss could give the sequences before to other events, which
// it would not tell. It returns bus.ErrUnavailable.
func (t *Tail) Watch(ctx context.Context, w Watching) (*Watch, error) {
	v := &Watch{t: t, w: w, filter: streams.EventFilter(w.Endpoint, "", w.Job), after: w.After}
	if len(w.Kinds) == 1 {
		v.filter = streams.EventFilter(w.Endpoint, string(w.Kinds[0]), w.Job)
	}
	server := t.log.Server()
	last, err := t.log.lastSequence(ctx)
	if err == nil {
		err = t.safe(ctx, server)
	}
	if err != nil {
		return nil, err
	}
	v.until = last
	if !w.Resume {
		v.after = last
		if !w.Since.IsZero() {
			begin, err := v.before(ctx, last)
			if err != nil {
				return nil, err
			}
			v.after = min(begin, last)
		}
	}
	t.enter()
	v.close = sync.OnceFunc(t.leave)
	return v, nil
}

// Close ends the watch. Further calls do nothing.
func (v *Watch) Close() { v.close() }

// After is the sequence up to which all was passed on, or left out: another watch
// that resumes there misses nothing.
func (v *Watch) After() uint64 { return v.after }

// before is the sequence before that of the first event written since, last if
// none exists.
func (v *Watch) before(ctx context.Context, last uint64) (uint64, error) {
	for {
		first, err := v.t.log.firstSince(ctx, v.filter, v.w.Since)
		if err != nil || first > 0 {
			return max(first, 1) - 1, err
		}
		newest, err := v.t.log.last(ctx, v.filter)
		switch {
		case errors.Is(err, ErrNotFound), err == nil && newest.Written.Before(v.w.Since):
			return last, nil
		case err != nil:
			return 0, err
		}
		if err := retry.Sleep(ctx, lagPause); err != nil { // a replica answered that has not got it yet
			return 0, away(ctx, "read events", err)
		}
	}
}

// Next returns the next events, some 200 at most, and waits for them. When ctx
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

// over reports whether a watch that is Once has told all.
func (v *Watch) over() bool { return v.w.Once && v.after >= v.until }

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
	return some, t.news, 0, false
}

// catchUp reads the next page from the log itself, no further than reached,
// and moves on: to reached, if nothing comes before.
func (v *Watch) catchUp(ctx context.Context, reached uint64) ([]Event, error) {
	page, err := v.t.log.matching(ctx, v.filter, v.after, maxWatchPage)
	if err != nil {
		return nil, err
	}
	var some []Event
	seen := v.after
	for _, e := range page {
		if e.Seq > reached {
			break
		}
		if seen = e.Seq; v.wants(e) {
			some = append(some, e)
		}
	}
	v.after = seen
	if len(page) == maxWatchPage && page[maxWatchPage-1].Seq <= reached {
		return some, nil
	}
	if len(page) == 0 || page[len(page)-1].Seq <= reached { // it is all, unless a replica lags
		newest, err := v.t.log.last(ctx, v.filter)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return some, tolerate(err, len(some))
		case newest.Seq > seen && seen < reached:
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
	case e.Endpoint != v.w.Endpoint, v.w.Job != "" && e.Job != v.w.Job, v.w.Once && e.Seq > v.until:
		return false
	case len(v.w.Kinds) > 0 && !slices.Contains(v.w.Kinds, e.Kind):
		return false
	}
	return !e.Submitted.Before(v.w.Submitted)
}

// Position returns how far the reader of that name had come when it last said
// so, 0 if it never did. It returns bus.ErrUnavailable.
func (l *Log) Position(ctx context.Context, name string) (uint64, error) {
	kv, err := l.bucket(ctx, streams.BucketPositions)
	if err != nil {
		return 0, err
	}
	entry, err := kv.Get(ctx, name)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, away(ctx, "read position of "+name, err)
	}
	var seq uint64
	if err := json.Unmarshal(entry.Value(), &seq); err != nil {
		return 0, fmt.Errorf("read position of %s: %w", name, err)
	}
	return seq, nil
}

// SetPosition says that all up to seq is done. It needs no comparison: if two
// readers of a name say so, both are right. It returns bus.ErrUnavailable.
func (l *Log) SetPosition(ctx context.Context, name string, seq uint64) error {
	kv, err := l.bucket(ctx, streams.BucketPositions)
	if err != nil {
		return err
	}
	data, err := json.Marshal(seq)
	if err != nil {
		return fmt.Errorf("write position of %s: %w", name, err)
	}
	within, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	if _, err := kv.Put(within, name, data); err != nil {
		return away(ctx, "write position of "+name, err)
	}
	return nil
}
