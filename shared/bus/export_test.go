package bus

import (
	"context"

	"github.com/nats-io/nats.go"
)

// What tests with a server need, which cannot be in this package: testenv imports it.

type Requester = requester

func (r *requester) Ask(ctx context.Context, nc *nats.Conn, m *nats.Msg) (*nats.Msg, error) {
	return r.ask(ctx, nc, m)
}

func (r *requester) Free() int { return len(r.free) }

var (
	PlainAck = plainAck
	ReadAck  = readAck

	IsFromLeader = isFromLeader
)

// Probe asks the clock stream's leader once.
func (c *Client) Probe(ctx context.Context) error {
	_, err := c.probe(ctx)
	return err
}

// TryLastOfEach is one attempt of LastOfEach whose answer must have all up to the sequence last.
func (c *Client) TryLastOfEach(ctx context.Context, stream, filter string, last uint64) ([]*nats.Msg, error) {
	return c.tryLastOfEach(ctx, stream, filter, last)
}
