package client

import (
	"context"
	"net/http"

	"flightline/shared/api"
)

// System is how an installation is.
type System = api.System

// Finding is what a check of the doctor found.
type Finding = api.Finding

// System returns how the installation is. stream, if it is not "", leaves out the
// streams whose names do not contain it. The key needs the scope control.
func (c *Client) System(ctx context.Context, stream string) (*System, error) {
	return one[System](ctx, c, call{method: http.MethodGet, path: "/v1/system", query: queryOf(map[string]string{"stream": stream})})
}
