package client

import (
	"context"
	"net/http"
	"time"

	"flightline/shared/job"
)

// followed is a list without an end of an endpoint, as its events: where a reader is in
// it. The server sends it as server-sent events and goes on behind any place.
type followed struct {
	c        *Client
	endpoint string
	patience patience
	after    string // where to go on; "" leaves it to the request
	over     bool   // the server has sent the end
}

func (c *Client) followed(endpoint, after string, patience time.Duration) followed {
	return followed{c: c, endpoint: endpoint, after: after, patience: c.patienceOf(patience)}
}

// isOver reports whether there are no more.
func (f *followed) isOver() bool { return f.over }

// read passes the events of one connection that have data to take, until that returns
// false. heard says whether the server took the request.
func (f *followed) read(ctx context.Context, op call, take func(event) (more bool, err error)) (heard bool, err error) {
	return f.c.readEvents(ctx, op, f.after, func(next event) (bool, error) {
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
		return take(next)
	})
}

// callOf is the request for the list of that name, of one job or of all for "".
func (f *followed) callOf(name string, id job.ID, since time.Time, once bool) call {
	query := queryOf(map[string]string{"since": instantText(since)})
	if once {
		query.Set("follow", "false")
	}
	parts := []string{name}
	if id != "" {
		parts = append(parts, string(id))
	}
	path := v1(name)
	if f.endpoint != "" {
		path = v2(f.endpoint, parts...)
	}
	return call{method: http.MethodGet, path: path, query: query}
}
