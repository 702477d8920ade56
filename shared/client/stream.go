package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"flightline/shared/job"
	"flightline/shared/retry"
)

const (
	// streamPatience is how long a server that had answered may be away before
	// a stream is given up, unless StreamOptions says otherwise.
	streamPatience = time.Minute
	// streamSilence is how long a server may say nothing at all. It promises a
	// sign of life every 15 s.
	streamSilence = 45 * time.Second
)

// StreamOptions say how a stream is read. The zero value reads all of it.
type StreamOptions struct {
	// After is the Cursor of a chunk: the stream begins behind it. 0 is the
	// beginning.
	After uint64
	// Patience is how long the server may be away once it has answered. 0 means
	// a minute; less than 0: not at all. Before that WithPatience holds.
	Patience time.Duration
}

// Chunk is one element of a job's stream.
type Chunk struct {
	// Cursor is its place; see StreamOptions.After.
	Cursor uint64
	// Data is the element as the worker emitted it, for most workers
	// {"output": …}.
	Data json.RawMessage
}

// Stream reads what a job puts out while it runs. It is for one goroutine.
type Stream struct {
	c        *Client
	endpoint string
	id       job.ID
	patience patience
	after    uint64
	end      *Job
}

// Stream prepares to read a job's stream; All reads it. Reading by one caller
// takes nothing away from others.
func (c *Client) Stream(endpoint string, id job.ID, o StreamOptions) *Stream {
	return &Stream{c: c, endpoint: endpoint, id: id, after: o.After, patience: c.patienceOf(o.Patience)}
}

// Cursor is that of the last chunk that All yielded, or StreamOptions.After.
func (s *Stream) Cursor() uint64 { return s.after }

// End is the job once its stream is over: ID, Status and Error. It is nil
// before.
func (s *Stream) End() *Job { return s.end }

// All yields the chunks in order, each once, as they come, until the job has
// ended; End says how. It goes on where it was when the connection breaks or
// the server restarts. After a lost worker the chunks of the run that took over
// follow; those of the run before that were not read by then are left out. An
// error is yielded last: an *Error, of a job that expired one with CodeJobNotFound;
// ErrUnreachable; or ctx's. After an error, or a break out of the loop, All may be
// called again and goes on behind Cursor.
func (s *Stream) All(ctx context.Context) iter.Seq2[Chunk, error] {
	return resumed(ctx, s.patience, func() bool { return s.end != nil }, s.read)
}

// read reads one connection's worth of the stream. heard says whether the
// server took the request.
func (s *Stream) read(ctx context.Context, each func(Chunk) bool) (heard bool, err error) {
	op := get(v2(s.endpoint, "stream", string(s.id)), url.Values{"format": {"sse"}})
	return s.c.readEvents(ctx, op, strconv.FormatUint(s.after, 10), func(e event) (bool, error) { return s.take(e, each) })
}

// take deals with one event and reports whether there may be more.
func (s *Stream) take(e event, each func(Chunk) bool) (more bool, err error) {
	switch e.name {
	case "": // a chunk, or a comment
		if e.data == nil {
			return true, nil
		}
		cursor, err := strconv.ParseUint(e.id, 10, 64)
		if err != nil {
			return false, fmt.Errorf("client: the id of a chunk is %q, want a number", e.id)
		}
		s.after = cursor
		return each(Chunk{Cursor: cursor, Data: e.data}), nil
	case "status":
		var end Job
		if err := json.Unmarshal(e.data, &end); err != nil {
			return false, fmt.Errorf("client: the end of a stream is not what the API promises: %w", err)
		}
		s.end = &end
		return false, nil
	case "gone":
		return false, &Error{Status: http.StatusNotFound, Code: CodeJobNotFound, Message: "the job's ttl or retention is over"}
	}
	return true, nil // of a later version
}

// headerLastEventID says how far a stream was read.
const headerLastEventID = "Last-Event-ID"

// patience is how long a server may be away before it has answered, and
// afterwards; 0 and less than 0: not at all.
type patience struct{ before, after time.Duration }

// patienceOf is the client's, and what an option says, 0 meaning a minute.
func (c *Client) patienceOf(d time.Duration) patience {
	return patience{before: c.patience, after: cmp.Or(d, streamPatience)}
}

