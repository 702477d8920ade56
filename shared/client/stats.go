package client

import (
	"context"
	"net/url"
	"strconv"
	"time"

	"flightline/shared/api"
	"flightline/shared/job"
)

// The answers of the statistics routes. Instants are RFC 3339 in UTC.
type (
	// Stats counts what happened at an endpoint.
	Stats = api.Stats
	// StatsPoint counts what happened in one step of time.
	StatsPoint = api.StatsPoint
	// FailureGroup is the failures of one cause at an endpoint.
	FailureGroup = api.FailureGroup
	// FoundJob names the endpoint of a job.
	FoundJob = api.FoundJob
	// Overview lists endpoints with their state.
	Overview = api.Overview
	// EndpointOverview is the state of one endpoint.
	EndpointOverview = api.EndpointOverview
)

// StatsOptions say which time is wanted. The zero value is the last hour by the minute.
type StatsOptions struct {
	// From and To bound the time. The zero times are an hour before To, and now.
	From, To time.Time
	// Step is time.Minute or time.Hour. 0 leaves it to the server: an hour for more than
	// 24 hours. There are at most 2880 steps.
	Step time.Duration
}

// Stats counts what happened at an endpoint, by the minute or by the hour. It needs the
// read permission.
func (c *Client) Stats(ctx context.Context, endpoint string, o StatsOptions) (*Stats, error) {
	query := spanOf(o.From, o.To)
	if o.Step != 0 {
		query.Set("step", strconv.Itoa(int(o.Step/time.Second)))
	}
	return one[Stats](ctx, c, get(v2(endpoint, "stats"), query))
}

// Failures groups the failures of an endpoint by their cause, those of all endpoints that
// the key may read for "". from and to may be zero, for the last 24 hours. It needs the
// read permission.
func (c *Client) Failures(ctx context.Context, endpoint string, from, to time.Time) ([]FailureGroup, error) {
	path := v1("failures")
	if endpoint != "" {
		path = v2(endpoint, "failures")
	}
	return value[[]FailureGroup](ctx, c, get(path, spanOf(from, to)))
}

func spanOf(from, to time.Time) url.Values {
	return queryOf(map[string]string{"from": instantText(from), "to": instantText(to)})
}

// FindJob finds a job without its endpoint, among the endpoints that the key may read.
// The error is an *Error with the code job_not_found if none has it.
func (c *Client) FindJob(ctx context.Context, id job.ID) (*FoundJob, error) {
	return one[FoundJob](ctx, c, get(v1("jobs", string(id)), nil))
}

// OverviewQuery says which endpoints an overview lists. The zero value is the first ones.
type OverviewQuery struct {
	// Attention wants only those that need attention.
	Attention bool
	// Limit is how many there are at most, 1 to 1000; 0 leaves it to the server, which takes 100.
	Limit int
	// Cursor is that of the answer before, "" for the first.
	Cursor string
}

// WholeOverview is Overview without a limit. Its Cursor is "", and that of the query does not
// count.
func (c *Client) WholeOverview(ctx context.Context, q OverviewQuery) (*Overview, error) {
	const most = 1000 // in one answer
	q.Limit, q.Cursor = most, ""
	all, err := c.Overview(ctx, q)
	for err == nil && all.Cursor != "" {
		var next *Overview
		q.Cursor = all.Cursor
		if next, err = c.Overview(ctx, q); err == nil {
			all.Endpoints, all.Cursor = append(all.Endpoints, next.Endpoints...), next.Cursor
		}
	}
	return all, err
}

// Overview lists the endpoints that the key may read with their state.
func (c *Client) Overview(ctx context.Context, q OverviewQuery) (*Overview, error) {
	query := queryOf(map[string]string{"limit": countText(q.Limit), "cursor": q.Cursor})
	if q.Attention {
		query.Set("attention", "true")
	}
	return one[Overview](ctx, c, get(v1("overview"), query))
}
