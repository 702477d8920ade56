package api

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"flightline/shared/events"
	"flightline/shared/job"
	"flightline/shared/queue"
	"flightline/shared/testenv"
)

// list reads all pages of a list.
func (s *env) list(query url.Values) (jobs []map[string]any) {
	s.t.Helper()
	for pages := 0; ; pages++ {
		got := s.do("GET", "/ep/requests?"+query.Encode(), "")
		if got.status != http.StatusOK {
			s.t.Fatalf("got %d %s", got.status, got.raw)
		}
		page, ok := got.body["requests"].([]any)
		if !ok || pages > 200 {
			s.t.Fatalf("page %d: got %s, want requests", pages, got.raw)
		}
		for _, r := range page {
			j, _ := r.(map[string]any)
			jobs = append(jobs, j)
		}
		cursor, _ := got.body["cursor"].(string)
		if more := got.body["hasMore"] == true; more != (cursor != "") {
			s.t.Fatalf("got %s, want a cursor if and only if there is more", got.raw)
		}
		if cursor == "" {
			return jobs
		}
		query.Set("cursor", cursor)
	}
}

func idsOf(jobs []map[string]any) (ids []string) {
	for _, j := range jobs {
		id, _ := j["id"].(string)
		ids = append(ids, id)
	}
	return ids
}

// shown is an env with jobs in every status; ids has them, the newest first.
func shown(t *testing.T) (s *env, ids map[string][]string) {
	t.Helper()
	s, ids = start(t), map[string][]string{}
	add := func(status, id string) { ids[status] = append([]string{id}, ids[status]...) }
	for range 3 {
		id := s.submit()
		s.complete(`{"secret":"output"}`)
		add("COMPLETED", id)
		id = s.submit()
		s.fail("no such model")
		add("FAILED", id)
		id = s.submit()
		s.do("POST", "/ep/cancel/"+id, "")
		add("CANCELLED", id)
	}
	again := s.submit()
	s.fail("once")
	s.do("POST", "/ep/retry/"+again, "")
	s.take()
	add("IN_PROGRESS", again)
	for range 3 {
		add("IN_QUEUE", s.submit())
	}
	return s, ids
}

func TestRequestsListsEveryJobOnceTheNewestFirst(t *testing.T) {
	t.Parallel()
	s, ids := shown(t)
	want := slices.Concat(ids["IN_QUEUE"], ids["IN_PROGRESS"])
	for i := range 3 {
		want = append(want, ids["CANCELLED"][i], ids["FAILED"][i], ids["COMPLETED"][i])
	}
	for _, limit := range []string{"1", "2", "5", "100", ""} {
		query := url.Values{"limit": {limit}}
		if limit == "" {
			query = url.Values{}
		}
		got := s.list(query)
		if !slices.Equal(idsOf(got), want) {
			t.Errorf("limit %q: got %v, want %v", limit, idsOf(got), want)
		}
	}
	for _, j := range s.list(url.Values{}) {
		if j["output"] != nil || j["input"] != nil || j["submittedAt"] == nil {
			t.Errorf("got %v, want no input or output", j)
		}
		if failed := j["status"] == "FAILED"; failed != (j["error"] == "no such model") || failed != (j["fingerprint"] != nil) {
			t.Errorf("got %v, want the error of a failed job, and its fingerprint", j)
		}
	}
}

func TestALiveJobComesBeforeOneThatEndedInTheSameMillisecond(t *testing.T) {
	t.Parallel()
	at := time.UnixMilli(1_700_000_000_000)
	live := []queue.ListItem{{Job: job.Job{ID: "live", Queued: at}, Seq: 7}}
	for finished, want := range map[time.Time][]string{
		at.Add(-time.Millisecond): {"live", "ended"},
		at:                        {"live", "ended"},
		at.Add(time.Millisecond):  {"ended", "live"},
	} {
		ended := []queue.ListItem{{Job: job.Job{ID: "ended", Finished: finished}, Seq: 9}}
		page, _ := merge(live, ended, position{}, 2)
		got := []string{string(page[0].ID), string(page[1].ID)}
		if !slices.Equal(got, want) {
			t.Errorf("finished %v after: got %v, want %v", finished.Sub(at), got, want)
		}
	}
}