// open asks for a stream of events that come after the given one, "" meaning as
// the call says. within ends the reading of it, ctx is the caller's.
func (c *Client) open(ctx, within context.Context, op call, after string) (*http.Response, error) {
	at := c.at.Load()
	req, err := c.request(within, at, op, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", eventStream)
	if after != "" {
		req.Header.Set(headerLastEventID, after)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		err = unreachable(ctx, err)
	} else if err = refusal(ctx, resp); err == nil {
		return resp, nil
	}
	if resp != nil {
		_ = resp.Body.Close()
	}
	if away(err) {
		c.leave(at)
	}
	return nil, err
}

// readEvents passes the events of one connection to take, until that returns false. heard
// says whether the server took the request.
func (c *Client) readEvents(ctx context.Context, op call, after string, take func(event) (more bool, err error)) (heard bool, err error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(streamSilence, cancel)
	defer silence.Stop()
	resp, err := c.open(ctx, within, op, after)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	reader := newEventReader(resp.Body)
	for {
		silence.Reset(streamSilence)
		next, err := reader.next()
		silence.Stop() // what take does with an event is no silence of the server
		if errors.Is(err, ErrTooLarge) {
			return true, err
		}
		if err != nil { // also the end of a server that stops
			return true, unreachable(ctx, err)
		}
		if more, err := take(next); err != nil || !more {
			return true, err
		}
	}
}

// pauseAfter decides whether to come back after a failure in the nth attempt
// since contact was lost, or since the beginning if there was none, and when.
// lost is the first of these failures.
func (p patience) pauseAfter(attempt int, lost time.Time, met bool, err error) (time.Duration, bool) {
	pause := min(backoff(attempt), lastPoll)
	refused, answered := errors.AsType[*Error](err)
	switch {
	case !errors.Is(err, ErrUnreachable) && (!answered || !refused.Temporary()):
		return 0, false
	case answered:
		pause = max(pause, refused.RetryAfter)
	}
	most := p.before
	if met {
		most = p.after
	}
	return pause, most > 0 && time.Since(lost)+pause < most
}

// eventStream is the content type of a stream of events.
const eventStream = "text/event-stream"

// refusal reads an answer that is no stream. A page of another program is no break of the
// stream, after which it would go on.
func refusal(ctx context.Context, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		given := resp.Header.Get("Content-Type")
		if kind, _, _ := mime.ParseMediaType(given); kind != eventStream {
			return fmt.Errorf("client: the answer is not what the API promises: its Content-Type is %.60q, want %s", given, eventStream)
		}
		return nil
	}
	const most = 64 << 10
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return unreachable(ctx, err)
	}
	return refusalOf(resp.StatusCode, resp.Header, body)
}

// event is one server-sent event, or a sign of life if it has no data.
type event struct {
	name, id string
	data     []byte
}

// maxEventLine bounds a line of an event: the largest chunk, and the field's name.
const maxEventLine = job.MaxChunk + 1<<10

// eventReader reads server-sent events as Flightline writes them: one line of
// data each.
type eventReader struct{ lines *bufio.Scanner }

func newEventReader(r io.Reader) *eventReader {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 64<<10), maxEventLine)
	return &eventReader{lines}
}

// next returns the next event. Half of one, at the end, is none.
func (r *eventReader) next() (event, error) {
	var e event
	for r.lines.Scan() {
		line := r.lines.Bytes() // good until the next call
		if len(line) == 0 {
			return e, nil
		}
		field, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(field) {
		case "event":
			e.name = string(value)
		case "id":
			e.id = string(value)
		case "data":
			e.data = bytes.Clone(value)
		}
	}
	err := r.lines.Err()
	if errors.Is(err, bufio.ErrTooLong) {
		return event{}, fmt.Errorf("%w: a chunk of more than %d bytes", ErrTooLarge, job.MaxChunk)
	}
	return event{}, cmp.Or(err, io.EOF)
}

// resumed yields what read hands out, connection after connection, until over.
// read reports whether the server took the request, and returns nil once the end
// was read. An error is yielded last.
func resumed[T any](ctx context.Context, p patience, over func() bool, read func(context.Context, func(T) bool) (heard bool, err error)) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		stopped := false
		each := func(v T) bool {
			stopped = !yield(v, nil)
			return !stopped
		}
		var lost time.Time // the first failure since there was contact
		met := false       // whether there was any
		for attempt := 1; !over(); attempt++ {
			heard, err := read(ctx, each)
			if lost = lostAt(lost, heard); heard {
				attempt, met = 1, true
			}
			if stopped {
				return
			}
			if err == nil {
				continue // the end was read
			}
			pause, again := p.pauseAfter(attempt, lost, met, err)
			if again && retry.Sleep(ctx, pause) == nil {
				continue
			}
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			var none T
			yield(none, err)
			return
		}
	}
}

// lostAt is when contact was lost, after an attempt that ended now: then, if the
// server was heard or this is the first failure, else as before.
func lostAt(before time.Time, heard bool) time.Time {
	if heard || before.IsZero() {
		return time.Now()
	}
	return before
}
