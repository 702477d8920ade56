package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"flightline/shared/job"
)

// followed is a list without an end of an endpoint, as its events: where a reader is in
// it. The server sends it as server-sent events and goes on behind any place.
type followed struct {
	c        *Client
	op       call
	patience patience
	after    string // where to go on; "" leaves it to the request
	over     bool   // the server has sent the end
}

// followCall is the request for the list of that name, of one job or of all for "".
func followCall(endpoint, name string, id job.ID, since time.Time, once bool) call {
	query := queryOf(map[string]string{"since": instantText(since)})
	if once {
		query.Set("follow", "false")
	}
	switch {
	case endpoint == "":
		return get(v1(name), query)
	case id == "":
		return get(v2(endpoint, name), query)
	}
	return get(v2(endpoint, name, string(id)), query)
}

// follow yields what decode makes of each event with data, connection after connection, to
// the end of the list.
func follow[T any](ctx context.Context, f *followed, decode func(event) (T, error)) iter.Seq2[T, error] {
	read := func(ctx context.Context, each func(T) bool) (heard bool, err error) {
		return f.c.readEvents(ctx, f.op, f.after, func(next event) (more bool, err error) {
			if next.name == "end" {
				f.over = true
				return false, nil
			}
			if next.id != "" {
				f.after = next.id
			}
			if next.data == nil { // a sign of life
				return true, nil
			}
			v, err := decode(next)
			if err != nil {
				return false, fmt.Errorf("client: %s %s: the answer is not what the API promises: %w", f.op.method, f.op.path, err)
			}
			return each(v), nil
		})
	}
	return resumed(ctx, f.patience, func() bool { return f.over }, read)
}
