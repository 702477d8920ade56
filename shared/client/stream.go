package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strconv"
	"time"

	"flightline/shared/job"
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
// ended; End tells how. It goes on where it was when the connection breaks or
// the server restarts. After a lost worker the chunks of the run that took over
// follow. An error is yielded last: an *Error, of a job that expired one with
// CodeJobNotFound; ErrUnreachable; or ctx's. After an error, or a break out of
// the loop, All may be called again and goes on behind Cursor.
func (s *Stream) All(ctx context.Context) iter.Seq2[Chunk, error] {
	return resumed(ctx, s.patience, func() bool { return s.end != nil }, s.read)
}

// read reads one connection's worth of the stream. heard says whether the
// server took the request.
func (s *Stream) read(ctx context.Context, each func(Chunk) bool) (heard bool, err error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	silence := time.AfterFunc(streamSilence, cancel)
	defer silence.Stop()
	resp, err := s.c.open(ctx, within, call{
		method: http.MethodGet, path: v2(s.endpoint, "stream", string(s.id)), query: map[string][]string{"format": {"sse"}},
	}, strconv.FormatUint(s.after, 10))
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	reader := newEventReader(resp.Body)
	for {
		silence.Reset(streamSilence)
		e, err := reader.next()
		if errors.Is(err, ErrTooLarge) {
			return true, err
		}
		if err != nil { // also the end of a server that stops
			return true, unreachable(ctx, err)
		}
		if more, err := s.take(e, each); err != nil || !more {
			return true, err
		}
	}
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
