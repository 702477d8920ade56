package client

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	"flightline/shared/job"
)

// headerLastEventID tells the server how far a stream was read.
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
	req.Header.Set("Accept", "text/event-stream")
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

// pauseAfter decides whether to come back after a failure in the nth attempt
// since contact was lost, or since the beginning if there was none, and when.
// lost is the first of these failures.
func (p patience) pauseAfter(attempt int, lost time.Time, met bool, err error) (time.Duration, bool) {
	pause := min(backoff(attempt), lastPoll)
	refused, answered := errors.AsType[*Error](err)
	switch {
	case answered && !refused.Temporary(), !answered && !errors.Is(err, ErrUnreachable):
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

// refusal reads an answer that is no stream.
func refusal(ctx context.Context, resp *http.Response) error {
	if resp.StatusCode == http.StatusOK {
		return nil
	}
	const most = 64 << 10
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return unreachable(ctx, err)
	}
	return errorOf(resp.StatusCode, resp.Header, body)
}

// event is one server-sent event, or a sign of life if it has no data.
type event struct {
	name, id string
	data     []byte
}

// eventReader reads server-sent events as Flightline writes them: one line of
// data each.
type eventReader struct{ lines *bufio.Reader }

func newEventReader(r io.Reader) *eventReader {
	return &eventReader{bufio.NewReaderSize(r, 64<<10)}
}

// next returns the next event. Half of one, at the end, is none.
func (r *eventReader) next() (event, error) {
	var e event
	for {
		line, err := r.line()
		if err != nil {
			return event{}, err
		}
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
}

// line is the next line without its end. It is good until the next call.
func (r *eventReader) line() ([]byte, error) {
	var long []byte
	for {
		part, err := r.lines.ReadSlice('\n')
		switch {
		case err == nil && long == nil:
			return bytes.TrimSuffix(part, []byte("\n")), nil
		case err == nil:
			return bytes.TrimSuffix(append(long, part...), []byte("\n")), nil
		case err != bufio.ErrBufferFull: //nolint:errorlint // bufio returns the very value
			return nil, err
		}
		if long = append(long, part...); len(long) > job.MaxChunk+1<<10 {
			return nil, fmt.Errorf("%w: a chunk of more than %d bytes", ErrTooLarge, job.MaxChunk)
		}
	}
}

// resumed yields what read hands out, connection after connection, until over.
// read tells whether the server took the request, and returns nil once the end
// is told. An error is yielded last.
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
				continue // the end is told
			}
			pause, again := p.pauseAfter(attempt, lost, met, err)
			if again && rest(ctx, pause) == nil {
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
