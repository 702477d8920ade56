package logs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"
	"golang.org/x/time/rate"

	"flightline/shared/bus"
	"flightline/shared/job"
	"flightline/shared/pod"
	"flightline/shared/retry"
	"flightline/shared/telemetry"
	"flightline/shared/wakeup"
	"flightline/streams"
)

const (
	// MaxRate is how many bytes a worker may print in a second, and burst how many at
	// once; a line counts for lineCost bytes more than it has.
	// Once there were more, all are dropped until room for resume bytes is there again.
	MaxRate  = 1 << 20
	burst    = 2 << 20
	resume   = MaxRate / 4
	lineCost = 64
	// maxBuffered bounds the lines of one worker that wait for the bus, in bytes.
	maxBuffered = 2 << 20
	// flushInterval is how long a line waits for others.
	flushInterval = 250 * time.Millisecond
	// writeRetryDelay is the pause before a batch is sent again.
	writeRetryDelay = time.Second
	// closeTimeout bounds writing what is left when a worker has ended.
	closeTimeout = 3 * time.Second
	// warnInterval is the least time between two complaints.
	warnInterval = time.Minute
)

// Source is whose lines a Recorder takes.
type Source struct {
	Endpoint  string
	Partition int
	Worker    string
	// Env is the environment of the worker: its secrets are hidden in lines.
	Env map[string]string
}

// Recorder keeps the lines of one worker. Its methods never wait and never fail. It is
// safe for concurrent use.
type Recorder struct {
	bus     *bus.Client
	log     *slog.Logger
	source  Source
	subject string
	conceal func(string) string

	woken wakeup.Signal
	ended chan struct{} // closed when no more lines come
	end   sync.Once
	warns *telemetry.LogLimit

	mu      sync.Mutex
	lines   []Line
	size    int
	dropped int64     // since the last line that says so
	since   time.Time // of the first of these
	rate    *rate.Limiter
	full    bool // lines are dropped until resume bytes may be printed at once

	unsent *batch // of flush alone
}

// NewRecorder returns a recorder whose Run writes. It starts nothing. A nil log means
// silence.
func NewRecorder(b *bus.Client, s Source, log *slog.Logger) *Recorder {
	log = cmp.Or(log, slog.New(slog.DiscardHandler))
	return &Recorder{
		bus: b, log: log, source: s, subject: streams.LogSubject(s.Partition, s.Endpoint, s.Worker), conceal: pod.Concealer(s.Env),
		woken: wakeup.New(), ended: make(chan struct{}), rate: rate.NewLimiter(MaxRate, burst),
		warns: telemetry.NewLogLimit(rate.Every(warnInterval), 1),
	}
}

// Stream returns a writer of what the worker prints on one of its outputs, Stdout or
// Stderr. Close ends its last line. The writer is for one goroutine.
func (r *Recorder) Stream(name string) *Stream { return &Stream{r: r, name: name} }

// Log takes a line of a Logger, or of a command that runs a job. The text may be of any
// length and hold secrets; a time of zero means now.
func (r *Recorder) Log(stream string, at time.Time, id job.ID, level, text string) {
	if !r.admit(len(text), at) {
		return
	}
	l := Line{Time: cmp.Or(at, time.Now()), Job: id, Stream: stream, Level: level}
	printed := []byte(text)
	if stream != Logger { // a message may have lines that end with CRLF
		printed = LastOverwrite(printed)
	}
	raw, cut := begin(printed)
	l.Text, l.Cut = textOf(raw, cut, r.conceal)
	r.append(l)
}

// take takes a line of an output.
func (r *Recorder) take(stream string, at time.Time, raw []byte, cut bool) {
	l := Line{Time: at, Stream: stream}
	l.Text, l.Cut = textOf(raw, cut, r.conceal)
	l.Job, l.Level = tagged(l.Text)
	r.append(l)
}

// admit reports whether a line of so many bytes may be kept; else it is counted.
func (r *Recorder) admit(size int, at time.Time) bool {
	cost := min(size, MaxLine) + lineCost
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.open() || r.size+cost > maxBuffered || !r.rate.AllowN(time.Now(), cost) {
		r.full = true
		r.drop(1, cmp.Or(at, time.Now()))
		return false
	}
	return true
}

// skip counts the whole lines of p and returns what follows them, if lines are being
// dropped; else it returns p.
func (r *Recorder) skip(p []byte) []byte {
	end := bytes.LastIndexByte(p, '\n')
	if end < 0 {
		return p
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open() {
		return p
	}
	r.drop(int64(bytes.Count(p[:end+1], []byte{'\n'})), time.Now())
	return p[end+1:]
}

// open reports whether lines may be kept. The caller has the lock.
func (r *Recorder) open() bool {
	if r.full && r.rate.Tokens() >= resume && r.size <= maxBuffered/2 {
		r.full = false
	}
	return !r.full
}

// drop counts lines that are not kept. The caller has the lock.
func (r *Recorder) drop(n int64, at time.Time) {
	if r.dropped == 0 {
		r.since = at
	}
	r.dropped += n
}

// append puts a line into the buffer, after the note of what was dropped before.
func (r *Recorder) append(l Line) {
	r.mu.Lock()
	r.noteDropped()
	r.lines, r.size = append(r.lines, l), r.size+len(l.Text)+lineCost
	r.mu.Unlock()
	r.woken.Send()
}

// noteDropped adds a line for those that were dropped. The caller has the lock.
func (r *Recorder) noteDropped() {
	if r.dropped == 0 {
		return
	}
	l := Line{Time: r.since, Stream: Dropped, Level: "warn", Text: fmt.Sprintf("%d lines dropped", r.dropped)}
	if r.dropped == 1 {
		l.Text = "1 line dropped"
	}
	r.dropped = 0
	r.lines, r.size = append(r.lines, l), r.size+len(l.Text)+lineCost
}

// End says that no more lines come. Run then writes what is left, and returns.
func (r *Recorder) End() { r.end.Do(func() { close(r.ended) }) }

// Run writes lines until End is called or ctx ends; what is left then is written within
// 3 s, or lost.
func (r *Recorder) Run(ctx context.Context) error {
	for {
		select {
		case <-r.woken:
		case <-r.ended:
		case <-ctx.Done():
		}
		if !r.gather(ctx) {
			break
		}
		r.flush(ctx)
	}
	within, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeTimeout)
	defer cancel()
	r.flush(within)
	return nil
}