// With the log of events and without, which has the first jobs only.
func TestRequestsOfSomeStatuses(t *testing.T) {
	t.Parallel()
	s, ids := shown(t)
	log, err := events.New(s.bus.NC, s.bus.JS, nil)
	if err != nil {
		t.Fatal(err)
	}
	var told time.Time
	for i := 2; i > 0; i-- { // the newest is untold
		for _, status := range []string{"COMPLETED", "FAILED", "CANCELLED"} {
			id := ids[status][i]
			j, err := s.queue.Status(t.Context(), s.endpoint, job.ID(id))
			if err != nil {
				t.Fatal(err)
			}
			if err := log.Append(t.Context(), eventOf(*j)); err != nil {
				t.Fatal(err)
			}
			told = j.Finished
		}
	}
	retried := s.submit()
	if err := log.Append(t.Context(), events.Event{
		Kind: events.Failed, Endpoint: "ep", Job: job.ID(retried), Attempt: 1, Status: job.Failed, At: told, RetainUntil: time.Now().Add(time.Hour),
	}); err != nil {
		t.Fatal(err)
	}
	ids["IN_QUEUE"] = append([]string{retried}, ids["IN_QUEUE"]...)
	with := s.twin()
	for _, statuses := range [][]string{{"COMPLETED"}, {"FAILED"}, {"CANCELLED"}, {"TIMED_OUT"}, {"IN_QUEUE"}, {"IN_PROGRESS"}, {"FAILED", "CANCELLED"}, {"FAILED", "IN_QUEUE"}, {"TIMED_OUT", "IN_PROGRESS"}} {
		var want []string
		for _, status := range statuses {
			want = append(want, ids[status]...)
		}
		slices.Sort(want)
		for name, instance := range map[string]*env{"without events": s, "with events": with} {
			for _, limit := range []string{"2", "100"} {
				got := idsOf(instance.list(url.Values{"status": {strings.Join(statuses, ",")}, "limit": {limit}}))
				slices.Sort(got)
				if !slices.Equal(got, want) {
					t.Errorf("%v, %s, limit %s: got %v, want %v", statuses, name, limit, got, want)
				}
			}
		}
	}
}

func TestRequestsForgetsWithTheRetention(t *testing.T) {
	t.Parallel()
	s := start(t)
	s.shorten(time.Second)
	with := s.twin()
	s.submit()
	s.complete(`1`)
	if got := with.list(url.Values{}); len(got) != 1 {
		t.Fatalf("got %v, want the job", got)
	}
	for _, status := range []string{"", "COMPLETED"} {
		testenv.Eventually(t, "its retention is over", func() bool { return len(with.list(url.Values{"status": {status}})) == 0 })
	}
}

// A page costs the same number of messages however many jobs there are.
func TestAPageCostsTheSameAmongMany(t *testing.T) {
	t.Parallel()
	s := start(t)
	one := s.twin()
	cost := func() int {
		least := 1 << 30
		for range 5 {
			before := one.conn.Stats()
			one.do("GET", "/ep/requests", "")
			after := one.conn.Stats()
			least = min(least, int(after.OutMsgs-before.OutMsgs+after.InMsgs-before.InMsgs))
		}
		return least
	}
	many := func(n int) {
		for i := range n {
			id := s.submit()
			if i%2 == 0 {
				if _, err := s.queue.Cancel(t.Context(), s.endpoint, job.ID(id)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	many(40)
	few := cost()
	many(2000)
	if got := cost(); got > few+20 {
		t.Errorf("among 2000 jobs: got %d messages a page, want about %d", got, few)
	}
	if got := one.do("GET", "/ep/requests?limit=100", ""); len(got.body["requests"].([]any)) != 100 { //nolint:forcetypeassert // the test fails then
		t.Errorf("got %s", got.raw)
	}
}
