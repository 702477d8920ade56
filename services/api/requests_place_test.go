package api

import (
	"net/http"
	"net/url"
	"slices"
	"testing"
	"time"

	"flightline/shared/api"
	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/testenv"
)

// tell appends what a recorder would of jobs.
func (s *env) tell(log *events.Log, ids ...string) {
	s.t.Helper()
	var list []events.Event
	for _, id := range ids {
		j, err := s.queue.Status(s.t.Context(), s.endpoint, job.ID(id))
		if err != nil {
			s.t.Fatal(err)
		}
		end := eventOf(*j)
		first := end
		first.Kind, first.Run, first.At, first.Status = events.Queued, 0, j.Queued, job.InQueue
		list = append(list, first)
		if j.Status.Terminal() {
			list = append(list, end)
		}
	}
	if err := log.Append(s.t.Context(), list...); err != nil {
		s.t.Fatal(err)
	}
}

// lastChange is when the last of jobs was queued or ended. The time after that, by a clock that
// measures the server's again meanwhile, may be some milliseconds earlier.
func (s *env) lastChange(ids ...string) (last time.Time) {
	s.t.Helper()
	for _, id := range ids {
		j, err := s.queue.Status(s.t.Context(), s.endpoint, job.ID(id))
		if err != nil {
			s.t.Fatal(err)
		}
		if at := changedAt(*j); at.After(last) {
			last = at
		}
	}
	return last
}

// messages is how many a request to the API costs, in both directions.
func (s *env) messages(query url.Values) int {
	least := 1 << 30
	for range 5 { // the clock's probes are counted too
		before := s.conn.Stats()
		s.do("GET", "/ep/requests?"+query.Encode(), "")
		after := s.conn.Stats()
		least = min(least, int(after.OutMsgs-before.OutMsgs+after.InMsgs-before.InMsgs))
	}
	return least
}

// A list by time or by the beginning of an id seeks its place: it has the same jobs for the
// same number of messages, however many jobs came later.
func TestAListByTimeOrIDSeeksItsPlace(t *testing.T) {
	t.Parallel()
	s := start(t)
	one, log := s.twin(), s.at.Events(t)
	one.service.recentFor = 0
	waits := s.submit()
	retried := s.submit()
	for range 2 { // the one that waits comes first
		l := s.take()
		if string(l.Job.ID) == waits {
			continue
		}
		if _, err := l.Fail(t.Context(), "no"); err != nil {
			t.Fatal(err)
		}
	}
	failed := s.submit()
	s.fail("no such model")
	done := s.submit()
	s.complete(`1`)
	s.tell(log, waits, retried, failed, done)
	s.do("POST", "/ep/retry/"+retried, "")
	ended := s.lastChange(waits, retried, failed, done)
	later := func() bool { return s.queue.Now().After(ended.Add(listSlack + 2*events.ClockSlack)) }
	testenv.Eventually(t, "the slack of the clocks is over", later)
	to := api.FormatTime(ended.Add(time.Millisecond))
	cases := []struct {
		query url.Values
		want  []string
	}{
		{url.Values{"to": {to}}, []string{done, failed, waits, retried}},
		{url.Values{"to": {to}, "status": {"FAILED"}}, []string{failed}},
		{url.Values{"to": {to}, "status": {"IN_PROGRESS,IN_QUEUE"}}, []string{waits, retried}},
		{url.Values{"to": {to}, "from": {api.FormatTime(ended.Add(-time.Hour))}, "status": {"COMPLETED"}}, []string{done}},
		{url.Values{"id": {waits[:18]}}, []string{waits}},
		{url.Values{"id": {retried[:18]}}, []string{retried}},
		{url.Values{"id": {failed[:18]}}, []string{failed}},
		{url.Values{"id": {done[:18]}, "status": {"FAILED"}}, nil},
		{url.Values{"id": {done}}, []string{done}},
		{url.Values{"id": {"sync-" + done}}, nil},
		{url.Values{"id": {"01"}, "to": {to}}, []string{done, failed, waits, retried}},
	}
	few := make([]int, len(cases))
	for i, c := range cases {
		few[i] = one.messages(c.query)
	}
	for range 20 {
		var some []string
		for range 50 {
			id := s.submit()
			if _, err := s.queue.Cancel(t.Context(), s.endpoint, job.ID(id)); err != nil {
				t.Fatal(err)
			}
			some = append(some, id, s.submit())
		}
		s.tell(log, some...)
	}
	for i, c := range cases {
		if many := one.messages(c.query); many > few[i]+40 {
			t.Errorf("%v: got %d messages, want about %d", c.query, many, few[i])
		}
		got := idsOf(one.list(c.query))
		slices.Sort(got)
		if slices.Sort(c.want); !slices.Equal(got, c.want) {
			t.Errorf("%v: got %v, want %v", c.query, got, c.want)
		}
	}
	from := url.Values{"from": {to}, "status": {"CANCELLED"}, "limit": {"100"}}
	if got := one.list(from); len(got) != 1000 {
		t.Errorf("since: got %d jobs, want those cancelled later", len(got))
	}
}

// An instant may be far away, as that which a UUID of version 4 seems to name.
func TestAListOfFarInstantsIsEmptyOrWhole(t *testing.T) {
	t.Parallel()
	s := start(t)
	one := s.twin()
	id := one.submit()
	for query, want := range map[string][]string{
		"id=f47ac10b":                                  nil,
		"from=0001-01-01T00:00:00Z":                    {id},
		"from=0000-01-01T00:00:00Z&status=COMPLETED":   nil,
		"to=9999-12-31T23:59:59Z":                      {id},
		"to=9999-12-31T23:59:59Z&status=COMPLETED":     nil,
		"from=9999-12-31T23:59:59-10:00":               nil,
		"from=9999-12-31T23:59:59Z&worker=w":           nil,
		"to=9999-12-31T23:59:59-10:00&status=IN_QUEUE": {id},
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if got := one.do("GET", "/ep/requests?"+query, ""); got.status != http.StatusOK {
			t.Errorf("%s: got %d %s", query, got.status, got.raw)
		} else if ids := idsOf(one.list(values)); !slices.Equal(ids, want) {
			t.Errorf("%s: got %v, want %v", query, ids, want)
		}
	}
	for _, path := range []string{"/ep/events/f47ac10b-58cc-7372-a567-0e02b2c3d479", "/ep/logs/f47ac10b-58cc-7372-a567-0e02b2c3d479"} {
		if got := one.ask("GET", path+"?follow=false", ""); got.status != http.StatusNotFound {
			t.Errorf("%s: got %d %s, want 404", path, got.status, got.raw)
		}
	}
}

// The jobs of a worker that fell silent, or has said nothing yet, are those that its record names.
func TestAListOfASilentWorkerHasItsJobs(t *testing.T) {
	t.Parallel()
	s := start(t)
	one := s.twin()
	held := one.submit()
	s.take() // by worker-1, of which there is no heartbeat
	one.submit()
	for _, q := range []url.Values{{"worker": {"worker-1"}}, {"worker": {"worker-1"}, "status": {"IN_PROGRESS"}}} {
		if got := idsOf(one.list(q)); !slices.Equal(got, []string{held}) {
			t.Errorf("%v: got %v, want %s", q, got, held)
		}
	}
	if got := idsOf(one.list(url.Values{"worker": {"worker-2"}})); len(got) > 0 {
		t.Errorf("got %v of another worker, want none", got)
	}
}