// gather waits a while for further lines. It returns false, perhaps earlier, once no more
// come.
func (r *Recorder) gather(ctx context.Context) bool {
	timer := time.NewTimer(flushInterval)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-r.ended:
	case <-ctx.Done():
	}
	return false
}

// flush writes what is in the buffer. What ctx ends remains for the next call.
func (r *Recorder) flush(ctx context.Context) {
	for {
		if r.unsent == nil {
			r.unsent = r.next()
		}
		if r.unsent == nil {
			return
		}
		if err := r.write(ctx, r.unsent); err != nil {
			if ctx.Err() != nil {
				return
			}
			r.mu.Lock()
			r.drop(int64(r.unsent.lines), time.Now())
			r.mu.Unlock()
			r.unsent = nil
			return
		}
		r.unsent = nil
	}
}

// next takes a batch out of the buffer, nil if that is empty.
func (r *Recorder) next() *batch {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.noteDropped()
	b := &batch{id: nuid.Next()}
	for b.lines < len(r.lines) && b.add(r.lines[b.lines]) {
		r.size -= len(r.lines[b.lines-1].Text) + lineCost
	}
	if b.lines == 0 {
		return nil
	}
	if r.lines = r.lines[b.lines:]; len(r.lines) == 0 {
		r.lines = nil
	}
	b.data = append(b.data, batchEnd...)
	return b
}

// write stores a batch. It tries again while the bus is away, until ctx ends. Its other
// errors are what the bus refuses.
func (r *Recorder) write(ctx context.Context, b *batch) error {
	for {
		call, cancel := bus.Bounded(ctx)
		m := &nats.Msg{Subject: r.subject, Data: b.data, Header: nats.Header{jetstream.MsgIDHeader: {b.id}}}
		_, err := r.bus.Store(call, streams.Logs(r.source.Partition), m)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() == nil {
			r.warns.Warn(ctx, r.log, "lines of a worker not stored", slog.String("endpoint", r.source.Endpoint), slog.String("worker", r.source.Worker), slog.Any("err", err))
		}
		if !errors.Is(err, bus.ErrUnavailable) || errors.Is(err, bus.ErrMissing) {
			return err
		}
		if err := retry.Sleep(ctx, writeRetryDelay); err != nil {
			return err
		}
	}
}

// Stream takes one output of a worker, in pieces of any length. It implements
// io.WriteCloser.
type Stream struct {
	r    *Recorder
	name string
	at   time.Time // of what is written, zero for now
	line []byte    // the line so far, MaxLine and overlap at most
	cut  bool      // there was more of it
	open bool      // something of it was written
	back bool      // it ends with a carriage return: what follows is written over it
}

// At sets the time of what is written from then on. The zero time means that of Write.
func (s *Stream) At(t time.Time) { s.at = t }

// Write takes a piece. It never fails.
func (s *Stream) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		if !s.open {
			if rest = s.r.skip(rest); len(rest) == 0 {
				break
			}
		}
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			s.extend(rest)
			break
		}
		if !s.open { // a whole line
			s.finish(begin(LastOverwrite(rest[:end])))
		} else {
			s.extend(rest[:end])
			s.finish(LastOverwrite(s.line), s.cut)
		}
		rest = rest[end+1:]
	}
	return len(p), nil
}

// extend adds a piece to the line. What a terminal would write over goes: a progress bar
// may print far more in one line than is kept of it.
func (s *Stream) extend(p []byte) {
	shown := bytes.TrimRight(p, "\r")
	back := len(shown) < len(p)
	if over := bytes.LastIndexByte(shown, '\r'); over >= 0 || s.back && len(shown) > 0 {
		s.line, s.cut, p = s.line[:0], false, p[over+1:]
	}
	s.back = back || s.back && len(shown) == 0
	room := MaxLine + overlap - len(s.line)
	s.open, s.cut = true, s.cut || len(p) > room
	s.line = append(s.line, p[:min(room, len(p))]...)
}

// finish keeps a line if the rate allows it.
func (s *Stream) finish(raw []byte, cut bool) {
	at := cmp.Or(s.at, time.Now())
	if s.r.admit(len(raw), at) {
		s.r.take(s.name, at, raw, cut)
	}
	s.line, s.cut, s.open, s.back = s.line[:0], false, false, false
}

// Close keeps the last line, if it has no end.
func (s *Stream) Close() error {
	if s.open {
		s.finish(LastOverwrite(s.line), s.cut)
	}
	return nil
}
