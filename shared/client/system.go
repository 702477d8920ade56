package client

import (
	"context"

	"flightline/shared/api"
)

// System is how an installation is.
type System = api.System

// Finding is what a check of the doctor found.
type Finding = api.Finding

// System returns how the installation is. stream, if it is not "", leaves out the
// streams whose names do not contain it. The key needs the scope control.
func (c *Client) System(ctx context.Context, stream string) (*System, error) {
	return one[System](ctx, c, get("/v1/system", queryOf(map[string]string{"stream": stream})))
}
