package api

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"

	"github.com/gofiber/fiber/v2"

	"flightline/shared/endpoint"
	"flightline/shared/job"
	"flightline/shared/web"
)

const (
	// defaultLimit and maxLimit bound a page of /requests.
	defaultLimit, maxLimit = 10, 100
)

// listView answers requests.
type listView struct {
	Requests []requestView `json:"requests"`
	Limit    int           `json:"limit"`
	HasMore  bool          `json:"hasMore"`
	// Cursor is there if there is more: it brings the next page.
	Cursor string `json:"cursor,omitempty"`
}

// requestView is a job without its input, output and error. Times between are
// milliseconds; instants are RFC 3339 in UTC.
type requestView struct {
	ID            job.ID     `json:"id"`
	Status        job.Status `json:"status"`
	DelayTime     *int64     `json:"delayTime,omitempty"`
	ExecutionTime *int64     `json:"executionTime,omitempty"`
	Retries       int        `json:"retries,omitempty"`
	WorkerID      string     `json:"workerId,omitempty"`
	SubmittedAt   string     `json:"submittedAt"`
	StartedAt     string     `json:"startedAt,omitempty"`
	FinishedAt    string     `json:"finishedAt,omitempty"`
}

func listOf(page []job.Job, q listQuery, next position) listView {
	v := listView{Requests: make([]requestView, 0, len(page)), Limit: q.limit, HasMore: !next.over()}
	for _, j := range page {
		full := viewOf(&j)
		r := requestView{
			ID: full.ID, Status: full.Status, DelayTime: full.DelayTime, ExecutionTime: full.ExecutionTime,
			Retries: full.Retries, WorkerID: full.WorkerID, SubmittedAt: web.Stamp(j.Submitted), FinishedAt: web.Stamp(j.Finished),
		}
		if j.Status != job.InQueue {
			r.StartedAt = web.Stamp(j.Started)
		}
		v.Requests = append(v.Requests, r)
	}
	if v.HasMore {
		v.Cursor = next.cursor(q)
	}
	return v
}

func listQueryOf(c *fiber.Ctx, e endpoint.Endpoint) (listQuery, error) {
	q := listQuery{endpoint: e, limit: defaultLimit}
	var err error
	if q.statuses, err = statusesOf(c.Query("status")); err != nil {
		return q, err
	}
	if c.Context().QueryArgs().Has("limit") {
		if q.limit, err = strconv.Atoi(c.Query("limit")); err != nil || q.limit < 1 || q.limit > maxLimit {
			return q, web.Errorf(web.InvalidRequest, "limit is invalid; must be between 1 and %d", maxLimit)
		}
	}
	if c.Context().QueryArgs().Has("cursor") {
		if q.at, err = positionOf(c.Query("cursor"), q); err != nil {
			return q, err
		}
	}
	return q, nil
}

// statusesOf reads a list of statuses, separated by commas, in whatever order.
func statusesOf(list string) ([]job.Status, error) {
	if list == "" {
		return nil, nil
	}
	var wanted []job.Status
	given := strings.Split(list, ",")
	for _, status := range job.Statuses() {
		before := len(given)
		given = slices.DeleteFunc(given, func(s string) bool { return s == string(status) })
		if len(given) < before {
			wanted = append(wanted, status)
		}
	}
	if len(given) > 0 {
		var names []string
		for _, status := range job.Statuses() {
			names = append(names, string(status))
		}
		return nil, web.Errorf(web.InvalidRequest, "status is invalid; must be one or several, separated by commas, of %s", strings.Join(names, ", "))
	}
	return wanted, nil
}

// cursor spells a position for clients. It is good for the same list only.
func (p position) cursor(q listQuery) string {
	b := binary.AppendUvarint(binary.AppendUvarint(nil, p.live), p.ended)
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint32(b, q.check(b)))
}

// check tells the endpoint and statuses of a cursor from others, and a cursor
// from something else.
func (q listQuery) check(b []byte) uint32 {
	h := crc32.NewIEEE()
	_, _ = h.Write(b) // never fails
	_, _ = h.Write([]byte(q.endpoint.ID + " " + strconv.FormatInt(q.endpoint.Created.UnixMilli(), 10)))
	for _, status := range q.statuses {
		_, _ = h.Write([]byte(" " + status))
	}
	return h.Sum32()
}

// positionOf reads what cursor wrote.
func positionOf(text string, q listQuery) (position, error) {
	var p position
	b, err := base64.RawURLEncoding.DecodeString(text)
	body, sum := b[:max(0, len(b)-4)], b[max(0, len(b)-4):]
	live, n := binary.Uvarint(body)
	ended, m := binary.Uvarint(body[max(0, n):])
	if err != nil || len(sum) < 4 || n <= 0 || m <= 0 || n+m != len(body) || binary.BigEndian.Uint32(sum) != q.check(body) {
		return p, web.Errorf(web.InvalidRequest, "cursor is invalid; take it from the page before, with the same endpoint and status")
	}
	return position{live, ended}, nil
}
