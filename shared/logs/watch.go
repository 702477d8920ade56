package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/bus"
	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/retry"
	"flightline/shared/wakeup"
	"flightline/streams"
)

// ErrCursor means that a text is no cursor.
var ErrCursor = errors.New("logs: not a cursor")

// Cursor is a place in the lines of a partition. The zero value is their beginning.
type Cursor struct {
	seq  uint64 // of a message
	line int    // the last line of it that was passed, -1 for all
}

// String is what ParseCursor reads: "0", "12" behind message 12, or "12-3" behind the
// fourth line of it.
func (c Cursor) String() string {
	text := strconv.FormatUint(c.seq, 10)
	if c.seq > 0 && c.line >= 0 {
		text += "-" + strconv.Itoa(c.line)
	}
	return text
}

// ParseCursor reads a Cursor's String. It returns ErrCursor.
func ParseCursor(text string) (Cursor, error) {
	const maxText = 15 + 1 + 6
	number, line, partly := strings.Cut(text, "-")
	c := Cursor{line: -1}
	var err error
	if c.seq, err = strconv.ParseUint(number, 10, 63); err == nil && partly {
		c.line, err = strconv.Atoi(line)
	}
	if err != nil || len(text) > maxText || c.String() != text { // as "01"
		return Cursor{}, fmt.Errorf("%w: %q", ErrCursor, text)
	}
	if c.seq == 0 {
		return Cursor{}, nil
	}
	return c, nil
}

// passed reports whether a line is at or before the cursor.
func (c Cursor) passed(seq uint64, line int) bool {
	return seq < c.seq || seq == c.seq && (c.line < 0 || line <= c.line)
}

// Watching says which lines are watched.
type Watching struct {
	// Endpoint is required. A Worker or Job of "" means all.
	Endpoint endpoint.Endpoint
	Worker   string
	Job      job.ID
	// After is where it begins, if Resume is set. Else it begins with what was printed
	// at Since or later, and without Since with what is stored from now on.
	After  Cursor
	Resume bool
	Since  time.Time
	// NotBefore is an instant before which no such line was stored. Lines of an earlier
	// endpoint of the same id are left out in any case.
	NotBefore time.Time
	// Once ends it with the last line that there is now.
	Once bool
}

// Entry is a line and its place.
type Entry struct {
	Line
	Cursor Cursor
}

const (
	// watchMessages and watchBytes bound what is read at a time.
	watchMessages, watchBytes = 64, 2 << 20
	// watchPoll is how often a watch looks that heard nothing: core NATS may lose a
	// message.
	watchPoll = 5 * time.Second
	// lagDelay is the pause before a replica is asked again for what was heard of.
	lagDelay = 50 * time.Millisecond
)

// Watch passes each line to one reader once, in the order in which they were stored. It
// is for one goroutine.
type Watch struct {
	bus    *bus.Client
	w      Watching
	stream string
	filter string
	after  Cursor
	until  uint64 // the last message of a watch that is Once
	sub    *nats.Subscription
	woken  wakeup.Signal

	mu    sync.Mutex
	heard uint64 // the newest message that was heard of
}

// NewWatch begins to watch; the caller must Close it. It returns bus.ErrUnavailable.
func NewWatch(ctx context.Context, b *bus.Client, w Watching) (*Watch, error) {
	p, id, worker := w.Endpoint.Partition, w.Endpoint.ID, cmp.Or(w.Worker, "*")
	v := &Watch{bus: b, w: w, stream: streams.Logs(p), filter: streams.LogSubject(p, id, worker), woken: wakeup.New()}
	sub, err := b.Conn().Subscribe(streams.Logged(p, id, worker), v.noteLogged)
	if err != nil {
		return nil, fmt.Errorf("follow the logs of %s: %w: %w", w.Endpoint.ID, bus.ErrUnavailable, err)
	}
	v.sub = sub
	call, cancel := bus.Bounded(ctx)
	defer cancel()
	if err := v.begin(call); err != nil {
		v.Close()
		return nil, err
	}
	return v, nil
}

func (v *Watch) noteLogged(m *nats.Msg) {
	v.note(bus.Sequence(m))
	v.woken.Send()
}

// note keeps that a message of this sequence is there.
func (v *Watch) note(seq uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.heard = max(v.heard, seq)
}

// begin finds where the watch begins, and where it ends. Lines may come meanwhile.
func (v *Watch) begin(ctx context.Context) error {
	last, _, err := v.last(ctx)
	if err != nil {
		return err
	}
	v.until = last
	if v.w.Once {
		v.note(last) // a replica may not have it yet
	}
	switch {
	case v.w.Resume:
		if v.after = v.w.After; v.after.seq > last { // of a bus that was made again, or the end
			v.after = Cursor{last, -1}
		}
	case v.w.Since.IsZero():
		v.after = Cursor{last, -1}
		return nil
	}
	since := v.w.Endpoint.Created
	for _, t := range []time.Time{v.w.Since, v.w.NotBefore} {
		since = job.Later(since, t)
	}
	first, err := v.firstSince(ctx, since)
	if err != nil {
		return err
	}
	if first > v.after.seq+1 {
		v.after = Cursor{first - 1, -1}
	}
	return nil
}

