package client

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"time"

	"flightline/shared/job"
)

// RequestsOptions say which part of an endpoint's list of jobs is wanted. The
// zero value is the first page of all jobs.
type RequestsOptions struct {
	// Statuses are those wanted. None means all.
	Statuses []job.Status
	// Worker is the one of the last run, Fingerprint that of the cause of a failure. ""
	// means all.
	Worker, Fingerprint string
	// From and To bound when a job was queued, or ended if it is over: an instant in RFC
	// 3339, or how long ago, as 90s, 10m or 24h. "" is no bound.
	From, To string
	// ID is the beginning of the ids of the jobs wanted, from the first digit on. "" means all.
	ID string
	// Limit bounds the page, 1 to 100. 0 leaves it to the server, which takes 10.
	Limit int
	// Cursor is that of the page before, of the same list. "" is the first page.
	Cursor string
}

// RequestsPage is a part of the list, the newest job first.
type RequestsPage struct {
	Requests []ListedJob
	// Cursor brings the next page. "" means that this one is the last. A page
	// may have few jobs, or none, and a Cursor all the same.
	Cursor string
	// Raw is the answer itself.
	Raw json.RawMessage
}

// ListedJob is a job in a list: what Status returns but its output. Of its error it has
// the line that says what went wrong.
type ListedJob struct {
	Job
	// Fingerprint names the cause of a failure, "" for a job that has not FAILED.
	Fingerprint string
	// What is not yet is zero. Instants are those of the server's clock.
	Submitted, Started, Finished time.Time
}

// Requests lists an endpoint's jobs: those that wait or run, and those that are
// over while their results can be read. A job that changes its status between
// two pages may be on neither; none is on both.
func (c *Client) Requests(ctx context.Context, endpoint string, o RequestsOptions) (*RequestsPage, error) {
	var statuses []string
	for _, status := range o.Statuses {
		statuses = append(statuses, string(status))
	}
	query := queryOf(map[string]string{
		"status": strings.Join(statuses, ","), "limit": countText(o.Limit), "worker": o.Worker, "fingerprint": o.Fingerprint,
		"from": o.From, "to": o.To, "id": o.ID, "cursor": o.Cursor,
	})
	return one[RequestsPage](ctx, c, get(v2(endpoint, "requests"), query))
}

// UnmarshalJSON reads the API's list.
func (p *RequestsPage) UnmarshalJSON(data []byte) error {
	var wire struct {
		Requests []ListedJob `json:"requests"`
		Cursor   string      `json:"cursor"`
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	*p = RequestsPage{Requests: wire.Requests, Cursor: wire.Cursor, Raw: bytes.Clone(data)}
	return nil
}

// MarshalJSON returns the answer as it came.
func (p RequestsPage) MarshalJSON() ([]byte, error) { return rawOr(p.Raw) }

// UnmarshalJSON reads an element of the API's list.
func (l *ListedJob) UnmarshalJSON(data []byte) error {
	var wire struct {
		Fingerprint string    `json:"fingerprint"`
		SubmittedAt time.Time `json:"submittedAt"`
		StartedAt   time.Time `json:"startedAt"`
		FinishedAt  time.Time `json:"finishedAt"`
	}
	if err := json.Unmarshal(data, &l.Job); err != nil {
		return err
	}
	if err := json.Unmarshal(data, &wire); err != nil {
		return err
	}
	l.Fingerprint = wire.Fingerprint
	l.Submitted, l.Started, l.Finished = wire.SubmittedAt, wire.StartedAt, wire.FinishedAt
	return nil
}
