package bus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"

	"flightline/shared/retry"
)

// RequestTimeout bounds one try of a request; a caller may have time for several.
const RequestTimeout = 1500 * time.Millisecond

// Request sends one JetStream API request. An answer that does not come is
// ErrUnavailable and ends the uninterrupted service.
func (c *Client) Request(ctx context.Context, subject string, body []byte) (*nats.Msg, error) {
	answer, err := c.requester.ask(ctx, c.nc, &nats.Msg{Subject: subject, Data: body})
	if err != nil {
		return nil, c.noAnswer(ctx, err)
	}
	return answer, nil
}

// noAnswer is the error of a request that was not answered.
func (c *Client) noAnswer(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	c.availability.Failed()
	if c.cfg.Unanswered != nil {
		c.cfg.Unanswered()
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

// UntilAnswered repeats try while JetStream is away and ctx allows. A stream that
// is missing is an answer.
func UntilAnswered[T any](ctx context.Context, try func() (T, error)) (T, error) {
	const retryDelay = 50 * time.Millisecond
	for {
		v, err := try()
		if err == nil || errors.Is(err, ErrMissing) || !errors.Is(err, ErrUnavailable) {
			return v, err
		}
		if retry.Sleep(ctx, retryDelay) != nil {
			return v, err
		}
	}
}

// Query sends a JetStream API request about a stream until it is answered, and decodes the
// answer into v. That the stream or a consumer of it does not exist is up to
// ClientConfig.Missing.
func (c *Client) Query(ctx context.Context, stream, subject string, body []byte, v any) error {
	answer, err := c.answerOf(ctx, subject, body)
	if err != nil {
		return err
	}
	if err := c.refusal(ctx, answer, stream, "look at "+stream); err != nil {
		return err
	}
	if err := json.Unmarshal(answer, v); err != nil {
		return fmt.Errorf("read %s: %w", subject, err)
	}
	return nil
}

// answerOf sends a request until it is answered.
func (c *Client) answerOf(ctx context.Context, subject string, body []byte) ([]byte, error) {
	answer, err := UntilAnswered(ctx, func() (*nats.Msg, error) { return c.Request(ctx, subject, body) })
	if err != nil {
		return nil, err
	}
	return answer.Data, nil
}

// refusal is the error in an answer of the API, nil if it has none.
func (c *Client) refusal(ctx context.Context, answer []byte, stream, doing string) error {
	var got struct {
		Error *APIError `json:"error"`
	}
	if err := json.Unmarshal(answer, &got); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	if got.Error != nil {
		return c.explain(ctx, got.Error, stream, doing)
	}
	return nil
}

// command sends an API request about a stream whose answer says no more than that it was
// done.
func (c *Client) command(ctx context.Context, stream, subject string, body []byte, doing string) error {
	answer, err := c.Request(ctx, subject, body)
	if err != nil {
		return err
	}
	return c.refusal(ctx, answer.Data, stream, doing)
}

// explain turns an API error of a stream into one of this package's. That the
// stream or a consumer of it does not exist is up to ClientConfig.Missing.
func (c *Client) explain(ctx context.Context, e *APIError, stream, doing string) error {
	switch {
	case e.ErrorCode != codeNoStream && e.ErrorCode != codeNoConsumer:
		return e.explain(doing)
	case c.cfg.Missing != nil:
		return c.cfg.Missing(ctx, stream, doing)
	}
	return &MissingError{Stream: stream, Doing: doing}
}

// Commit makes the stream's leader store an entry that changes nothing, which
// takes a majority: a leader that was cut off cannot. Callers that come at the same time
// share one request.
func (c *Client) Commit(ctx context.Context, stream, subject, body string) error {
	return c.confirmations.Of(stream).Do(ctx, func(ctx context.Context) error {
		err := c.command(ctx, stream, subject, []byte(body), "confirm the leader of "+stream)
		if refused, _ := errors.AsType[*APIError](err); refused != nil && (refused.ErrorCode == codeDeleteFailed || refused.ErrorCode == codeStreamFailed) {
			return nil
		}
		return err
	})
}

// Delete removes one message by its sequence, never by its subject, where a newer
// message may wait. It proves nothing and may fail.
func (c *Client) Delete(ctx context.Context, stream string, seq uint64) {
	if _, err := c.Request(ctx, MsgDelete(stream), deleteBody(seq)); err != nil {
		c.log.DebugContext(ctx, "message not deleted, its record decides", "stream", stream, "sequence", seq, "err", err)
	}
}

// Remove deletes one message by its sequence and returns nil once it is gone.
func (c *Client) Remove(ctx context.Context, stream string, seq uint64) error {
	err := c.command(ctx, stream, MsgDelete(stream), deleteBody(seq), "delete from "+stream)
	if err == nil {
		return nil
	}
	if _, gone := c.LeaderAt(ctx, stream, seq); errors.Is(gone, ErrNoMessage) {
		return nil
	}
	return err
}

func deleteBody(seq uint64) []byte { return fmt.Appendf(nil, `{"seq":%d,"no_erase":true}`, seq) }

// Purge removes all messages of a stream whose subject matches filter.
func (c *Client) Purge(ctx context.Context, stream, filter string) error {
	body, err := json.Marshal(map[string]string{"filter": filter})
	if err != nil {
		return fmt.Errorf("purge %s: %w", filter, err)
	}
	return c.command(ctx, stream, StreamPurge(stream), body, "purge "+filter)
}

// GiveBack asks for a message of a consumer at once again, by the subject of its ack. It
// fails silently: then the message comes once its AckWait is over. A server that is
// stopped or that loses its leadership meanwhile forgets a plain -NAK, but not the end of
// the AckWait that the delay sets (docs/design/jetstream.md#f16); by the delay alone the
// message would wait for a look of the server.
func (c *Client) GiveBack(ackSubject string) {
	for _, line := range []string{`-NAK {"delay":1}`, "-NAK"} {
		_ = c.nc.Publish(ackSubject, []byte(line))
	}
}
