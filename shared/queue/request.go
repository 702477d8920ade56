package queue

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"flightline/streams"
)

// apiError is the error of a JetStream API answer.
type apiError struct {
	Code        int    `json:"code"`
	ErrorCode   int    `json:"err_code"` //nolint:tagliatelle // the server's name
	Description string `json:"description"`
}

// The server's error codes that decide something.
const (
	codeNoMessage     = 10037
	codeWrongLast     = 10071 // the expected last sequence is another
	codeWriteInFlight = 10164 // another write of the subject is in flight
	codeNoStream      = 10059
	codeNoConsumer    = 10014
	codeStreamFailed  = 10051 // the error of a stream's store, in its text
	codeDeleteFailed  = 10057 // a message is not there, or could not be removed
	codeStoreFailed   = 10049 // among others: a deleted stream's folder is still being removed
)

func (e *apiError) Error() string { return fmt.Sprintf("%s (%d)", e.Description, e.ErrorCode) }

// explain turns an API error into one of this package's, with what was done.
func (e *apiError) explain(doing string) error {
	switch {
	case e.ErrorCode == codeNoMessage || e.Code == 404 && e.ErrorCode == 0:
		return errNoMessage
	case e.ErrorCode == codeWrongLast:
		return errConflict
	case e.ErrorCode == codeWriteInFlight:
		return errInFlight
	case e.Code == 503 || e.Code == 500:
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, e)
	}
	return fmt.Errorf("%s: %w", doing, e)
}

// foreign turns an error of the jetstream package into one of this package's:
// what the server refused stays as it is, anything else is ErrUnavailable.
func foreign(err error) error {
	if err == nil {
		return nil
	}
	if refused, ok := errors.AsType[*jetstream.APIError](err); ok && refused.Code < 500 && refused.ErrorCode != codeStoreFailed {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// tryWithin bounds one try of a request; a caller may have time for several.
const tryWithin = 1500 * time.Millisecond

// request sends one JetStream API request. An answer that does not come is
// ErrUnavailable and ends the uninterrupted service.
func (q *Queue) request(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	return q.requestMsg(ctx, &nats.Msg{Subject: subject, Data: body})
}

func (q *Queue) requestMsg(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	answer, err := q.lines.ask(ctx, q.nc, m)
	if err != nil {
		return nil, q.noAnswer(ctx, err)
	}
	return answer, nil
}

// noAnswer is the error of a request that was not answered.
func (q *Queue) noAnswer(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	q.service.failed()
	q.unanswered()
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// untilAnswered repeats try while JetStream is away and ctx allows. A stream
// that is missing is an answer.
func untilAnswered[T any](ctx context.Context, try func() (T, error)) (T, error) {
	const pause = 50 * time.Millisecond
	for {
		v, err := try()
		if err == nil || errors.Is(err, ErrMissing) || !errors.Is(err, ErrUnavailable) {
			return v, err
		}
		select {
		case <-ctx.Done():
			return v, err
		case <-time.After(pause):
		}
	}
}

// stored is a message as a stream holds it.
type stored struct {
	subject string
	seq     uint64
	at      string // RFC 3339
	server  string // that it was read from
	header  nats.Header
	data    []byte
}

// asBatch is the message as batchGet returns it.
func (m *stored) asBatch() *nats.Msg {
	got := &nats.Msg{Header: maps.Clone(m.header), Data: m.data}
	if got.Header == nil {
		got.Header = nats.Header{}
	}
	got.Header.Set(jetstream.SubjectHeader, m.subject)
	got.Header.Set(jetstream.SequenceHeader, strconv.FormatUint(m.seq, 10))
	got.Header.Set(jetstream.TimeStampHeaer, m.at)
	return got
}

// leaderLast reads the last message on subject, which may have wildcards, from
// the stream's leader: a direct get may be answered by a replica that has not
// applied the newest write (jetstream.md F6). It returns errNoMessage if there
// is none, or if the stream is the queue of an endpoint that was deleted; a
// *MissingError if another stream does not exist.
func (q *Queue) leaderLast(ctx context.Context, stream, subject string) (*stored, error) {
	body, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", subject, err)
	}
	return untilAnswered(ctx, func() (*stored, error) { return q.leaderGet(ctx, stream, body) })
}

// leaderNext reads the first message on subject, which may have wildcards, from
// a sequence on, as leaderLast does.
func (q *Queue) leaderNext(ctx context.Context, stream, subject string, from uint64) (*stored, error) {
	body, err := json.Marshal(map[string]any{"seq": from, "next_by_subj": subject})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", subject, err)
	}
	return untilAnswered(ctx, func() (*stored, error) { return q.leaderGet(ctx, stream, body) })
}

func (q *Queue) leaderGet(ctx context.Context, stream string, body []byte) (*stored, error) {
	server := q.nc.ConnectedServerId()
	answer, err := q.request(ctx, streams.LeaderGet(stream), body)
	if err != nil {
		return nil, err
	}
	var got struct {
		Error   *apiError `json:"error"`
		Message *struct {
			Subject string `json:"subject"`
			Seq     uint64 `json:"seq"`
			Time    string `json:"time"`
			Header  []byte `json:"hdrs"`
			Data    []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(answer.Data, &got); err != nil {
		return nil, fmt.Errorf("read %s: %w", stream, err)
	}
	if got.Error != nil {
		return nil, q.explain(ctx, got.Error, stream, "read "+stream)
	}
	m := &stored{subject: got.Message.Subject, seq: got.Message.Seq, at: got.Message.Time, server: server, data: got.Message.Data}
	if len(got.Message.Header) > 0 {
		if m.header, err = nats.DecodeHeadersMsg(got.Message.Header); err != nil {
			return nil, fmt.Errorf("read headers of %s: %w", got.Message.Subject, err)
		}
	}
	return m, nil
}

// deleteSeq removes one message by its sequence, never by its subject, where a
// retry may wait. It proves nothing and may fail: whoever meets the message
// again finds the record and removes it once more.
func (q *Queue) deleteSeq(ctx context.Context, stream string, seq uint64) {
	q.point(BeforeDelete)
	if seq == 0 {
		return
	}
	body := fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, seq)
	if _, err := q.request(ctx, streams.MsgDelete(stream), body); err != nil {
		q.log.DebugContext(ctx, "message not deleted, its record decides", "stream", stream, "sequence", seq, "error", err)
	}
}
