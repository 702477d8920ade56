package bus

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
	"github.com/nats-io/nuid"

	"flightline/shared/mutation"
)

// TokenHeader names the write that a message is of: a writer that lost the answer
// reads it back.
const TokenHeader = "Flightline-Token"

// MessageTTL is the value of the header Nats-TTL for a message that the server may
// remove at t: whole seconds, which the server would cut down, rounded up.
func MessageTTL(now, t time.Time) string {
	s := (t.Sub(now) + time.Second - 1) / time.Second
	return strconv.FormatInt(max(1, int64(s)), 10) + "s"
}

// Publish stores m if the last sequence on its subject is expect (0: there is
// none), and returns its sequence once the write is as durable as the server or
// the barrier makes it. It returns ErrConflict if the last sequence is another.
// A lost answer is settled by reading back the token of the last message.
func (c *Client) Publish(ctx context.Context, stream string, m *nats.Msg, expect uint64) (uint64, error) {
	m.Header.Set(TokenHeader, nuid.Next())
	return c.Republish(ctx, stream, m, expect, true)
}

// Republish is Publish for a message that has its TokenHeader and that, unless sure, an
// earlier call may have stored.
func (c *Client) Republish(ctx context.Context, stream string, m *nats.Msg, expect uint64, sure bool) (uint64, error) {
	if !mutation.NoCompare {
		m.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(expect, 10))
	}
	return c.publish(ctx, stream, m, sure)
}

// Append stores m, whatever is on its subject, and returns as Publish does. After a lost
// answer m is stored again: readers leave out a token that they had. Publish has the
// server read the last message of the subject, and keep what is written to the stream in
// memory for ten seconds (docs/design/jetstream.md#f15).
func (c *Client) Append(ctx context.Context, stream string, m *nats.Msg, token string) error {
	m.Header.Set(TokenHeader, token)
	_, err := c.publish(ctx, stream, m, true)
	return err
}

// publish stores m with its expectation, if it has one, until that is answered.
func (c *Client) publish(ctx context.Context, stream string, m *nats.Msg, sure bool) (uint64, error) {
	return UntilAnswered(ctx, func() (uint64, error) {
		server := c.nc.ConnectedServerId()
		seq, err := c.Store(ctx, stream, m)
		if refused := err; errors.Is(refused, ErrConflict) && !sure {
			seq, err = c.settle(ctx, stream, m)
			if errors.Is(err, ErrConflict) && errors.Is(refused, errInFlight) {
				err = fmt.Errorf("%w: %w", ErrUnavailable, err) // it may be this one
			}
		}
		if err == nil {
			err = c.WaitDurable(ctx, stream, server)
		}
		if errors.Is(err, ErrUnavailable) {
			sure = false
			if c.cfg.Unwritten != nil {
				c.cfg.Unwritten(stream)
			}
		}
		return seq, err
	})
}

// settle finds out whether the last message on m's subject is m, whose answer was lost.
func (c *Client) settle(ctx context.Context, stream string, m *nats.Msg) (uint64, error) {
	there, err := c.LeaderLast(ctx, stream, m.Subject)
	switch {
	case errors.Is(err, ErrNoMessage):
		return 0, ErrConflict
	case err != nil:
		return 0, err
	case there.Header.Get(TokenHeader) == m.Header.Get(TokenHeader):
		return there.Seq, nil
	}
	return 0, ErrConflict
}

// Store sends m to its stream and waits for the acknowledgement. It adds no
// expectation, does not repeat, and does not wait at a barrier.
func (c *Client) Store(ctx context.Context, stream string, m *nats.Msg) (uint64, error) {
	answer, err := c.requester.ask(ctx, c.nc, m)
	if errors.Is(err, nats.ErrNoResponders) {
		if missing := c.explainNoResponders(ctx, stream); missing != nil {
			return 0, missing
		}
	}
	if err != nil {
		return 0, c.noAnswer(ctx, err)
	}
	return readAck(stream, answer.Data)
}

// explainNoResponders finds out why nothing listened on the subject of a write:
// the error of a stream that does not exist, or nil if that is not the reason.
func (c *Client) explainNoResponders(ctx context.Context, stream string) error {
	answer, err := c.Request(ctx, StreamInfo(stream), nil)
	if err != nil {
		return nil //nolint:nilerr // JetStream is away: the caller knows
	}
	var info struct {
		Error *APIError `json:"error"`
	}
	read := json.Unmarshal(answer.Data, &info) == nil
	if !read || !info.Error.NoStream() {
		return nil
	}
	return c.explain(ctx, info.Error, stream, "write to "+stream)
}

func readAck(stream string, data []byte) (uint64, error) {
	if seq, ok := plainAck(data); ok {
		return seq, nil
	}
	var ack struct {
		Error *APIError `json:"error"`
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
