package bus

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/nats-io/nats.go"
)

// batchTimeout bounds the wait for a batch.
const batchTimeout = 1500 * time.Millisecond

// Batch says which messages of a stream Client.BatchGet reads.
type Batch struct {
	// From is the first sequence to look at. 0 means 1.
	From uint64
	// Filter is the subject, wildcards allowed, that a message must have.
	Filter string
	// Most bounds the number of messages, MaxBytes their size together (0:
	// 64 MB); the first message comes however large it is.
	Most, MaxBytes int
}

// BatchGet reads messages in the order of their sequences in one direct-get
// request, a call that nats.go lacks. Any replica may
// answer, so the newest writes may be missing. Each message has the headers
// Nats-Sequence, Nats-Subject and Nats-Time-Stamp. It returns ErrUnavailable
// if JetStream is away until ctx ends, and ctx.Err() if that was cancelled.
func (c *Client) BatchGet(ctx context.Context, stream string, b Batch) ([]*nats.Msg, error) {
	return UntilAnswered(ctx, func() ([]*nats.Msg, error) { return BatchGetOnce(ctx, c.nc, stream, b) })
}

// LeaderBatch is BatchGet that returns no messages only if the stream's leader has none
// either: the replica that answers may lack the newest ones.
func (c *Client) LeaderBatch(ctx context.Context, stream string, b Batch) ([]*nats.Msg, error) {
	got, err := c.BatchGet(ctx, stream, b)
	if err != nil || len(got) > 0 {
		return got, err
	}
	m, err := c.LeaderNext(ctx, stream, b.Filter, max(1, b.From))
	if errors.Is(err, ErrNoMessage) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return []*nats.Msg{m.Msg()}, nil
}

// BatchGetOnce is BatchGet for a caller that tries again in its own way: it returns
// ErrUnavailable if not all messages have come within 1.5 s.
func BatchGetOnce(ctx context.Context, nc *nats.Conn, stream string, b Batch) ([]*nats.Msg, error) {
	request, err := json.Marshal(map[string]any{"seq": max(1, b.From), "batch": b.Most, "next_by_subj": b.Filter, "max_bytes": cmp.Or(b.MaxBytes, 64<<20)})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", b.Filter, err)
	}
	got, _, err := readBatch(ctx, nc, DirectGet(stream), request, b.Most, b.Filter)
	return got, err
}

// readBatch sends a request and returns the messages that answer it, most at
// the utmost, and the answer that ends them; what names them in errors.
func readBatch(ctx context.Context, nc *nats.Conn, subject string, request []byte, most int, what string) (got []*nats.Msg, end *nats.Msg, err error) {
	inbox := nc.NewInbox()
	answers, unsubscribe, err := listen(nc, inbox, most+1)
	if err != nil {
		return nil, nil, err
	}
	defer unsubscribe()
	if err := nc.PublishRequest(subject, inbox, request); err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	within, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	for {
		m, err := receive(ctx, within, answers, what)
		if err != nil {
			return nil, nil, err
		}
		switch err := directError(m, what); {
		case errors.Is(err, ErrNoMessage):
			return got, m, nil
		case err != nil:
			return nil, nil, err
		}
		got = append(got, m)
	}
}

// listen takes up to most answers that are not read yet. It does not use
// SubscribeSync, which makes half a megabyte of room for them.
func listen(nc *nats.Conn, subject string, most int) (answers <-chan *nats.Msg, end func(), err error) {
	room := make(chan *nats.Msg, most)
	sub, err := nc.ChanSubscribe(subject, room)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return room, func() { _ = sub.Unsubscribe() }, nil // it fails with the connection, and takes it along
}

// receive waits for an answer until within, a context that is derived from ctx,
// ends. It returns ctx.Err() if the caller cancelled it, else ErrUnavailable.
func receive(ctx, within context.Context, answers <-chan *nats.Msg, what string) (*nats.Msg, error) {
	select {
	case m := <-answers:
		return m, nil
	case <-within.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: read %s: %w", ErrUnavailable, what, within.Err())
	}
}

