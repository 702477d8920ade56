package queue

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// tokenHeader tells, after an answer was lost, whose write a message is.
const tokenHeader = "Flightline-Token"

// ttlHeader is the age at which the server removes a message that may go at
// t: whole seconds, which the server would cut down, rounded up.
func ttlHeader(now, t time.Time) string {
	s := (t.Sub(now) + time.Second - 1) / time.Second
	return strconv.FormatInt(max(1, int64(s)), 10) + "s"
}

// publish stores m if the last sequence on its subject is expect (0: there is
// none), and returns its sequence once the write is as durable as the server or
// the barrier makes it. It returns errConflict if it is another.
// A lost answer is settled by reading back whose token lies there.
func (q *Queue) publish(ctx context.Context, stream string, m *nats.Msg, token string, expect uint64) (uint64, error) {
	return q.publishAgain(ctx, stream, m, token, expect, true)
}

// publishAgain is publish for a message that, unless sure, an earlier call may
// have stored with the same token.
func (q *Queue) publishAgain(ctx context.Context, stream string, m *nats.Msg, token string, expect uint64, sure bool) (uint64, error) {
	m.Header.Set(tokenHeader, token)
	if !plantNoCompare {
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(expect, 10))
	}
	return untilAnswered(ctx, func() (uint64, error) {
		server := q.nc.ConnectedServerId()
		seq, err := q.store(ctx, stream, m)
		if refused := err; errors.Is(refused, errConflict) && !sure {
			seq, err = q.settle(ctx, stream, m.Subject, token)
			if errors.Is(err, errConflict) && errors.Is(refused, errInFlight) {
				err = fmt.Errorf("%w: %w", ErrUnavailable, err) // it may be this one
			}
		}
		if err == nil {
			err = q.durable(ctx, stream, server)
		}
		if errors.Is(err, ErrUnavailable) {
			sure = false
			q.unwritten(stream)
		}
		return seq, err
	})
}

// settle finds out whether the write that lost its answer is the one that
// lies there.
func (q *Queue) settle(ctx context.Context, stream, subject, token string) (uint64, error) {
	there, err := q.leaderLast(ctx, stream, subject)
	switch {
	case errors.Is(err, errNoMessage):
		return 0, errConflict
	case err != nil:
		return 0, err
	case there.header.Get(tokenHeader) == token:
		return there.seq, nil
	}
	return 0, errConflict
}

func readAck(stream string, data []byte) (uint64, error) {
	if seq, ok := plainAck(data); ok {
		return seq, nil
	}
	var ack struct {
		Error *apiError `json:"error"`
		Seq   uint64    `json:"seq"`
	}
	if err := json.Unmarshal(data, &ack); err != nil {
		return 0, fmt.Errorf("read acknowledgement of %s: %w", stream, err)
	}
	if ack.Error != nil {
		return 0, ack.Error.explain("write to " + stream)
	}
	return ack.Seq, nil
}

// plainAck reads {"stream":"…","seq":…}, what the server nearly always says.
// It reports false for everything else.
func plainAck(data []byte) (seq uint64, ok bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok {
		return 0, false
	}
	end := bytes.IndexByte(rest, '"') // no stream's name has one
	if end < 0 {
		return 0, false
	}
	rest, ok = bytes.CutPrefix(rest[end:], []byte(`","seq":`))
	if !ok {
		return 0, false
	}
	digits, ok := bytes.CutSuffix(rest, []byte("}"))
	if !ok {
		return 0, false
	}
	seq, err := strconv.ParseUint(string(digits), 10, 64)
	return seq, err == nil
}