// last is the sequence of the last message of the filter, and when it was stored; 0 for none.
func (v *Watch) last(ctx context.Context) (seq uint64, stored time.Time, err error) {
	m, err := v.bus.LeaderLast(ctx, v.stream, v.filter)
	switch {
	case errors.Is(err, bus.ErrNoMessage):
		return 0, time.Time{}, nil
	case err != nil:
		return 0, time.Time{}, err
	}
	return m.Seq, m.Time, nil
}

// firstSince is the sequence of the first message that was stored at t or later, or the one
// behind the last if no such message exists. That a replica has none proves nothing: it may
// lag.
func (v *Watch) firstSince(ctx context.Context, t time.Time) (uint64, error) {
	return bus.UntilAnswered(ctx, func() (uint64, error) {
		m, err := v.bus.DirectSince(ctx, v.stream, v.filter, t)
		switch {
		case err == nil:
			return bus.Sequence(m), nil
		case !errors.Is(err, bus.ErrNoMessage):
			return 0, err
		}
		last, stored, err := v.last(ctx)
		if err == nil && last > 0 && !stored.Before(t) {
			err = fmt.Errorf("%w: read %s: a replica lacks messages that others have", bus.ErrUnavailable, v.stream)
		}
		return last + 1, err
	})
}

// Close ends the watch. Further calls do nothing.
func (v *Watch) Close() { _ = v.sub.Unsubscribe() }

// After is the place up to which all was passed on or left out: another watch that
// resumes there misses nothing.
func (v *Watch) After() Cursor { return v.after }

// Next returns the next lines, and waits for them. When ctx ends it returns none, and no
// error; at the end of a watch that is Once io.EOF; and bus.ErrUnavailable, after which
// it may be called again.
func (v *Watch) Next(ctx context.Context) ([]Entry, error) {
	for ctx.Err() == nil {
		if v.w.Once && (v.after.seq > v.until || v.after.seq == v.until && (v.after.line < 0 || v.until == 0)) {
			return nil, io.EOF
		}
		some, read, err := v.read(ctx)
		switch {
		case ctx.Err() != nil && err != nil:
			return nil, nil //nolint:nilerr // the reader has left
		case err != nil:
			return nil, err
		case len(some) > 0:
			return some, nil
		case read: // all of it was left out
		case v.w.Once && !v.lags():
			return nil, io.EOF // what it would have read was removed meanwhile
		default:
			v.wait(ctx)
		}
	}
	return nil, nil
}

// lags reports whether a message is there that a read did not bring, unless it was
// removed meanwhile: the leader says so in wait.
func (v *Watch) lags() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.heard > v.after.seq
}

// wait returns when there may be more.
func (v *Watch) wait(ctx context.Context) {
	if v.lags() {
		_ = retry.Sleep(ctx, lagDelay) // the loop ends with ctx
		if _, err := v.bus.LeaderNext(ctx, v.stream, v.filter, v.after.seq+1); errors.Is(err, bus.ErrNoMessage) {
			v.mu.Lock()
			v.heard = 0 // it was removed; what came since, the poll finds
			v.mu.Unlock()
		}
		return
	}
	timer := time.NewTimer(watchPoll)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-v.woken:
	case <-timer.C:
	}
}

// read reads the next messages. found says that there were some.
func (v *Watch) read(ctx context.Context) (some []Entry, found bool, err error) {
	from := v.after.seq
	if v.after.line < 0 || from == 0 {
		from++
	}
	within, cancel := bus.Bounded(ctx)
	defer cancel()
	messages, err := v.bus.BatchGet(within, v.stream, bus.Batch{From: from, Filter: v.filter, Most: watchMessages, MaxBytes: watchBytes})
	if err != nil {
		return nil, false, err
	}
	for _, m := range messages {
		seq := bus.Sequence(m)
		if v.w.Once && seq > v.until {
			v.after = Cursor{seq, -1}
			return some, true, nil
		}
		for i, l := range linesOf(m) {
			if !v.after.passed(seq, i) && v.wants(l) {
				some = append(some, Entry{l, Cursor{seq, i}})
			}
		}
		v.after = Cursor{seq, -1}
	}
	return some, len(messages) > 0, nil
}

func (v *Watch) wants(l Line) bool {
	return (v.w.Job == "" || l.Job == v.w.Job) && !l.Time.Before(v.w.Since)
}

// Drop removes the lines of an endpoint that is being deleted. It returns
// bus.ErrUnavailable.
func Drop(ctx context.Context, b *bus.Client, e endpoint.Endpoint) error {
	if err := b.Purge(ctx, streams.Logs(e.Partition), streams.AnyLog(e.Partition, e.ID)); err != nil {
		return fmt.Errorf("drop the logs of %s: %w", e.ID, err)
	}
	return nil
}