const (
	// maxLastSubjects is how many subjects one request may name, maxLastBytes how much
	// is answered at a time.
	maxLastSubjects, maxLastBytes = 512, 4 << 20
	// MaxMatches is how many subjects may match those of one request of LastOf.
	MaxMatches = 1024
	// unreadable is what the server says if it cannot read the next of the last messages.
	unreadable = "Message Not Found"
)

// LastOf reads the last message on each of the subjects, in few direct-get
// requests. A subject may have wildcards and stands for all that match it. The
// messages come without their data, in no particular order; what is on no message is
// left out. Any replica may answer, so the newest writes may be missing. It returns
// ErrUnavailable if JetStream is away until ctx ends, ErrTooMany if more than MaxMatches
// subjects match those of one request, and ctx.Err() if that was cancelled. A message that
// the server cannot read is ErrUnavailable too: the server ends its answer there, whatever
// follows.
func (c *Client) LastOf(ctx context.Context, stream string, subjects []string) ([]*nats.Msg, error) {
	return c.lastOfAll(ctx, stream, subjects, false)
}

// LastWithData is LastOf with the data of the messages.
func (c *Client) LastWithData(ctx context.Context, stream string, subjects []string) ([]*nats.Msg, error) {
	return c.lastOfAll(ctx, stream, subjects, true)
}

func (c *Client) lastOfAll(ctx context.Context, stream string, subjects []string, data bool) ([]*nats.Msg, error) {
	return UntilAnswered(ctx, func() ([]*nats.Msg, error) {
		got, _, err := lastOfAll(ctx, c.nc, stream, subjects, data)
		return got, err
	})
}

// lastOfAll returns the newest message of each subject, with its data if that is asked for:
// what is written meanwhile may come twice. No answer lacks a write up to the
// sequence upTo; 0 means that this is not known: no message matched, or a page is from a
// replica that lags behind that of the page before, and may lack a subject that moved from
// the one to the other.
func lastOfAll(ctx context.Context, nc *nats.Conn, stream string, subjects []string, data bool) (found []*nats.Msg, upTo uint64, err error) {
	upTo = math.MaxUint64
	newest := map[string]int{} // where a subject's message is in found
	for len(subjects) > 0 {
		some := subjects[:min(maxLastSubjects, len(subjects))]
		subjects = subjects[len(some):]
		before := uint64(0)
		for from, more := uint64(1), true; more; {
			got, end, err := lastOf(ctx, nc, stream, some, from)
			if err != nil {
				return nil, 0, err
			}
			for _, m := range got {
				if !data {
					m.Data = nil
				}
				found = addNewest(found, newest, m)
			}
			reached := headerNumber(end, upToHeader)
			if upTo = min(upTo, reached); reached < before {
				upTo = 0
			}
			before = reached
			if more = len(got) > 0; more {
				from = Sequence(got[len(got)-1]) + 1
				more = got[len(got)-1].Header.Get(PendingHeader) != "0"
			}
		}
	}
	return found, upTo, nil
}

// addNewest adds m to found, or puts it in the place of an older message of its subject.
func addNewest(found []*nats.Msg, at map[string]int, m *nats.Msg) []*nats.Msg {
	subject := SubjectOf(m)
	i, known := at[subject]
	switch {
	case !known:
		at[subject] = len(found)
		return append(found, m)
	case Sequence(m) > Sequence(found[i]):
		found[i] = m
	}
	return found
}

func lastOf(ctx context.Context, nc *nats.Conn, stream string, subjects []string, from uint64) (got []*nats.Msg, end *nats.Msg, err error) {
	request, err := json.Marshal(map[string]any{"multi_last": subjects, "seq": from, "max_bytes": maxLastBytes})
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", stream, err)
	}
	got, end, err = readBatch(ctx, nc, DirectGet(stream), request, MaxMatches, stream)
	if err == nil && end.Header.Get("Description") == unreadable {
		return nil, nil, fmt.Errorf("%w: read %s: NATS cannot read a message of it", ErrUnavailable, stream)
	}
	return got, end, err
}
