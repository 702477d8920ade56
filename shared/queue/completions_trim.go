package queue

import (
	"context"
	"math"

	"flightline/shared/bus"
	"flightline/streams"
)

// TrimDeliveries removes the oldest attempts of the log of deliveries if it holds
// more than maxBytes, and returns how many messages. A completion whose attempts
// were removed while it waited for its next one begins with its first again. It
// returns ErrUnavailable.
func (q *Queue) TrimDeliveries(ctx context.Context, maxBytes int64) (uint64, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	removed, err := bus.Trim(ctx, q.js, streams.Deliveries, maxBytes, math.MaxUint64)
	return removed, foreign(err)
}
